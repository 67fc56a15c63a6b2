package history

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// writer writes the runs of one server. Its fields are of its own goroutine.
type writer struct {
	*Recorder
	server  int
	shut    map[int]time.Time // databases that took no runs, until when they are left alone
	refused map[int]int       // of the batch in hand, by database: runs that were refused
}

// run writes batches until ctx has ended and nothing is left. hard ends the writing.
func (w *writer) run(ctx, hard context.Context) {
	for {
		batch := w.queues[w.server].next(ctx)
		if len(batch) == 0 {
			return
		}
		w.refused = make(map[int]int)
		began := time.Now()
		w.put(hard, batch)
		_ = wait.For(ctx, w.rest(time.Since(began))) // cut short when ctx ends
	}
}

// rest returns how long to pause after a batch, so that a burst of deliveries comes before its history. The fuller the queue,
// the shorter: none once it is half full.
func (w *writer) rest(took time.Duration) time.Duration {
	q := w.queues[w.server]
	switch full := q.size(); {
	case full < q.limit/4:
		return min(restFor*took, restMost)
	case full < q.limit/2:
		return min(took, restMost)
	}
	return 0
}

// put writes runs, all together if possible. Otherwise it writes the runs of each database separately, then halves of
// them, until only the runs that can't be written are left out.
func (w *writer) put(ctx context.Context, runs []*store.Run) {
	if runs = w.open(runs); len(runs) == 0 {
		return
	}
	sent, err := w.try(ctx, runs)
	switch {
	case err == nil:
		w.metrics.recorded.Add(float64(len(runs)))
	case mysql.ClassOf(err) == mysql.Canceled:
		w.drop(w.server, len(runs))
	case sent:
		w.fail(runs, err)
	default:
		w.apart(ctx, runs, err)
	}
}

// try sends runs, again and again while the server does not answer.
func (w *writer) try(ctx context.Context, runs []*store.Run) (sent bool, err error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 5*time.Second
	return backoff.Retry(ctx, func() (bool, error) {
		sent, err := w.cfg.Runs.RecordRuns(ctx, w.server, runs)
		if err == nil || !sent && mysql.ClassOf(err).OfServer() {
			return sent, err
		}
		return sent, backoff.Permanent(err)
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0))
}

// apart writes parts of runs that were refused together. RecordRuns has put them in the order of their databases.
func (w *writer) apart(ctx context.Context, runs []*store.Run, err error) {
	first, last := w.database(runs[0]), w.database(runs[len(runs)-1])
	switch {
	case first != last:
		for from := 0; from < len(runs); {
			end := from + 1
			for end < len(runs) && w.database(runs[end]) == w.database(runs[from]) {
				end++
			}
			w.put(ctx, runs[from:end])
			from = end
		}
	case !ofRun(err):
		w.shut[first] = time.Now().Add(avoidFor)
		w.fail(runs, err)
	case len(runs) == 1:
		if w.refused[first]++; w.refused[first] == refusedMax { // what is wrong may be the table
			w.shut[first] = time.Now().Add(avoidFor)
		}
		w.fail(runs, err)
	default:
		w.put(ctx, runs[:len(runs)/2])
		w.put(ctx, runs[len(runs)/2:])
	}
}

// open leaves out the runs of databases that failed a moment ago, and counts them as failed.
func (w *writer) open(runs []*store.Run) []*store.Run {
	if len(w.shut) == 0 {
		return runs
	}
	now, kept := time.Now(), runs[:0]
	for _, r := range runs {
		until, shut := w.shut[w.database(r)]
		switch {
		case shut && now.Before(until):
			w.metrics.failed.Inc()
			continue
		case shut:
			delete(w.shut, w.database(r))
		}
		kept = append(kept, r)
	}
	return kept
}

func (w *writer) database(r *store.Run) int { return w.cfg.Runs.RunsIn(r.JobID) }

func (w *writer) fail(runs []*store.Run, err error) {
	w.metrics.failed.Add(float64(len(runs)))
	w.limit.Of(w.cfg.Logger, "failed "+w.cfg.Servers[w.server]).Warn("runs can't be recorded: the history lacks them, their tasks are not affected",
		"error", err, "server", w.cfg.Servers[w.server], "runs", len(runs))
}

// ofRun reports whether a database may have refused runs because of the contents of one.
func ofRun(err error) bool {
	var unusable *store.Unusable
	return mysql.ClassOf(err) == mysql.Other && !errors.As(err, &unusable)
}
