package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

const (
	claimAhead = 20 * time.Millisecond  // rows that are due within this are claimed with those that are due, and held until then
	claimLead  = 15 * time.Millisecond  // how long before a row is due its claim is sent: a commit, and Go's timers
	setBack    = time.Second            // a held row whose time is so far ahead goes back: the server's clock was set back
	noSession  = 100 * time.Millisecond // until rows of a database without a trusted session are claimed again
	newerAgain = time.Minute            // until a row whose payload is newer than its target reads is claimed again
)

var errNoSession = errors.New("no session is trusted in the database: nothing is claimed there")

// claiming is a claim of entries that go by the same rules.
type claiming struct {
	server  *server
	lane    *lane // of all entries; nil: of several, without rules of their own
	entries []duequeue.Entry
	special map[tocsin.JobID]*task // the rows of the entries, that an ordinary claim has refused; nil: it is an ordinary claim
}

// claimDue claims the rows of a batch that are due, or nearly so, and makes them ready, or holds them. It reports whether all tables
// could be written.
func (s *server) claimDue(ctx context.Context, batch []duequeue.Entry) bool {
	by := make(map[*lane][]duequeue.Entry)
	s.mu.Lock()
	for _, e := range batch {
		l := s.lanes[e.Type]
		if r := l.kind.rule.Load(); r.ahead() && r.version == 0 {
			l = nil
		}
		by[l] = append(by[l], e)
	}
	s.mu.Unlock()
	ok := true
	for l, entries := range by {
		c := claiming{server: s, lane: l, entries: entries}
		ok = c.run(ctx) && ok
	}
	return ok
}

// run claims. While the server can't be reached it tries again, until ctx ends. A claim that was sent and got no answer may
// stand: see lostClaim. So a claim under way is not cut off by the end of ctx, but by that of the drain time-out.
func (c *claiming) run(ctx context.Context) bool {
	s := c.server
	draining, end := s.d.whileDraining()
	defer end()
	var asked time.Time
	var lost *store.Unanswered
	var request store.RowsClaim
	got, err := persist(ctx, s, "claim", mysql.Class.Transient, func() (store.ClaimedRows, error) {
		asked = time.Now()
		request = c.request()
		got, err := s.d.cfg.Store.ClaimRows(draining, request)
		if errors.As(err, &lost) {
			s.d.metrics.failed("claim", err)
			err = nil
		}
		return got, err
	})
	if err != nil {
		c.release()
		s.hold(c.entries, err)
		return false
	}
	if lost != nil {
		s.noteLost(lost, request)
	}
	c.sort(request, got, lost, asked)
	return len(got.Failed) == 0 && lost == nil
}

// request is the claim, under the sessions that are trusted now. Rows of a database without one are left out.
func (c *claiming) request() store.RowsClaim {
	s := c.server
	r := store.RowsClaim{
		Server: s.index, Number: s.d.claimNo.Add(1), Special: c.special != nil, NoWait: time.Now().UnixNano() < s.wary.Load(),
		Session: make(map[int]string), Rows: make([]duequeue.Entry, 0, len(c.entries)),
	}
	ahead := true
	if c.lane != nil {
		rule := c.lane.kind.rule.Load()
		if r.PerKey = rule.policy.PerKey; rule.pulled() {
			r.Lease, r.Hold = store.NewLease(s.estimate()), rule.hold()
		}
		if ahead = rule.ahead(); c.special == nil {
			r.Newest = rule.version
		}
	}
	s.mu.Lock()
	if ahead && !s.unsure(time.Now()) {
		r.Ahead = claimAhead
	}
	s.mu.Unlock()
	for _, e := range c.entries {
		database := s.d.cfg.DatabaseOf(e.JobID.Table())
		id, known := r.Session[database]
		if !known {
			if trusted, ok := s.d.cfg.Sessions.Session(database); ok {
				id = trusted
			}
			r.Session[database] = id
		}
		if id != "" {
			r.Rows = append(r.Rows, e)
		}
	}
	return r
}

// claimAnswer is a claim's answer, and where its rows go.
type claimAnswer struct {
	store.ClaimedRows
	request store.RowsClaim
	asked   time.Time
	at      time.Time
	now     int64   // the server's clock, in ms
	ready   []*task // claimed
	back    []*task // claimed, and given back
	look    []*task // refused, as they are special
}

// sort decides on each entry of a claim.
func (c *claiming) sort(request store.RowsClaim, got store.ClaimedRows, lost *store.Unanswered, asked time.Time) {
	s := c.server
	a := &claimAnswer{ClaimedRows: got, request: request, asked: asked, at: time.Now(), now: cmp.Or(got.Now, s.now())}
	claimed, refused := byID(got.Rows), byID(got.Refused)
	s.mu.Lock()
	if c.special == nil {
		s.leaveRoom(c.entries)
	}
	s.compareClocks(got.Now, a.at.Sub(asked), a.at)
	for table, err := range got.Failed {
		s.d.metrics.failed("claim", err)
		s.known(table).avoidUntil = a.at.Add(avoidFor) // then one row of it is tried: see sift
	}
	for _, e := range c.entries {
		switch database := s.d.cfg.DatabaseOf(e.JobID.Table()); {
		case claimed[e.JobID] != nil:
			c.claimed(a, e, claimed[e.JobID])
		case lost != nil && slices.Contains(lost.IDs, e.JobID): // it is queued again when it is released
			c.forget(e)
		case got.Failed[e.JobID.Table()] != nil:
			c.later(e, a.now+ceilMilli(avoidFor))
		case request.Session[database] == "":
			c.later(e, a.now+ceilMilli(noSession))
		case refused[e.JobID] != nil:
			c.refused(a, e, refused[e.JobID])
		default:
			s.d.metrics.droppedGone.Inc()
			c.forget(e)
		}
	}
	s.mu.Unlock()
	c.pass(a)
}

func byID(rows []store.Row) map[tocsin.JobID]*store.Row {
	m := make(map[tocsin.JobID]*store.Row, len(rows))
	for i := range rows {
		m[rows[i].JobID] = &rows[i]
	}
	return m
}

// later queues an entry again for a time. Called under s.mu.
func (c *claiming) later(e duequeue.Entry, at int64) {
	e.Due = at
	c.letGo(e)
	l := c.server.lanes[e.Type]
	l.held--
	l.queue.Requeue(e)
}

// forget lets an entry leave the queue. Called under s.mu.
func (c *claiming) forget(e duequeue.Entry) {
	c.letGo(e)
	l := c.server.lanes[e.Type]
	l.held--
	l.queue.Done(e.JobID)
}

// letGo lets go of a special task that was not claimed. Called under s.mu.
func (c *claiming) letGo(e duequeue.Entry) {
	if t := c.special[e.JobID]; t != nil {
		t.acquit()
		c.server.d.dropPayloads(t)
	}
}

// release gives back the payload room and the special tasks of a claim that was not made. Its entries stay in flight.
func (c *claiming) release() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.special == nil {
		c.server.leaveRoom(c.entries)
	}
	for _, e := range c.entries {
		c.letGo(e)
	}
}

// claimed decides on a row that is claimed. Called under s.mu.
func (c *claiming) claimed(a *claimAnswer, e duequeue.Entry, row *store.Row) {
	s, l := c.server, c.server.lanes[e.Type]
	t := c.special[e.JobID]
	if t == nil {
		t = &task{lane: l, row: row}
		t.take()
	} else { // its payload counts, and its schedule is read
		row.Schedule, row.FireTime = t.row.Schedule, t.row.FireTime
		t.row = row
	}
	t.asked, t.loaded, t.claimed = a.asked, a.at, true
	t.by, t.session = a.request.Claimer(s.d.cfg.DatabaseOf(t.table())), a.request.Lease == ""
	rule := l.kind.rule.Load()
	due := row.Action
	if !t.session { // the target gets the task's own time
		due, t.until = e.Due, a.asked.Add(a.request.Hold)
	}
	row.ActionTime = time.UnixMilli(due).UTC()
	if rule.policy.PerKey > 0 {
		st := s.stateOf(keyOf(t))
		st.held, st.vain, t.keyed = st.held+1, 0, true
	}
	o, until := s.overruns[e.JobID], int64(0)
	if o != nil {
		until = o.until(due, rule.timeout)
	}
	switch {
	case row.Type != e.Type: // a bell that was rung by hand may name a wrong one
		t.lookAgain = a.now + s.d.cfg.LookAhead.Milliseconds() + 1 // by then the scanner has found it
		a.back = append(a.back, t)
	case !s.admitted(t.table()):
		a.back = append(a.back, t)
	case l.kind.leavesNewer(row):
		t.lookAgain = a.now + ceilMilli(newerAgain)
		a.back = append(a.back, t)
	case a.now < until:
		if o.waiting.Due != due {
			s.d.metrics.waited.Inc()
		}
		t.lookAgain, o.waiting = until+claimAhead.Milliseconds(), t.entry(due) // so that its claim is not sent before
		a.back = append(a.back, t)
	case due > a.now && s.unsure(a.at):
		t.lookAgain = due + max(s.now()-a.now, 0) // by the estimate that is ahead
		a.back = append(a.back, t)
	case due > a.now:
		s.keep(t)
	default:
		a.ready = append(a.ready, t)
	}
}

// refused decides on a row that is pending and was not claimed. Called under s.mu.
func (c *claiming) refused(a *claimAnswer, e duequeue.Entry, row *store.Row) {
	s, l := c.server, c.server.lanes[e.Type]
	t := &task{lane: l, row: row, asked: a.asked, loaded: a.at}
	switch {
	case row.Type != e.Type:
		s.d.metrics.droppedGone.Inc()
		c.forget(e)
	case row.Action > a.now+s.d.cfg.LookAhead.Milliseconds():
		s.d.metrics.droppedLater.Inc()
		c.forget(e)
	case row.Action > a.now+a.request.Ahead.Milliseconds():
		s.d.metrics.early.Inc()
		c.later(e, row.Action+max(s.now()-a.now, 0)) // by the estimate that was ahead, or it spins
	case l.kind.leavesNewer(row):
		if s.d.cfg.ClaimAll { // a sweep tries no task twice
			c.forget(e)
		} else {
			c.later(e, a.now+ceilMilli(newerAgain))
		}
	case c.special == nil && (row.Crashes > 0 || a.request.Newest > 0 && row.PayloadVersion > 0 || strings.HasPrefix(row.DedupKey, "\x00")): // with the key of a run
		t.take()
		a.look = append(a.look, t)
	case a.request.PerKey > 0:
		st := s.stateOf(keyOf(t))
		st.more, st.vain = true, min(st.vain+1, vainLooks)
		if st.held == 0 {
			s.lookAt(keyOf(t), st)
		}
		s.d.metrics.droppedTurn.Inc()
		c.forget(e)
	default: // another transaction holds it
		s.wary.Store(a.at.Add(waryFor).UnixNano())
		c.later(e, a.now+ceilMilli(avoidFor))
	}
}

// pass hands the rows on.
func (c *claiming) pass(a *claimAnswer) {
	s, n := c.server, len(a.Rows)
	s.d.metrics.claimed.Add(float64(n))
	s.d.claimed.Add(int64(n))
	s.d.metrics.loaded.Add(float64(n))
	ready := make(map[*lane][]*task)
	for _, t := range a.ready {
		if slices.Contains(a.Crowded, t.row.JobID) {
			a.back = append(a.back, t)
		} else {
			ready[t.lane] = append(ready[t.lane], t)
		}
	}
	for l, tasks := range ready {
		slices.SortFunc(tasks, func(a, b *task) int { return cmp.Compare(a.row.Action, b.row.Action) })
		l.kind.put(l, s.wanted(tasks))
	}
	giveBack(a.back)
	s.lookInto(a.look, a.now)
	signal(s.wake) // for what is queued again
}

// aheadOfRate is how long rows may wait for a rate. A claimed one starts even if it is cancelled meanwhile; others would have to be loaded again.
func (d *Dispatcher) aheadOfRate() time.Duration {
	if d.claims() {
		return slowWait
	}
	return time.Second
}

// within is how long before they are due rows are taken up with others.
func (d *Dispatcher) within() time.Duration {
	if d.claims() {
		return claimAhead
	}
	return holdWithin
}

// unripeFrom is how far ahead the time of a held row is if the server's clock was set back.
func (d *Dispatcher) unripeFrom() time.Duration {
	if d.claims() {
		return setBack
	}
	return holdWithin
}
