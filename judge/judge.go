package judge

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/store"
)

const (
	remembered = 20_000           // schedules whose definitions are kept, and as many marks; twice as many for a while
	freshFor   = time.Second      // a definition that was read so long ago counts as new
	knownFor   = time.Minute      // a definition is read again after this: a fail-over may have lost an edit, and another one then had its revision
	cleanFor   = time.Minute      // so long after its time a sweep leaves a run alone
	readWithin = 5 * time.Second  // the time-out of the reads about one run
	putOffTime = time.Second      // a run whose judgment failed is judged again after this, or twice as long
	shortest   = time.Second      // a run that waits for an earlier one looks again after half of this, or all of it ...
	longest    = 10 * time.Second // ... and after at most this, if it has waited for long
	patience   = 10               // the part of the time it has waited
	commitTime = time.Second      // a run by hand can be seen by others so long after it was made
	settleTime = 10 * time.Second // after its time-out a delivery that began is settled
	page       = 500              // runs read at once; the mark of a schedule is stored when it has passed as many
	mostByHand = 1000             // open runs that people asked for are read up to this many
	restWithin = 5 * time.Second  // for counting outcomes after the end of Run's context
	mostEnded  = 10_000           // outcomes that wait to be counted
	keepStruck = 10 * time.Second // runs that were replaced before they began are remembered for this long
)

// Store is what the judge needs of the database.
type Store interface {
	Judged(ctx context.Context, schedule tocsin.JobID) (j store.Judged, found bool, err error)
	RunsFrom(ctx context.Context, ranges ...store.RunRange) ([][]store.RunRow, error)
	Replace(ctx context.Context, ids []tocsin.JobID, reason string) error
	OpenFrom(ctx context.Context, schedule tocsin.JobID, key string) error
	CountFailure(ctx context.Context, schedule tocsin.JobID, revision uint32) (failures int, err error)
	ClearFailures(ctx context.Context, schedule tocsin.JobID) error
}

// Config of a Judge.
type Config struct {
	Store      Store                  // required
	Pauser     Pauser                 // required
	Now        func(server int) int64 // a lower bound of the server's clock in Unix ms; 0: unknown. Required
	ServerOf   func(table int) int    // the server that holds a table; required
	Missed     func(Missed)           // called for each run that is missed and each schedule that is paused, concurrently, must be quick; nil: not called
	Logger     *slog.Logger           // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer  // nil: unregistered
}

// Missed reports a run that was not delivered because it was too late, or a schedule that was paused.
type Missed struct {
	BizType  uint64    // number
	Schedule string    // its name
	Time     time.Time // nominal; zero: the schedule was paused
	Why      string
}

// Judge decides about runs. Make one with New. Safe for concurrent use.
type Judge struct {
	cfg     Config
	metrics *metrics
	limit   loglimit.Limit
	ended   chan counted // outcomes that wait to be counted

	watching atomic.Int32 // len(watched)

	mu      sync.Mutex
	known   *cache[tocsin.JobID, *definition]
	marks   *cache[tocsin.JobID, mark]
	watched map[tocsin.JobID]counted   // runs whose outcome counts
	running map[tocsin.JobID]*delivery // runs that a later one may replace
	struck  map[tocsin.JobID]struck    // runs that were replaced before their delivery began here
}

// New makes a Judge.
func New(cfg Config) (*Judge, error) {
	if cfg.Store == nil || cfg.Pauser == nil || cfg.Now == nil || cfg.ServerOf == nil {
		return nil, errors.New("judge: Store, Pauser, Now and ServerOf are required")
	}
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.Missed == nil {
		cfg.Missed = func(Missed) {}
	}
	return &Judge{
		cfg: cfg, metrics: newMetrics(cfg.Registerer),
		known: newCache[tocsin.JobID, *definition](remembered), marks: newCache[tocsin.JobID, mark](remembered),
		ended: make(chan counted, mostEnded), watched: map[tocsin.JobID]counted{},
		running: map[tocsin.JobID]*delivery{}, struck: map[tocsin.JobID]struck{},
	}, nil
}

// Sink delivers tasks to their target, and returns one error for each.
type Sink interface {
	Deliver(ctx context.Context, tasks []tocsin.Info) []error
}

// Around returns a sink that judges the runs among the tasks of a biz type. It passes accepted runs and all other tasks
// to next.
func (j *Judge) Around(p biztype.Policy, next Sink) Sink {
	return &sink{judge: j, policy: p.WithDefaults(), next: next}
}
