package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

const (
	fenceTimeout = 2 * time.Second // for one server's owner rows: a slow server must not hold up the others
	resumeEvery  = 2 * time.Second // between tries to take up tables whose fence failed
)

// intake is the dispatcher's side of ownership.
type intake interface {
	Drain(ctx context.Context, tables []int) error
	Loosen(ctx context.Context, owner string) error
}

// scan is the scanner's side of ownership. It passes an access on to the dispatcher.
type scan interface {
	Set(tables []int, as *duequeue.Access)
}

// holder carries out the decisions of the assignment: a table is taken in the order
// fence, intake, scan, and given up in the reverse.
//
// Tables of a database that can't be used when they are taken, or that turns wrong
// later, are parked: they stay held, and no work is done on them until the database
// can be used. Meanwhile nodes that can use it get them, since the assignment knows
// what this node misses. Tables whose fence fails for another reason are refused.
// Tables of a server that moved to another address are parked until they are fenced there.
//
// Beside these it has the tables of other owners that it stands in for: see standIns.
type holder struct {
	store      *store.Store
	intake     intake
	scan       scan
	group      string
	node       func() string         // id of the present incarnation
	refuse     func(*assign.Refused) // has the assignment give back tables that were taken
	databaseOf func(table int) int
	log        *slog.Logger
	limit      loop.LogLimit
	changed    chan struct{} // 1 slot: use was called

	mu       sync.Mutex   // held while tables are handed to intake and scan
	held     map[int]hold // by table
	parked   map[int]bool // the subset of held on which no work is done
	unusable []int        // databases
	standIns standIns
}

// hold is how a table is held: since an etcd revision, under an id of the node.
type hold struct {
	revision int64
	by       string
}

func newHolder(group string, databaseOf func(table int) int, log *slog.Logger) *holder {
	return &holder{
		group: group, databaseOf: databaseOf, log: log, changed: make(chan struct{}, 1),
		held: make(map[int]hold), parked: make(map[int]bool),
	}
}

// Take fences the tables, all servers at once, and starts work on those that
// could be. The error, if any, is *assign.Refused.
func (h *holder) Take(ctx context.Context, revisions map[int]int64) error {
	var mu sync.Mutex
	var refused *assign.Refused
	var wg sync.WaitGroup
	for server, part := range h.byServer(h.park(revisions)) {
		wg.Go(func() {
			failed, err := h.take(ctx, server, part)
			if err == nil {
				return
			}
			h.forget(failed)
			mu.Lock()
			defer mu.Unlock()
			if refused == nil {
				refused = &assign.Refused{Err: fmt.Errorf("write owner rows: %w", err)}
			}
			refused.Tables = append(refused.Tables, failed...)
		})
	}
	wg.Wait()
	if refused == nil {
		return nil // not a nil *Refused in an error
	}
	return refused
}

// has reports whether the node holds a table.
func (h *holder) has(table int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, held := h.held[table]
	return held
}

// forget lets go of tables on which no work has begun.
func (h *holder) forget(tables []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.letGo(tables)
}

// letGo is called under mu.
func (h *holder) letGo(tables []int) {
	for _, table := range tables {
		delete(h.held, table)
		delete(h.parked, table)
	}
}

// park holds the tables, and returns those that can be worked on.
func (h *holder) park(revisions map[int]int64) map[int]int64 {
	by := h.node()
	h.mu.Lock()
	defer h.mu.Unlock()
	usable := make(map[int]int64, len(revisions))
	for table, revision := range revisions {
		h.held[table] = hold{revision, by}
		if h.lacks(table) {
			h.parked[table] = true
		} else {
			usable[table] = revision
		}
	}
	return usable
}

// take starts work on tables of one server, and returns those whose fence failed.
func (h *holder) take(ctx context.Context, server int, revisions map[int]int64) (failed []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	owner, term := h.node(), h.store.Term(server)
	err = h.store.Own(ctx, h.group, owner, revisions)
	var some *store.Unowned
	isSome := errors.As(err, &some)
	var tables []int
	for _, table := range slices.Sorted(maps.Keys(revisions)) {
		if err != nil && (!isSome || some.Failed[h.databaseOf(table)] != nil || some.Overtaken[table] != 0) {
			failed = append(failed, table)
		} else {
			tables = append(tables, table)
		}
	}
	h.begin(owner, tables, func() bool { return h.store.Term(server) != term })
	if isSome && len(some.Overtaken) > 0 {
		table := some.Highest()
		err = &assign.Overtaken{Table: table, Revision: some.Overtaken[table], Err: err}
	}
	return failed, err
}

// begin hands fenced tables to intake and scan, except those that are no longer held
// or whose database can no longer be used. If their server has moved, all are parked.
func (h *holder) begin(owner string, tables []int, moved func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var begun []int
	late := moved()
	for _, table := range tables {
		if _, held := h.held[table]; !held {
			continue
		}
		if h.parked[table] = late || h.lacks(table); !h.parked[table] {
			delete(h.parked, table)
			begun = append(begun, table)
		}
	}
	h.standIns.forget(begun)
	h.scan.Set(begun, &duequeue.Access{Owner: owner, Unclean: true}) // the last owner may have died with tasks in hand
}

func (h *holder) byServer(revisions map[int]int64) map[int]map[int]int64 {
	parts := make(map[int]map[int]int64)
	for table, revision := range revisions {
		server := h.store.ServerOf(table)
		if parts[server] == nil {
			parts[server] = make(map[int]int64)
		}
		parts[server][table] = revision
	}
	return parts
}

// use sets which databases can't be used, and which of these are wrong. Work on the
// tables of the wrong ones stops at once. Work on tables of a server that does not
// answer keeps waiting for it.
func (h *holder) use(unusable, wrong []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unusable = unusable
	h.stop(func(table int) bool { return slices.Contains(wrong, h.databaseOf(table)) })
}

// lacks reports whether the database of a table can't be used. Called under mu.
func (h *holder) lacks(table int) bool { return slices.Contains(h.unusable, h.databaseOf(table)) }

// fenceAnew stops work on the tables of a server until their owner rows are written again.
func (h *holder) fenceAnew(server int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stop(func(table int) bool { return h.store.ServerOf(table) == server })
}

// stop parks some of the tables, and has resume look at all parked ones. Called under the lock.
func (h *holder) stop(some func(table int) bool) {
	var stopped []int
	for table := range h.held {
		if some(table) && !h.parked[table] {
			h.parked[table] = true
			stopped = append(stopped, table)
		}
	}
	if len(stopped) > 0 {
		slices.Sort(stopped)
		h.scan.Set(stopped, nil)
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// run resumes parked tables once their database can be used, until ctx ends.
func (h *holder) run(ctx context.Context) {
	tick := time.NewTicker(resumeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.changed:
		case <-tick.C:
		}
		h.resume(ctx)
	}
}

// resume fences parked tables again and begins them, on all servers at once. Tables
// whose fence fails stay parked; those whose owner row is ahead are refused.
func (h *holder) resume(ctx context.Context) {
	var wg sync.WaitGroup
	for server, part := range h.byServer(h.resumable()) {
		wg.Go(func() {
			_, err := h.take(ctx, server, part)
			if err == nil || ctx.Err() != nil {
				return
			}
			h.limit.Of(h.log, fmt.Sprint("resume ", server)).Warn("tables can't be taken up again yet: their owner rows can't be written",
				"error", err)
			var late *store.Unowned
			if errors.As(err, &late) && len(late.Overtaken) > 0 {
				h.refuse(&assign.Refused{Tables: slices.Sorted(maps.Keys(late.Overtaken)), Err: err})
			}
		})
	}
	wg.Wait()
}

// resumable returns the parked tables whose database can be used. Those that were taken under an id that the node had before wait until
// they are taken again, or dropped: others may have them.
func (h *holder) resumable() map[int]int64 {
	by := h.node()
	h.mu.Lock()
	defer h.mu.Unlock()
	some := make(map[int]int64)
	for table := range h.parked {
		if is := h.held[table]; is.by == by && !h.lacks(table) {
			some[table] = is.revision
		}
	}
	return some
}

// Loosen claims what is in delivery: the owner's lease can't be proven any more.
func (h *holder) Loosen(ctx context.Context, owner string) error { return h.intake.Loosen(ctx, owner) }

// Drop ends work on tables; it returns when their keys may be deleted. An error
// is *assign.Refused: the outcomes of some tables can't be stored just now.
func (h *holder) Drop(ctx context.Context, tables []int) error {
	h.mu.Lock() // or a stand-in in one of them, begun from now on, would be ended too
	h.letGo(tables)
	h.scan.Set(slices.DeleteFunc(slices.Clone(tables), func(table int) bool { return h.standIns.held[table] != nil }), nil) // the last Drop may not have drained all
	h.mu.Unlock()
	err := h.intake.Drain(ctx, tables)
	var stuck *dispatcher.Undrained
	if errors.As(err, &stuck) {
		return &assign.Refused{Tables: stuck.Tables, Err: err}
	}
	return err
}

// runFailovers handles moves of servers to other addresses, until ctx ends. A replica that was promoted may lack
// the last writes of the primary: owner rows may name former owners again. So between a move and
// a new fence nothing is started on ownership:
//
//	move: the store's clock stops --> tables parked --> clock goes on --> owner rows written --> tables taken up
//
// Overdue rows of these tables are claimed first, as after a crash of an owner.
func (h *holder) runFailovers(ctx context.Context) {
	var servers sync.WaitGroup
	for server := range h.store.Servers() {
		if h.store.Moved(server) != nil {
			servers.Go(func() { h.followMoves(ctx, server) })
		}
	}
	servers.Wait()
}

func (h *holder) followMoves(ctx context.Context, server int) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.store.Moved(server):
		}
		term := h.store.Term(server)
		h.fenceAnew(server)
		h.store.Resume(server, term)
		timed, cancel := context.WithTimeout(ctx, time.Second)
		_, _ = h.store.Measure(timed, server) // makes rows due again soon; else the next load or survey reads the clock
		cancel()
	}
}
