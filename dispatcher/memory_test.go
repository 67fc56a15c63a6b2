package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// memory keeps rows for tests of timing in a synctest bubble, where no real
// server can be. Its conditions are those of the write table.
type memory struct {
	mu       sync.Mutex
	rows     map[tocsin.JobID]*store.Row
	claims   int
	settles  int
	rechecks int
	jumped   atomic.Int64                                     // Unix µs
	moved    atomic.Bool                                      // the server's clock is not known
	skew     atomic.Int64                                     // ms that Now is ahead of the server's clock
	failing  func(statement string, ids []tocsin.JobID) error // asked before each statement; nil: all is well
	fates    map[store.Fate]int
	settled  []store.Outcome
	owner    store.Fence // whom the owner rows name

	sessions []*sessions       // of the processes that claim under them
	asked    []store.RowsClaim // all that were sent
	crowded  []tocsin.JobID    // of which the next claim says so
	releases int               // of claims without an answer
	kills    int
}

func (m *memory) Jumped() time.Time { return time.UnixMicro(m.jumped.Load()) }

func (m *memory) Now(int) int64 { return m.NowMicro(0) / 1000 }

func (m *memory) NowMicro(int) int64 {
	if m.moved.Load() {
		return 0
	}
	return time.Now().UnixMicro() + 1000*m.skew.Load()
}

// lockWait is how long a claim waits for a lock.
const lockWait = 5 * time.Second

// errLost is of the class Lost.
var errLost = fmt.Errorf("no answer: %w", io.EOF)

func (m *memory) fault(statement string, ids []tocsin.JobID) error {
	if m.failing == nil {
		return nil
	}
	return m.failing(statement, ids)
}

func (m *memory) fail(f func(statement string, ids []tocsin.JobID) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = f
}

// failOn lets each statement of the kind fail from now on, and those of other kinds succeed.
func (r *rig) failOn(statement string, err error) {
	r.store.fail(func(s string, _ []tocsin.JobID) error {
		if s == statement {
			return err
		}
		return nil
	})
}

func idsOf[T any](items []T, id func(T) tocsin.JobID) []tocsin.JobID {
	ids := make([]tocsin.JobID, len(items))
	for i, item := range items {
		ids[i] = id(item)
	}
	return ids
}

func (m *memory) Load(_ context.Context, _ int, ids []tocsin.JobID) (store.Loaded, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault("load", ids); err != nil {
		return store.Loaded{}, err
	}
	loaded := store.Loaded{Now: time.Now().UnixMilli()}
	for _, id := range ids {
		if row := m.rows[id]; row != nil && row.Status == tocsin.Pending {
			loaded.Rows = append(loaded.Rows, *row)
		}
	}
	return loaded, nil
}

func (m *memory) Claim(ctx context.Context, c store.Claim) ([]store.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault("claim", idsOf(c.Rows, func(e duequeue.Entry) tocsin.JobID { return e.JobID })); err != nil {
		if errors.Is(err, mysql.ErrLocked) && !c.NoWait { // the claim waits for the lock
			m.mu.Unlock()
			time.Sleep(lockWait)
			m.mu.Lock()
		}
		return nil, err
	}
	var got []store.Row
	if c.Fence != nil && *c.Fence != m.owner {
		return nil, nil
	}
	for _, e := range c.Rows {
		row := m.rows[e.JobID]
		if row == nil || row.Status != tocsin.Pending || row.Action != e.Due || e.Due > time.Now().UnixMilli() || c.PerKey > 0 && m.before(row) >= c.PerKey {
			continue
		}
		row.Status, row.ClaimedBy = tocsin.Claimed, c.By
		row.ActionTime = time.Now().Add(c.Hold)
		row.Action = row.ActionTime.UnixMilli()
		got = append(got, *row)
		m.claims++
	}
	if err := errors.Join(ctx.Err(), m.fault("commit", idsOfRows(got))); err != nil && len(got) > 0 { // the rows are claimed, but the caller does not learn of it
		return nil, &store.InDoubt{By: c.By, Deadline: got[0].Action, IDs: idsOfRows(got), Err: err}
	}
	return got, nil
}

// before counts the rows of a row's key that are claimed or go before it.
func (m *memory) before(row *store.Row) (n int) {
	for _, r := range m.rows {
		first := r.Action < row.Action || r.Action == row.Action && r.JobID < row.JobID
		if r.Type == row.Type && r.BizID == row.BizID && (r.Status == tocsin.Claimed || r.Status == tocsin.Pending && first) {
			n++
		}
	}
	return n
}

func (m *memory) Turns(_ context.Context, q store.TurnQuery) (map[store.Key]store.Turn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault("turn", nil); err != nil {
		return nil, err
	}
	turns := make(map[store.Key]store.Turn)
	for _, row := range m.rows {
		k := store.Key{Table: row.JobID.Table(), BizID: row.BizID}
		if row.Type != q.Type || !slices.Contains(q.Keys, k) {
			continue
		}
		switch t := turns[k]; {
		case row.Status == tocsin.Claimed:
			t.Claimed = append(t.Claimed, row.JobID)
			turns[k] = t
		case row.Status == tocsin.Pending && row.Action <= q.Until && m.before(row) < q.PerKey:
			t.Next = append(t.Next, duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.Action})
			turns[k] = t
		}
	}
	return turns, nil
}

func idsOfRows(rows []store.Row) []tocsin.JobID {
	return idsOf(rows, func(r store.Row) tocsin.JobID { return r.JobID })
}

func (m *memory) ReadBack(ctx context.Context, d *store.InDoubt) ([]store.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(ctx.Err(), m.fault("read_back", d.IDs)); err != nil {
		return nil, err
	}
	var claimed []store.Row
	for _, id := range d.IDs {
		if row := m.rows[id]; row.Status == tocsin.Claimed && row.ClaimedBy == d.By && row.Action == d.Deadline {
			claimed = append(claimed, *row)
		}
	}
	return claimed, nil
}

func (m *memory) Recheck(_ context.Context, _ int, seen map[tocsin.JobID]store.Seen) (map[tocsin.JobID]store.Fate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rechecks++
	if err := m.fault("recheck", slices.Collect(maps.Keys(seen))); err != nil {
		return nil, err
	}
	fates := make(map[tocsin.JobID]store.Fate)
	for id, was := range seen {
		switch row := m.rows[id]; {
		case row.Status == tocsin.Cancelled:
			fates[id] = store.Cancelled
		case row.Version != was.Version:
			fates[id] = store.Rescheduled
		}
	}
	return fates, nil
}

// Prolong moves the deadlines of claims that stand.
func (m *memory) Prolong(_ context.Context, _ int, claims []store.Prolonged) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range claims {
		if err := m.fault("prolong", []tocsin.JobID{c.JobID}); err != nil {
			return err
		}
		if row := m.rows[c.JobID]; row.Status == tocsin.Claimed && row.Version == c.Version && row.ClaimedBy == c.By {
			row.Action = max(row.Action, c.Until)
		}
	}
	return nil
}

func (m *memory) Settle(_ context.Context, _ int, outcomes []store.Outcome) ([]store.Fate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault("settle", idsOf(outcomes, func(o store.Outcome) tocsin.JobID { return o.JobID })); err != nil {
		return nil, err
	}
	m.settles++
	m.settled = append(m.settled, outcomes...)
	fates := make([]store.Fate, len(outcomes))
	for i, o := range outcomes {
		fates[i] = m.settle(o)
		m.fates[fates[i]]++
	}
	return fates, nil
}

func (m *memory) Locked(context.Context, int, []tocsin.JobID) (store.Locks, error) {
	return store.Locks{}, nil
}

func (m *memory) settle(o store.Outcome) store.Fate {
	row := m.rows[o.JobID]
	want := tocsin.Pending
	if o.Claimed {
		want = tocsin.Claimed
	}
	switch {
	case row == nil:
		return store.Gone
	case row.Status == tocsin.Cancelled:
		return store.Cancelled
	case row.Version != o.Version:
		return store.Rescheduled
	case row.Status == tocsin.Done && row.ClaimedBy == client.CompletedInTx:
		return store.InTx
	case o.Verb == tocsin.Completed && row.Status != tocsin.Done:
	case row.Status.Final() || row.Attempts != o.Attempts:
		return store.Settled
	case o.Token && row.Status == tocsin.Claimed && row.ClaimedBy == o.By:
	case o.Token:
		return store.ClaimLost
	case row.Status != want || row.Action != o.Action && !(o.Prolonged && row.Action > o.Action):
		return store.ClaimLost
	}
	m.apply(row, o)
	return store.Stored
}

func (m *memory) apply(row *store.Row, o store.Outcome) {
	switch o.Verb {
	case tocsin.Completed:
		row.Status, row.Action = tocsin.Done, time.Now().UnixMilli()
	case tocsin.Retried:
		row.Status, row.Action, row.LastError = tocsin.Pending, o.Next, o.Reason
		row.Attempts++
	case tocsin.Snoozed:
		row.Status, row.Action, row.LastError = tocsin.Pending, o.Next, cmp.Or(o.Reason, row.LastError)
	case tocsin.Buried:
		row.Status, row.LastError = tocsin.Dead, o.Reason
		row.Attempts++
	case tocsin.Skipped:
		row.Status, row.LastError = tocsin.Cancelled, o.Reason
	}
	row.ActionTime = time.UnixMilli(row.Action).UTC()
	if row.ClaimedBy = ""; o.Token && !o.Back {
		row.Crashes = 0
	}
}

// counts gives how many rows were claimed, and settled with the fate.
func (m *memory) counts(f store.Fate) (claims, settled int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claims, m.fates[f]
}

// row gives a copy.
func (m *memory) row(id tocsin.JobID) store.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.rows[id]
}

// reschedule puts a task off, as a client does.
func (m *memory) reschedule(id tocsin.JobID, at time.Time) {
	m.change(id, func(row *store.Row) {
		row.Status, row.ClaimedBy, row.Version, row.Action = tocsin.Pending, "", row.Version+1, at.UnixMilli()
	})
}

func (m *memory) change(id tocsin.JobID, f func(*store.Row)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.rows[id])
}

// rig is a running dispatcher over memory, with one server unless its Config says otherwise.
type rig struct {
	*Dispatcher
	t        *testing.T
	store    *memory
	sessions *sessions // nil: rows start as the owners of their tables have them
	registry *prometheus.Registry
	seq      int
	stop     context.CancelFunc
	ended    chan error
}

const rigTables = 4

// eachWay runs a test twice: as rows start that the owner of their table has, and as they do that are claimed under sessions.
func eachWay(t *testing.T, test func(*testing.T)) {
	t.Run("owned", test)
	t.Run(claimed[1:], test)
}

// claimed is in the name of a test whose rig claims rows under sessions.
const claimed = "/claimed"

// underSessions has the rig claim rows under sessions.
func (r *rig) underSessions(cfg *Config) {
	r.sessions = newSessions()
	r.store.sessions = []*sessions{r.sessions}
	cfg.Sessions, cfg.DatabaseOf = r.sessions, func(table int) int { return table }
}

// handler is a Sink of single tasks.
type handler func(context.Context, tocsin.Info) error

// Deliver calls the handler for each task.
func (h handler) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	errs := make([]error, len(tasks))
	for i, task := range tasks {
		errs[i] = h(ctx, task)
	}
	return errs
}

// succeeds is a delivery that takes no time.
func succeeds(context.Context, tocsin.Info) error { return nil }

// inBubble runs f with a dispatcher of one biz type, in a bubble of its own time.
func inBubble(t *testing.T, p biztype.Policy, target handler, f func(*rig)) {
	t.Helper()
	inBubbleWith(t, p, target, nil, f)
}

// inBubbleWith is inBubble for a Config that differs.
func inBubbleWith(t *testing.T, p biztype.Policy, target Sink, adapt func(*Config), f func(*rig)) {
	t.Helper()
	inBubbleOf(t, []biztype.Policy{p}, map[string]Sink{p.Name: target}, adapt, f)
}

// inBubbleOf is inBubbleWith for biz types whose targets are in sinks, by name. Where there are none, f sets them.
func inBubbleOf(t *testing.T, policies []biztype.Policy, sinks map[string]Sink, adapt func(*Config), f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sinks, adapt)
		if policies != nil {
			r.SetPolicies(policies)
		}
		r.run()
		f(r)
		r.finish()
	})
}

// onServers puts table n on server n % servers.
func onServers(servers int) func(*Config) {
	return func(c *Config) {
		c.Servers, c.ServerOf = servers, func(table int) int { return table % servers }
	}
}

// inBatches delivers to a target that takes several tasks at once.
func inBatches(sink Sink, size int) func(*Config) {
	return func(c *Config) {
		c.Target = func(biztype.Policy) (Target, bool) { return Target{Sink: sink, Batch: size}, true }
	}
}

// pass lets d go by, and waits until all that happens at its end has happened: a timer of the dispatcher may fire at the very
// moment at which the test reads.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newRig(t *testing.T, sinks map[string]Sink, adapt func(*Config)) *rig {
	r := &rig{t: t, store: &memory{rows: make(map[tocsin.JobID]*store.Row), fates: make(map[store.Fate]int)}, registry: prometheus.NewRegistry()}
	cfg := Config{
		Store:      r.store,
		Registerer: r.registry,
		Node:       "node-1",
		Target: func(p biztype.Policy) (Target, bool) {
			sink, ok := sinks[p.Name]
			return Target{Sink: sink}, ok
		},
	}
	onServers(1)(&cfg)
	if strings.Contains(t.Name(), claimed) {
		r.underSessions(&cfg)
	}
	if adapt != nil {
		adapt(&cfg)
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Dispatcher = d
	r.Set([]int{0, 1, 2, 3}, &duequeue.Access{Owner: "me"})
	return r
}

func (r *rig) run() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.ended = stop, make(chan error, 1)
	go func() { r.ended <- r.Run(ctx) }()
}

// finish ends Run and fails the test if it does not end well.
func (r *rig) finish() {
	r.t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		r.t.Errorf("run: %v", err)
	}
}

// add stores a pending row that is due in d, and offers it.
func (r *rig) add(table int, kind uint64, d time.Duration) tocsin.JobID {
	r.t.Helper()
	id := r.insert(table, kind, d)
	r.offer(id)
	return id
}

func (r *rig) insert(table int, kind uint64, d time.Duration) tocsin.JobID {
	r.seq++
	id := tocsin.JobID(1<<40 | table<<9 | r.seq<<22)
	due := time.Now().Add(d).UTC().Truncate(time.Millisecond)
	info := tocsin.Info{JobID: id, BizID: uint64(r.seq), ActionTime: due, DueTime: due, Payload: "payload"}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.rows[id] = &store.Row{Info: info, Type: kind, Action: due.UnixMilli()}
	return id
}

func (r *rig) offer(id tocsin.JobID) {
	row := r.store.row(id)
	server := r.cfg.ServerOf(id.Table())
	if refused := r.Offer(server, []duequeue.Entry{{JobID: id, Type: row.Type, Due: row.Action}}); refused != nil {
		r.t.Errorf("offer of %s was refused", id)
	}
}

func (r *rig) status(id tocsin.JobID, want tocsin.Status) {
	r.t.Helper()
	if got := r.store.row(id).Status; got != want {
		r.t.Errorf("%s is %s, want %s", id, got, want)
	}
}

// policy is one with a short time-out.
func policy(name string, number uint64) biztype.Policy {
	return biztype.Policy{
		Name:    name,
		Number:  number,
		Timeout: biztype.Duration(2 * time.Second),
		Ladder:  []biztype.Duration{biztype.Duration(3 * time.Second)},
	}
}
