package pull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
)

// Backend is what a Hub needs of its node.
type Backend struct {
	Store      *store.Store
	Runs       *schedule.Runs
	Node       string
	Policies   func() []biztype.Policy               // of all groups
	Mine       func(biztype.Policy) bool             // of the node's group
	Ask        func(bizType uint64)                  // a worker waits for tasks of the type
	Record     func(server int, runs []*store.Run)   // for the history
	Died       func(bizType uint64, id tocsin.JobID) // a worker has made a task dead
	Registerer prometheus.Registerer                 // nil: no metrics

	metrics *metrics
}

// Result is what became of a lease.
type Result string

// The results.
const (
	Done     Result = "done"          // the outcome is stored
	Already  Result = "already"       // it was complete before
	Lost     Result = "lost"          // the task is somebody else's, or has ended: nothing was changed
	OK       Result = "ok"            // the lease lasts longer
	Unwanted Result = "cancel_wanted" // the task was cancelled or rescheduled
)

// Settling is how a worker ends a lease.
type Settling struct {
	Lease   string
	Answer  error  // as a handler returns it: see tocsin.AsOutcome
	Release bool   // give the task back: no attempt is counted
	Output  string // for the history
	Worker  string // the same; "": the node's id stands there
}

// Became is what became of a Settling, or of a lease that was to be extended.
type Became struct {
	Result Result
	Until  time.Time // OK: the lease lasts until then
	Err    error     // nothing is known: ask again
}

// lease is the parts of a lease's text.
type lease struct {
	id      tocsin.JobID
	version uint32
	by      string // the claimer
	began   int64  // Unix ms
}

// parseLease reads JOB_ID.VERSION.RANDOM.
func parseLease(text string) (l lease, err error) {
	parts := strings.SplitN(text, ".", 4)
	bad := client.Refuse(tocsin.ErrInvalid, "a lease is given as it came with its task: JOB_ID.VERSION. and %d characters", store.LeaseSize)
	if len(parts) != 3 {
		return l, bad
	}
	version, wrong := strconv.ParseUint(parts[1], 10, 32)
	if l.id, err = tocsin.ParseJobID(parts[0]); err != nil || wrong != nil {
		return l, bad
	}
	var ok bool
	l.version, l.by = uint32(version), store.LeaseOf(parts[2])
	if _, l.began, ok = store.LeaseBegan(l.by); !ok {
		return l, bad
	}
	return l, nil
}

// holds reports whether the row is the lease's.
func (l lease) holds(row *store.Row) bool {
	return row.Status == tocsin.Claimed && row.ClaimedBy == l.by && row.Version == l.version
}

// batch is leases of one server, and what became of them.
type batch struct {
	*Backend
	server int
	known  []biztype.Policy
	at     []int // places in what was asked
	leases []lease
	rows   map[tocsin.JobID]*store.Row
	became []Became // of all that was asked
}

// open returns the Backend, while there is one.
func (h *Hub) open() (*Backend, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.backend == nil {
		return nil, ErrNotRunning
	}
	return h.backend, nil
}

// perServer has do work on the leases of each server, all servers at once. Leases of biz types that sees does not allow are lost. If two leases
// are of one task, the second one waits for the first.
func (b *Backend) perServer(ctx context.Context, texts []string, sees func(string) bool, do func(context.Context, *batch) error) ([]Became, error) {
	leases, left := make([]lease, len(texts)), make([]int, len(texts))
	for i, text := range texts {
		var err error
		if leases[i], err = parseLease(text); err != nil {
			return nil, fmt.Errorf("lease %d: %w", i+1, err)
		}
		left[i] = i
	}
	known, became := b.Policies(), make([]Became, len(texts))
	for len(left) > 0 {
		batches, seen, again := map[int]*batch{}, map[tocsin.JobID]bool{}, []int(nil)
		for _, i := range left {
			l := leases[i]
			if seen[l.id] {
				again = append(again, i)
				continue
			}
			seen[l.id], became[i].Result = true, Lost
			server := b.Store.ServerOf(l.id.Table())
			if server < 0 {
				continue
			}
			if batches[server] == nil {
				batches[server] = &batch{Backend: b, server: server, known: known, became: became}
			}
			of := batches[server]
			of.at, of.leases = append(of.at, i), append(of.leases, l)
		}
		atOnce(ctx, batches, sees, do)
		left = again
	}
	return became, nil
}

// atOnce does the batches of all servers.
func atOnce(ctx context.Context, batches map[int]*batch, sees func(string) bool, do func(context.Context, *batch) error) {
	var all sync.WaitGroup
	for _, of := range batches {
		all.Go(func() {
			err := of.look(ctx, sees)
			if err == nil {
				err = do(ctx, of)
			}
			if err != nil {
				of.fail(of.at, err)
			}
		})
	}
	all.Wait()
}

// fail says of some leases that nothing is known.
func (b *batch) fail(at []int, err error) {
	for _, i := range at {
		b.became[i] = Became{Err: err}
	}
}

// policy returns that of a biz type. It has a lease even if it is no pull policy any more, or is not known here.
func (b *batch) policy(number uint64) biztype.Policy {
	p := biztype.Policy{Name: biztype.NameOf(b.known, number)}
	if i := slices.IndexFunc(b.known, func(p biztype.Policy) bool { return p.Number == number }); i >= 0 {
		p = b.known[i]
	}
	if p.Pull == nil {
		p.Pull = &biztype.Pull{}
	}
	return p.WithDefaults()
}

// pulled reports whether workers ask for the tasks of a biz type.
func (b *batch) pulled(number uint64) bool {
	return slices.ContainsFunc(b.known, func(p biztype.Policy) bool { return p.Number == number && p.Pull != nil })
}

// look reads the rows that the caller may know of.
func (b *batch) look(ctx context.Context, sees func(string) bool) error {
	ids := make([]tocsin.JobID, len(b.leases))
	for i, l := range b.leases {
		ids[i] = l.id
	}
	rows, err := b.Store.LookBare(ctx, b.server, ids)
	b.rows = make(map[tocsin.JobID]*store.Row, len(rows))
	for i := range rows {
		if row := &rows[i]; sees == nil || sees(biztype.NameOf(b.known, row.Type)) {
			b.rows[row.JobID] = row
		}
	}
	return err
}

// Extend has leases last for the time of their policies from now on. It may be repeated.
func (h *Hub) Extend(ctx context.Context, leases []string, sees func(string) bool) ([]Became, error) {
	b, err := h.open()
	if err != nil {
		return nil, err
	}
	return b.perServer(ctx, leases, sees, func(ctx context.Context, b *batch) error { return b.extend(ctx, sees) })
}

// extend prolongs those leases that stand, and looks what became of all. A row that another transaction holds fails no other.
func (b *batch) extend(ctx context.Context, sees func(string) bool) error {
	now := b.Store.Now(b.server)
	if now == 0 {
		return errClock
	}
	var longer []store.Prolonged
	until := map[tocsin.JobID]int64{}
	for _, l := range b.leases {
		if row := b.rows[l.id]; row != nil && l.holds(row) {
			until[l.id] = now + b.policy(row.Type).Pull.Lease.D().Milliseconds()
			longer = append(longer, store.Prolonged{JobID: l.id, Version: l.version, By: l.by, Until: until[l.id]})
		}
	}
	var failed error
	if len(longer) > 0 {
		failed = b.Store.Prolong(ctx, b.server, longer)
		if err := b.look(ctx, sees); err != nil {
			return errors.Join(failed, err)
		}
	}
	for i, l := range b.leases {
		at := b.at[i]
		switch row := b.rows[l.id]; {
		case row == nil:
		case l.holds(row) && failed != nil && row.ActionTime.UnixMilli() < until[l.id]:
			b.became[at] = Became{Err: failed}
		case l.holds(row):
			b.became[at] = Became{Result: OK, Until: row.ActionTime}
		case row.Status == tocsin.Cancelled || row.Version != l.version:
			b.became[at].Result = Unwanted
		}
	}
	return nil
}

// Settle stores how workers ended their leases. The results are in the order of what was asked; a complete may be repeated.
func (h *Hub) Settle(ctx context.Context, all []Settling, sees func(string) bool) ([]Became, error) {
	b, err := h.open()
	if err != nil {
		return nil, err
	}
	return b.settleAll(ctx, all, sees)
}

func (b *Backend) settleAll(ctx context.Context, all []Settling, sees func(string) bool) ([]Became, error) {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = s.Lease
	}
	return b.perServer(ctx, texts, sees, func(ctx context.Context, b *batch) error {
		ends, err := b.ends(all)
		if err != nil {
			return err
		}
		b.settle(ctx, ends)
		return nil
	})
}

// Release gives tasks back that did not reach their worker, however its request ended. The lease of what can't be given back runs out.
func (h *Hub) Release(ctx context.Context, tasks []Task) {
	if len(tasks) > 0 && tasks[0].from != nil { // else Reserve has not made them
		tasks[0].from.release(ctx, tasks)
	}
}

// release gives tasks back while the store is open, which is longer than the Hub.
func (b *Backend) release(ctx context.Context, tasks []Task) {
	if len(tasks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	all := make([]Settling, len(tasks))
	for i, t := range tasks {
		all[i] = Settling{Lease: t.Lease, Release: true}
	}
	_, _ = b.settleAll(ctx, all, nil)
}
