package sweeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/store"
	"github.com/tocsinhq/tocsin/upkeep"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// fixture is a cluster with tasks and the store to sweep it with.
type fixture struct {
	cfg    tocsin.Config
	client *tocsin.Client
	store  *store.Store
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 40, Prefix: devtest.Prefix(t)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
	}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := biztype.Apply(t.Context(), cfg, types); err != nil {
		t.Fatal(err)
	}
	client, err := tocsin.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), db.Close() })
	return fixture{cfg, client, db}
}

// add stores n tasks of type a that are due now and returns their ids.
func (f fixture) add(t *testing.T, n int) map[tocsin.JobID]bool {
	t.Helper()
	return f.addOf(t, "a", n)
}

func (f fixture) addOf(t *testing.T, name string, n int) map[tocsin.JobID]bool {
	t.Helper()
	var tasks []tocsin.NewTask
	for i := range n {
		tasks = append(tasks, tocsin.Define[string](name).New(uint64(i+1), "", tocsin.In(0)))
	}
	added, err := f.client.AddMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[tocsin.JobID]bool)
	for _, a := range added {
		ids[a.JobID] = true
	}
	return ids
}

// sweeper makes a sweeper with the intake; nil means a dry sweep.
func (f fixture) sweeper(t *testing.T, in *intake) *Sweeper {
	t.Helper()
	cfg := Config{
		Tables:   f.store,
		Policies: func() []biztype.Policy { return types },
		Can:      func(p biztype.Policy) bool { return p.Name != "foreign" }, Grace: -1, Page: 2,
	}
	if in != nil {
		cfg.Intake, cfg.Outcomes = in, in.outcomes
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.counting = time.Minute
	return s
}

func TestSweepHandsOverEveryEntryOfFullPagesToAFullIntake(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.add(t, 400)
	in := newIntake(3)
	result, err := f.sweeper(t, in).Sweep(t.Context())
	if err != nil || result.Tables != 80 || result.Overdue != 400 || result.Delivered != 400 || result.Err() != nil {
		t.Errorf("%s, %v", result, err)
	}
	for id := range ids {
		if in.got[id] != 1 {
			t.Errorf("task %s was handed over %d times", id, in.got[id])
		}
	}
}

func TestATypeThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hang, quick, foreign := f.addOf(t, "hang", 600), f.addOf(t, "b", 150), f.addOf(t, "foreign", 100)
	ctx, stop := context.WithCancel(t.Context())
	in := newIntake(10)
	in.hangs[2] = true
	in.settled = func(n int) {
		if n == len(quick) {
			stop() // otherwise the sweep would go on for ever
		}
	}
	result, err := f.sweeper(t, in).Sweep(ctx)
	if !errors.Is(err, context.Canceled) || !result.Stopped || result.TimedOut || len(result.Failed) != 0 {
		t.Errorf("%s, %v", result, err)
	}
	if result.Delivered != len(quick) || result.InDelivery != 4 {
		t.Errorf("%s: want all of type b delivered, and four in delivery", result)
	}
	want := map[string]int{"hang (stopped)": len(hang) - 4, "foreign (no handler here)": len(foreign)}
	if !maps.Equal(result.Left, want) || result.CutOff != len(hang)-4 || result.Elsewhere != 0 || result.Unread != 0 {
		t.Errorf("%s\nwant %v", result, want)
	}
	if most := in.most[2]; most > 10 {
		t.Errorf("the intake held %d of the type that hangs", most)
	}
	ended := result.Settled(map[uint64]Counts{2: {Retried: 1}, 3: {Delivered: len(quick)}})
	if ended.InDelivery != 0 || ended.Left["hang (stopped)"] != len(hang)-1 || ended.Retried != 1 {
		t.Errorf("%s: one of the four timed out, three were cut off", ended)
	}
	if err := ended.Err(); err == nil || err.Error() != "overdue tasks are left: foreign (no handler here): 100, hang (stopped): 599" {
		t.Error(err)
	}
}

func TestASweepWhoseTimeIsOverSaysWhatItLeft(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hang := f.addOf(t, "hang", 300)
	in := newIntake(10)
	in.hangs[2] = true
	s := f.sweeper(t, in)
	ctx, over := context.WithCancelCause(t.Context())
	in.full = func() { over(errTimeout) }
	result, err := s.Sweep(ctx)
	if err != nil || !result.TimedOut || result.Stopped {
		t.Errorf("%s, %v", result, err)
	}
	if n := result.Left["hang (no time left)"]; n != len(hang)-4 || result.InDelivery != 4 || result.Overdue != len(hang) || result.Unread != 0 {
		t.Errorf("%s", result)
	}
	if len(in.Offer(0, []duequeue.Entry{{JobID: 1, Type: 2, Due: 1}})) == 0 {
		t.Error("the tables were not dropped")
	}
	in.full = func() {}
	in.release(2)
	result, err = s.Sweep(t.Context())
	if err != nil || result.Overdue != len(hang) || result.Delivered != len(hang)+4 || len(result.Left) != 0 || result.Elsewhere+result.InDelivery != 0 {
		t.Errorf("the next sweep, with the outcomes of the four: %s, %v", result, err)
	}
}

func TestASweepEndsWithItsTimeOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addOf(t, "hang", 5)
	in := newIntake(10)
	in.hangs[2] = true
	s := f.sweeper(t, in)
	s.cfg.Timeout = 10 * time.Millisecond
	result, err := s.Sweep(t.Context())
	if err != nil || !result.TimedOut || result.Overdue != 5 && result.Unread == 0 {
		t.Errorf("%s, %v", result, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if result, err := s.Sweep(ctx); !errors.Is(err, context.Canceled) || !result.Stopped || result.Unread != 80 || result.Err() == nil {
		t.Errorf("one that had no time at all: %s, %v", result, err)
	}
}

func TestATypeThatIsPausedMeanwhileIsLeft(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hang := f.addOf(t, "hang", 100)
	quick := f.addOf(t, "b", 50)
	in := newIntake(10)
	in.hangs[2] = true
	paused := slices.Clone(types)
	paused[1].Paused = true
	s := f.sweeper(t, in)
	s.cfg.Policies = func() []biztype.Policy {
		if in.isPaused(2) {
			return paused
		}
		return types
	}
	in.settled = func(n int) {
		if n == len(quick) {
			in.pause(2)
		}
	}
	result, err := s.Sweep(t.Context())
	if err != nil || result.Delivered != len(quick) || result.InDelivery != 4 || result.Left["hang (paused)"] != result.Overdue-len(quick)-4 {
		t.Errorf("%s, %v", result, err)
	}
	if result.Overdue < len(quick)+10 || result.Overdue > len(quick)+len(hang) || result.TimedOut || result.Stopped {
		t.Errorf("%s", result)
	}
}

func TestWhatIsClaimedElsewhereIsCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.add(t, 90)
	in := newIntake(10)
	in.elsewhere = 3 // every third
	result, err := f.sweeper(t, in).Sweep(t.Context())
	if err != nil || result.Elsewhere != len(ids)/3 || result.Delivered != len(ids)/3*2 || len(result.Left) != 0 {
		t.Errorf("%s, %v", result, err)
	}
}

func TestSweepNamesTheTableThatFailsAndReadsTheOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.add(t, 200)
	lost := f.cfg.Layout.Table(7)
	dropTable(t, lost)
	want := 0
	for id := range ids {
		if id.Table() != 7 {
			want++
		}
	}
	in := newIntake(1000)
	result, err := f.sweeper(t, in).Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), lost) {
		t.Errorf("error %v does not name %s", err, lost)
	}
	if result.Tables != 79 || result.Overdue != want || len(in.got) != want || fmt.Sprint(result.Failed) != "[db1]" {
		t.Errorf("%s; handed over %d, want %d", result, len(in.got), want)
	}
}

func TestAServerThatFailsOnTheWayLeavesWhatWasFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(t, 300)
	in := newIntake(10)
	in.hangs[1] = true
	s := f.sweeper(t, in)
	s.cfg.Tables = &failing{Tables: f.store, after: 2, then: func() { in.release(1) }}
	result, err := s.Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "sweep server db1: the server is away") || fmt.Sprint(result.Failed) != "[db1]" {
		t.Errorf("%s, %v", result, err)
	}
	if result.Delivered == 0 || result.Left["a (server failed)"] != result.Overdue-result.Delivered || result.Unread == 0 {
		t.Errorf("%s", result)
	}
}

// failing is a server that fails after a number of peeks.
type failing struct {
	Tables
	after int
	then  func()
}

func (f *failing) Peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	if f.after--; f.after < 0 {
		f.then()
		return store.Page{}, errors.New("the server is away")
	}
	return f.Tables.Peek(ctx, q)
}

func TestDryRunOfAnUnreachableServerNamesIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(t, 10)
	s := f.sweeper(t, nil)
	if result, err := s.Sweep(t.Context()); err != nil || result.Overdue != 10 || result.Elsewhere != 0 || result.Err() != nil {
		t.Errorf("%s, %v", result, err)
	}
	gone := f.cfg
	gone.Servers = []tocsin.Server{{Name: "gone", DSN: "root:secret@tcp(127.0.0.1:1)/"}}
	db, err := store.Open(gone)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s.cfg.Tables = db
	result, err := s.Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "gone") || strings.Contains(err.Error(), "secret") || result.Tables != 0 {
		t.Errorf("%s, %v", result, err)
	}
}

func TestResidentSweeperEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	schedule, err := upkeep.ParseTimes("@every 1s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := f.sweeper(t, nil).Run(ctx, schedule); err != nil {
		t.Error(err)
	}
}

// moving is a server that moves to another address in the middle of a sweep: its clock is not known until it is read again.
type moving struct {
	Tables
	known    bool
	measured int
}

func (m *moving) Measure(ctx context.Context, server int) (store.Offset, error) {
	m.known = true
	m.measured++
	return m.Tables.Measure(ctx, server)
}

func (m *moving) Peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	page, err := m.Tables.Peek(ctx, q)
	m.known = m.measured > 3 // it moves three times
	return page, err
}

func (m *moving) Now(server int) int64 {
	if !m.known {
		return 0
	}
	return m.Tables.Now(server)
}

func TestASweepGoesOnAfterAFailOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(t, 400)
	s := f.sweeper(t, newIntake(3))
	m := &moving{Tables: f.store}
	s.cfg.Tables = m
	result, err := s.Sweep(t.Context())
	if err != nil || result.Tables != 80 || result.Overdue != 400 || result.Delivered != 400 || m.measured < 4 {
		t.Errorf("%s, %v; the clock was read %d times", result, err, m.measured)
	}
}

// partly recovers claims from healthy tables beside one that fails.
type partly struct {
	Tables
	left []int
}

func (p *partly) Recover(context.Context, int, []int, int) (store.Recovered, error) {
	if len(p.left) == 0 {
		return store.Recovered{}, errors.New("a table is locked")
	}
	n := p.left[0]
	p.left = p.left[1:]
	return store.Recovered{Back: n}, errors.New("a table is locked")
}

func TestATableThatFailsKeepsNoClaimsOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.sweeper(t, newIntake(3))
	s.cfg.Tables = &partly{Tables: f.store, left: []int{500, 200, 100}}
	if result, err := s.Sweep(t.Context()); err == nil || result.Recovered != 800 {
		t.Errorf("%d recovered, %v", result.Recovered, err)
	}
}
