package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// sweep is one in progress. The walks of all servers count in it.
type sweep struct {
	*Sweeper
	begin  time.Time
	before map[uint64]Counts // outcomes of earlier sweeps
	claims int               // rows claimed by earlier sweeps
	rounds []sweepRound
	walks  []*sweepWalk // by server
	cause  error        // of an early end

	mu       sync.Mutex
	accounts map[uint64]*account // by biz type
	total    SweepResult         // counts that belong to no biz type
	errs     []error
	sick     map[int]symptom // of servers, by index
}

func newSweep(ctx context.Context, s *Sweeper) *sweep {
	begin := time.Now()
	s.cfg.Refresh(ctx)
	r := &sweep{
		Sweeper: s, begin: begin, before: s.cfg.Outcomes(), claims: s.cfg.Claimed(), rounds: sweepRounds(s.cfg.Policies(), s.cfg.Can, s.cfg.Grace),
		accounts: map[uint64]*account{}, sick: map[int]symptom{}, total: SweepResult{underWay: true, dry: s.cfg.Intake == nil},
	}
	for _, round := range r.rounds {
		for _, t := range round.types {
			r.accounts[t] = &account{name: round.names[t], left: round.left, reported: round.left != ""}
		}
	}
	for server := range s.cfg.Tables.Servers() {
		tables := s.cfg.Tables.TablesOf(server)
		if len(tables) > 0 { // so that sweeps that never come to their end don't always miss the same tables
			from := rand.IntN(len(tables))
			tables = slices.Concat(tables[from:], tables[:from])
		}
		r.walks = append(r.walks, newSweepWalk(r, server, tables))
	}
	return r
}

// walk walks all tables, on all servers at the same time, and waits until all entries
// that were handed over are settled.
func (r *sweep) walk(ctx context.Context) {
	for _, w := range r.walks {
		if r.cfg.Intake != nil {
			r.cfg.Intake.Set(w.tables, &duequeue.Access{})
		}
	}
	for t, n := range r.held() {
		r.accounts[t].carried = n
	}
	told, stop := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { r.tell(told) })
	telling.Go(func() { r.examine(told) })
	var making sync.WaitGroup
	making.Go(func() { r.make(ctx) })
	store.EachServer(len(r.walks), func(server int) { r.walks[server].through(ctx) })
	making.Wait()
	stop()
	telling.Wait()
}

// make makes runs of schedules that are overdue. They are swept next time, unless a node delivers them.
func (r *sweep) make(ctx context.Context) {
	if r.cfg.Intake == nil {
		return
	}
	made, err := r.cfg.Make(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.Made = made
	if err != nil && ctx.Err() == nil {
		r.errs = append(r.errs, fmt.Errorf("make overdue runs of schedules: %w", err))
	}
}

// tell logs the progress of the sweep, each minute.
func (r *sweep) tell(ctx context.Context) {
	for loop.Wait(ctx, tellEvery) == nil {
		r.cfg.Logger.Info("sweep goes on", "result", r.result().String())
	}
}

// symptom is why a server was sick, and when that was last seen.
type symptom struct {
	err  error
	seen time.Time
}

// examine looks for servers that are sick. When the sweep is cut off, so are the
// statements that would tell.
func (r *sweep) examine(ctx context.Context) {
	for loop.Wait(ctx, sickEvery) == nil {
		for server := range r.walks {
			if err := r.cfg.Sick(server); err != nil {
				r.mu.Lock()
				r.sick[server] = symptom{err, time.Now()}
				r.mu.Unlock()
			}
		}
	}
}

// blame names the servers that were sick shortly before a sweep was cut off. A claim
// whose commit hangs is given up after a while, and the next ones fail quickly: its
// rows are locked.
func (r *sweep) blame() {
	for server := range r.walks {
		if s := r.sick[server]; s.err != nil && time.Since(s.seen) < sickFor {
			r.fail(server, s.err)
		}
	}
}

// end makes the intake let go of entries that have not begun, and finds out what is
// left.
func (r *sweep) end(ctx context.Context) {
	r.cause = context.Cause(ctx)
	r.total.TimedOut = errors.Is(r.cause, errTimeout)
	r.total.Stopped = r.cause != nil && !r.total.TimedOut
	if r.cfg.Intake != nil {
		r.closeBooks()
		for _, w := range r.walks {
			r.cfg.Intake.Set(w.tables, nil)
		}
	}
	if r.cause != nil {
		r.blame()
		r.windDown(ctx)
	}
	for _, w := range r.walks {
		r.total.Unread += w.left()
	}
	for t, n := range r.held() {
		r.accounts[t].inHand = n
	}
	for _, p := range r.cfg.Policies() { // they may have changed during the sweep
		if a := r.accounts[p.Number]; a != nil && !a.reported {
			if a.left = leftOf(p, r.cfg.Can); a.left == "" && r.away(p.Number) {
				a.left = leftAway
			}
		}
	}
	r.total.underWay = false
}

// away reports whether a type's target went away during the sweep, so that what was not begun is left.
func (r *sweep) away(bizType uint64) bool {
	for server, w := range r.walks {
		if slices.ContainsFunc(w.lines, func(l *line) bool { return l.given && slices.Contains(l.types, bizType) }) {
			return true
		}
		if r.cfg.Intake != nil {
			if _, _, open := r.cfg.Intake.Lane(server, bizType); !open {
				return true
			}
		}
	}
	return false
}

// windDown gives deliveries in hand a second, and meanwhile counts the tasks that are
// left.
func (r *sweep) windDown(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	counting, stop := context.WithTimeout(ctx, r.counting)
	defer stop()
	late, cancel := context.WithTimeout(ctx, windDown)
	defer cancel()
	store.EachServer(len(r.walks), func(server int) {
		r.walks[server].count(counting)
		_ = r.walks[server].settled(late) // deliveries that take longer stay in hand
	})
}

// closeBooks finds out how many tasks went elsewhere. Tasks that are dropped later
// don't count as such.
func (r *sweep) closeBooks() {
	waiting := map[uint64]int{}
	for _, w := range r.walks {
		for _, l := range w.lines {
			for _, e := range l.hand {
				waiting[e.Type]++
			}
			if l.given {
				waiting[l.types[0]] += l.rest
			}
		}
	}
	held := r.held() // read before the outcomes: a task is let go after its outcome was reported
	out := r.outcomes()
	for t, a := range r.accounts {
		if a.reported {
			continue
		}
		a.elsewhere = max(a.carried+a.found-waiting[t]-held[t]-out[t].total(), 0)
	}
}

// held returns how many tasks the intake holds by biz type, over all servers.
func (r *sweep) held() map[uint64]int {
	all := map[uint64]int{}
	for server := range r.walks {
		for t := range r.accounts {
			if r.cfg.Intake != nil {
				n, _, _ := r.cfg.Intake.Lane(server, t)
				all[t] += n
			}
		}
	}
	return all
}

// outcomes returns the outcomes since the sweep began, by biz type.
func (r *sweep) outcomes() map[uint64]Counts {
	since := map[uint64]Counts{}
	for t, all := range r.cfg.Outcomes() {
		since[t] = all.minus(r.before[t])
	}
	return since
}

// result returns the result so far.
func (r *sweep) result() SweepResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := r.total
	result.Failed = append([]string{}, r.total.Failed...)
	result.accounts = make(map[uint64]account, len(r.accounts))
	for t, a := range r.accounts {
		result.accounts[t] = *a
	}
	result.Claimed = r.cfg.Claimed() - r.claims
	result.Took = time.Since(r.begin)
	return result.with(r.outcomes())
}

// found counts overdue entries.
func (r *sweep) found(entries []duequeue.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		r.accounts[e.Type].found++
	}
}

func (r *sweep) add(count func(*SweepResult)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count(&r.total)
}

// fail records an error on a server.
func (r *sweep) fail(server int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name := r.cfg.Tables.Servers()[server]; !slices.Contains(r.total.Failed, name) {
		r.total.Failed = append(r.total.Failed, name)
	}
	r.errs = append(r.errs, fmt.Errorf("sweep server %s: %w", r.cfg.Tables.Servers()[server], err))
}

// failure returns the error of the sweep.
func (r *sweep) failure() error {
	if r.total.Stopped {
		r.errs = append(r.errs, fmt.Errorf("sweep stopped before its end: %w", r.cause))
	}
	return store.Join(r.errs...)
}

// sweepRound is one peek of every table: types that share a grace time and a fate.
type sweepRound struct {
	grace time.Duration
	left  string // why its tasks stay: "" they are delivered
	types []uint64
	names map[uint64]string
}

// Why a type's tasks are left where they are.
const (
	leftPaused   = "paused"
	leftForeign  = "no handler here"
	leftTimedOut = "no time left"
	leftStopped  = "stopped"
	leftFailed   = "server failed"
	leftNewer    = "newer payload"
	leftAway     = "target away"
)

// sweepRounds groups the biz types so that each table is peeked as few times as
// their grace times allow.
func sweepRounds(policies []biztype.Policy, can func(biztype.Policy) bool, grace time.Duration) []sweepRound {
	type key struct {
		grace time.Duration
		left  string
	}
	groups := make(map[key]*sweepRound)
	for _, p := range policies {
		k := key{biztype.SweptAfter(p, grace), leftOf(p, can)}
		if groups[k] == nil {
			groups[k] = &sweepRound{grace: k.grace, left: k.left, names: map[uint64]string{}}
		}
		groups[k].types = append(groups[k].types, p.Number)
		groups[k].names[p.Number] = p.Name
	}
	var all []sweepRound
	for _, r := range groups {
		slices.Sort(r.types)
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b sweepRound) int { return cmp.Compare(a.types[0], b.types[0]) })
	return all
}

func leftOf(p biztype.Policy, can func(biztype.Policy) bool) string {
	switch {
	case p.Paused:
		return leftPaused
	case !can(p):
		return leftForeign
	}
	return ""
}
