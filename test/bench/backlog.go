package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/test/pullers"
)

const (
	backlogTakes = 10 * time.Second // of a worker
	backlogMax   = 100              // tasks that it asks for
)

// BacklogTaken says what tasks cost that are due and that no worker asks for, and how fast they go when one does. What they cost in
// statements and CPU, the same run without them tells.
type BacklogTaken struct {
	Tasks          int      `json:"tasks"`
	ResidentMB     *float64 `json:"resident_mb"`      // of this process, when all others were delivered; null: unknown
	PayloadBytes   int      `json:"payload_bytes"`    // in memory of the nodes at that time
	UntilFirst     float64  `json:"seconds_to_first"` // from the start of a worker to its first answer
	TasksPerSecond float64  `json:"tasks_per_second"` // of this worker, 100 at a time, for 10 s
}

// fillBacklog stores tasks of the other biz type that fell due in the last hours.
func (s *site) fillBacklog(ctx context.Context) error {
	s.fills = otherNumber
	defer func() { s.fills = plainNumber }()
	_, err := s.fill(ctx, s.opts.Backlog, func() time.Duration { return -between(time.Hour, 3*time.Hour) })
	return err
}

// takeBacklog has one worker take what it can in a while, one answer at least; nil: there is no backlog.
func (f *fleet) takeBacklog(ctx context.Context, while time.Duration) (r *BacklogTaken, err error) {
	if f.site.opts.Backlog == 0 {
		return nil, nil
	}
	_, resident := usedBy(os.Getpid())
	r = &BacklogTaken{Tasks: f.site.opts.Backlog, ResidentMB: known(resident, 1), PayloadBytes: f.counted("tocsin_dispatcher_payload_bytes")}
	var seen first
	worker := &pullers.Worker{URL: f.apis[0], Max: backlogMax}
	crew, alone := &pullers.Crew{BizType: other.Name(), Workers: []*pullers.Worker{worker}, Taken: func(tasks []pullers.Task) {
		for range tasks {
			seen.add()
		}
	}}, devcluster.NewFleet(ctx)
	defer func() { err = errors.Join(err, alone.Stop()) }()
	begin := time.Now()
	crew.Start(alone)
	bounded, cancel := context.WithTimeout(ctx, stallWithin)
	defer cancel()
	if err := alone.Await(bounded, lookEvery, func() bool { return seen.count() > 0 }); err != nil {
		return nil, errors.Join(errors.New("no worker got a task of the backlog"), err)
	}
	err = loop.WaitUntil(ctx, seen.began().Add(while))
	n, took := seen.count(), time.Since(seen.began())
	r.UntilFirst, r.TasksPerSecond = round(seen.began().Sub(begin).Seconds(), 3), round(float64(n)/took.Seconds(), 0)
	return r, err
}

func (l *lines) backlog(b *BacklogTaken) {
	if b == nil {
		return
	}
	l.line("backlog", "%d tasks that nobody asked for: %s in this process then, %d bytes of payloads", b.Tasks, orUnknown(b.ResidentMB, "%.0f MB"), b.PayloadBytes)
	l.line("", "a worker had its first task after %.3f s, and took %.0f/s", b.UntilFirst, b.TasksPerSecond)
}

// Elsewhere is the lateness of tasks whose table's owner no worker asks: the node that is asked stands in for it. Own is that of the others.
type Elsewhere struct {
	Tasks  int     `json:"tasks"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
	OwnP50 float64 `json:"own_p50_ms"`
	OwnP99 float64 `json:"own_p99_ms"`
}

// notAsked returns the tables whose owner the workers don't ask; nil if they ask all nodes.
func (f *fleet) notAsked(ctx context.Context) (map[int]bool, error) {
	if p := f.site.opts.pull(); p == nil || !p.Last {
		return nil, nil
	}
	own := f.site
	owners, err := operator.View{Tables: own.config, ByRows: own.opts.Ownership == node.ByRows, Etcd: own.etcd}.Owners(ctx)
	if err != nil {
		return nil, fmt.Errorf("who owns which table: %w", err)
	}
	asked, others := f.Nodes[len(f.Nodes)-1].ID(), map[int]bool{}
	for table, owner := range owners[group] {
		if owner != asked {
			others[table] = true
		}
	}
	return others, nil
}

// elsewhere is the lateness of tasks of tables whose owner is not asked.
func (l *lateness) elsewhere() *Elsewhere {
	if l.others == nil {
		return nil
	}
	var own, far []time.Duration
	for _, a := range l.seen {
		if l.others[a.table] {
			far = append(far, a.late)
		} else {
			own = append(own, a.late)
		}
	}
	slices.Sort(own)
	slices.Sort(far)
	return &Elsewhere{len(far), millis(far, 0.5), millis(far, 0.99), millis(far, 1), millis(own, 0.5), millis(own, 0.99)}
}

func (l *lines) elsewhere(e *Elsewhere) {
	if e != nil {
		l.line("elsewhere", "%d tasks of tables of nodes that nobody asked: p50 %.2f ms, p99 %.2f ms, max %.2f ms; the others p50 %.2f ms, p99 %.2f ms",
			e.Tasks, e.P50, e.P99, e.Max, e.OwnP50, e.OwnP99)
	}
}
