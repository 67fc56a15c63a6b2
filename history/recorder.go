// Package history records what became of deliveries: one row of the table run for each attempt of a biz type whose policy
// says `history: true`, and of each run of a schedule.
//
// It is the authority for what recording may cost. A run is recorded after its outcome is stored, on a best-effort basis:
// nobody waits for the recording, and the history may lack runs.
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
//	the process ends               what is queued is written within 2 s; the rest is dropped
package history

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/store"
)

// DefaultQueueBytes is the default of Config.QueueBytes.
const DefaultQueueBytes = 32 << 20

const (
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

// Config of a Recorder.
type Config struct {
	Runs       Runs
	Servers    []string              // names, by index
	QueueBytes int                   // of runs that wait, over all servers; 0: 32 MiB
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Recorder records runs. Make one with New.
type Recorder struct {
	cfg     Config
	metrics *metrics
	limit   loglimit.Limit
	queues  []*queue // by server
}

// New makes a Recorder that writes nothing before Run.
func New(cfg Config) (*Recorder, error) {
	if cfg.Runs == nil || len(cfg.Servers) == 0 || cfg.QueueBytes < 0 {
		return nil, errors.New("history: Runs and Servers are needed, and QueueBytes must not be negative")
	}
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.QueueBytes == 0 {
		cfg.QueueBytes = DefaultQueueBytes
	}
	r := &Recorder{cfg: cfg}
	for range cfg.Servers {
		r.queues = append(r.queues, newQueue(cfg.QueueBytes/len(cfg.Servers)))
	}
	r.metrics = newMetrics(cfg.Registerer, r.queued, cfg.QueueBytes)
	return r, nil
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
