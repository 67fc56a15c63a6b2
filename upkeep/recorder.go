package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// The history is one row of the table run for each attempt of a biz type whose policy says `history: true`, and of each run of
// a schedule. A run is recorded after its outcome is stored, on a best-effort basis: nobody waits for the recording, and the
// history may lack runs.
//
//	settled --Record--> queue, one a server --a batch each 200 ms--> table run
//	                      | full: dropped        | refused: failed
//
// A Recorder writes up to 2,000 runs of a server in one transaction: one packet, with a statement for each database and
// 500 runs. Then it pauses for three times as long as the transaction took, so that deliveries come first in a burst. The
// pause is shorter when the queue is more than a quarter full, and zero when it is half full.
//
// A full queue drops the newest runs. It does not make deliveries wait until there is room: they would then stand still whenever
// a table run is locked or a server takes no more.
//
// What happens on failure:
//
//	queue full                     the run is dropped, and counted
//	server away, or read-only      the batch waits and is sent again; the queue fills
//	no answer to the commit        the batch counts as failed: sent again, its runs might stand twice
//	table locked, missing, full    the runs of that database fail, and no more are sent there for 5 s; the others go on
//	a run is refused               the batch is halved until only that run fails
//	the process ends               as much of the queue as 2 s allow is written; the rest is dropped
const (
	queueBytes = 32 << 20               // of runs that wait, over all servers
	perRun     = 160                    // bytes that a run counts besides its output
	linger     = 200 * time.Millisecond // how long the first run of a batch waits for others
	batchRuns  = 2000                   // of one transaction at most
	batchBytes = 2 << 20                // the same, by cost
	avoidFor   = 5 * time.Second        // a database that took no runs is left alone for this long
	refusedMax = 8                      // runs of a batch that a database may refuse one by one, before the others fail with them
	restFor    = 3                      // times what a batch took comes before the next, while the queue is nearly empty
	restMost   = 500 * time.Millisecond // longest such pause
	endWithin  = 2 * time.Second        // for what is queued when Run's context ends
)

// Runs is the table run of every database.
type Runs interface {
	RecordRuns(ctx context.Context, server int, runs []*store.Run) (sent bool, err error)
	RunsIn(id tocsin.JobID) (database int)
}

// RecorderConfig is the config of a Recorder.
type RecorderConfig struct {
	Runs       Runs
	Servers    []string              // names, by index
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Recorder records runs. Make one with NewRecorder.
type Recorder struct {
	cfg     RecorderConfig
	metrics *recorderMetrics
	limit   loop.LogLimit
	queues  []*queue // by server
}

// NewRecorder makes a Recorder that writes nothing before Run.
func NewRecorder(cfg RecorderConfig) *Recorder { return newRecorder(cfg, queueBytes) }

// newRecorder makes a Recorder whose queues hold at most capacity bytes.
func newRecorder(cfg RecorderConfig, capacity int) *Recorder {
	cfg.Logger = loop.Logger(cfg.Logger)
	r := &Recorder{cfg: cfg}
	for range cfg.Servers {
		r.queues = append(r.queues, newQueue(capacity/len(cfg.Servers)))
	}
	r.metrics = newRecorderMetrics(cfg.Registerer, r.queued, capacity)
	return r
}

// Record queues runs of a server's tasks, delivered or not. It never blocks: runs that find no room are dropped and
// counted. The Recorder then owns the slice. It is safe for concurrent use.
func (r *Recorder) Record(server int, runs []*store.Run) {
	if refused := r.queues[server].put(runs); refused > 0 {
		r.drop(server, refused)
	}
}

// Run writes until ctx ends, then what is queued, for at most 2 s more. It may be called once; nothing may be recorded once
// its context has ended.
func (r *Recorder) Run(ctx context.Context) {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(endWithin, cancel)
		context.AfterFunc(hard, func() { timer.Stop() })
	})()
	var all sync.WaitGroup
	for server := range r.queues {
		w := &writer{Recorder: r, server: server, shut: make(map[int]time.Time)}
		all.Go(func() { w.run(ctx, hard) })
	}
	all.Wait()
}

// queued returns how many bytes wait.
func (r *Recorder) queued() (bytes int) {
	for _, q := range r.queues {
		bytes += q.size()
	}
	return bytes
}

// drop counts runs that are not written because there is no room or no time.
func (r *Recorder) drop(server, runs int) {
	r.metrics.dropped.Add(float64(runs))
	r.limit.Of(r.cfg.Logger, "dropped "+r.cfg.Servers[server]).Warn("runs are dropped: the history lacks them, their tasks are not affected",
		"server", r.cfg.Servers[server], "runs", runs)
}

func cost(r *store.Run) int { return perRun + len(r.Output) }

// queue holds the runs of one server that wait to be written.
type queue struct {
	limit int           // bytes
	more  chan struct{} // 1 slot: there are more runs than before

	mu    sync.Mutex
	runs  []*store.Run
	bytes int // of runs
}

func newQueue(limit int) *queue { return &queue{limit: limit, more: make(chan struct{}, 1)} }

// put queues runs while there is room, and returns the number that did not fit.
func (q *queue) put(runs []*store.Run) (refused int) {
	q.mu.Lock()
	for i := range runs {
		if q.bytes+cost(runs[i]) > q.limit {
			refused = len(runs) - i
			break
		}
		q.bytes += cost(runs[i])
		q.runs = append(q.runs, runs[i])
	}
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
	return refused
}

func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// plenty reports whether a whole batch waits.
func (q *queue) plenty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.runs) >= batchRuns || q.bytes >= batchBytes
}

// next waits for the first run, then for a short time for a whole batch. Once ctx has ended it returns what is left
// without waiting; an empty result means that nothing is left.
func (q *queue) next(ctx context.Context) []*store.Run {
	for q.size() == 0 {
		select {
		case <-ctx.Done():
			return q.take()
		case <-q.more:
		}
	}
	enough := time.NewTimer(linger)
	defer enough.Stop()
	for !q.plenty() {
		select {
		case <-ctx.Done():
			return q.take()
		case <-enough.C:
			return q.take()
		case <-q.more:
		}
	}
	return q.take()
}

// take removes the runs of one batch.
func (q *queue) take() []*store.Run {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, 0
	for n < len(q.runs) && n < batchRuns && (n == 0 || bytes+cost(q.runs[n]) <= batchBytes) {
		bytes += cost(q.runs[n])
		n++
	}
	batch := slices.Clone(q.runs[:n])
	rest := copy(q.runs, q.runs[n:])
	clear(q.runs[rest:])
	q.runs, q.bytes = q.runs[:rest], q.bytes-bytes
	return batch
}

type recorderMetrics struct {
	recorded, dropped, failed prometheus.Counter
}

func newRecorderMetrics(r prometheus.Registerer, queued func() int, capacity int) *recorderMetrics {
	f := promauto.With(r)
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "history", Name: name + "_total", Help: help})
	}
	gauge := func(name, help string, value func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "history", Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	gauge("queue_bytes", "Size of the runs that wait to be recorded.", queued)
	gauge("queue_capacity_bytes", "Bound of tocsin_history_queue_bytes, beyond which runs are dropped.", func() int { return capacity })
	return &recorderMetrics{
		recorded: count("recorded", "Runs recorded."),
		dropped:  count("dropped", "Runs not recorded since too many waited, or the process ended."),
		failed:   count("failed", "Runs not recorded since their database refused them or could not take them."),
	}
}

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
		_ = loop.Wait(ctx, w.rest(time.Since(began))) // cut short when ctx ends
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
