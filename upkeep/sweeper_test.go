package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// newSwept is a site with enough tables that a sweep reads them in several groups.
func newSwept(t *testing.T) *site {
	t.Helper()
	return newSite(t, tocsin.Layout{Databases: 2, Tables: 40})
}

// overdue puts n overdue tasks of a type into as many tables as possible.
func (s *site) overdue(bizType, n int) {
	s.t.Helper()
	total := s.layout.Total()
	for table := range total {
		if some := (n + total - 1 - table) / total; some > 0 {
			s.add(table, some, bizType, tocsin.Pending, time.Second)
		}
	}
}

// The numbers of the types.
const (
	typeA = iota + 1
	typeHang
	typeB
	typeForeign
)

// sweepConfig is that of a dry sweep.
func sweepConfig(tables SweepTables) SweeperConfig {
	return SweeperConfig{
		Tables: tables, Refresh: func(context.Context) {}, Policies: func() []biztype.Policy { return types }, Can: func(p biztype.Policy) bool { return p.Name != "foreign" }, Grace: -1,
		Outcomes: func() map[uint64]Counts { return nil }, Claimed: func() int { return 0 }, Upkeep: func() map[string]int { return nil },
		Make: func(context.Context) (int, error) { return 0, nil }, Sick: func(int) error { return nil },
	}
}

// sweeper makes a sweeper with the intake; nil means a dry sweep.
func (s *site) sweeper(in *intake) *Sweeper {
	cfg := sweepConfig(s.store)
	if in != nil {
		cfg.Intake, cfg.Outcomes = in, in.outcomes
	}
	one := NewSweeper(cfg)
	one.rows, one.counting = 2, time.Minute
	return one
}

// types are the biz types of the tests.
var types = []biztype.Policy{
	{Name: "a", Number: 1, Group: "g"},
	{Name: "hang", Number: 2, Group: "g"},
	{Name: "b", Number: 3, Group: "g"},
	{Name: "foreign", Number: 4, Group: "g"},
}

// intake has lanes of one server with room for a few entries. Each look at a lane
// settles one entry of each type that does not hang. Of a type that hangs, four
// entries stay in delivery.
type intake struct {
	room      int
	elsewhere int           // every n-th entry goes elsewhere; 0: none
	settled   func(all int) // called for each settled entry
	full      func()        // called for a look at a full lane

	mu      sync.Mutex
	hangs   map[uint64]bool
	paused  map[uint64]bool
	held    map[uint64][]tocsin.JobID
	most    map[uint64]int // most entries held at once
	got     map[tocsin.JobID]int
	out     map[uint64]Counts
	dropped map[int]bool
	all     int
}

// inDelivery is how many entries of a hanging type are in delivery.
const inDelivery = 4

func newIntake(room int) *intake {
	return &intake{
		room: room, settled: func(int) {}, full: func() {}, hangs: map[uint64]bool{}, paused: map[uint64]bool{}, held: map[uint64][]tocsin.JobID{},
		most: map[uint64]int{}, got: map[tocsin.JobID]int{}, out: map[uint64]Counts{}, dropped: map[int]bool{},
	}
}

func (in *intake) Set(tables []int, as *duequeue.Access) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, table := range tables {
		in.dropped[table] = as == nil
	}
	if as != nil {
		return
	}
	for t, ids := range in.held {
		in.held[t] = ids[:min(len(ids), inDelivery)]
	}
}

func (in *intake) Offer(_ int, entries []duequeue.Entry) (refused []duequeue.Entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, e := range entries {
		if len(in.held[e.Type]) == in.room || in.paused[e.Type] || in.dropped[e.JobID.Table()] {
			refused = append(refused, e)
			continue
		}
		in.held[e.Type] = append(in.held[e.Type], e.JobID)
		in.most[e.Type] = max(in.most[e.Type], len(in.held[e.Type]))
		in.got[e.JobID]++
	}
	return refused
}

func (in *intake) Lane(_ int, bizType uint64) (held, room int, open bool) {
	for _, p := range types {
		if n := in.settle(1, p.Number); n > 0 {
			in.settled(n)
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if held = len(in.held[bizType]); held == in.room {
		in.full()
	}
	return held, in.room - held, !in.paused[bizType] && bizType != 4
}

// settle ends n entries of a type that does not hang, all for 0. It returns how many
// were ever settled, or 0 if none was now.
func (in *intake) settle(n int, bizType uint64) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	ids := in.held[bizType]
	if len(ids) == 0 || in.hangs[bizType] || in.paused[bizType] {
		return 0
	}
	if n == 0 {
		n = len(ids)
	}
	in.held[bizType] = ids[n:]
	for range n {
		if in.all++; in.elsewhere > 0 && in.all%in.elsewhere == 0 {
			continue
		}
		out := in.out[bizType]
		out.Delivered++
		in.out[bizType] = out
	}
	return in.all
}

func (in *intake) outcomes() map[uint64]Counts {
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.out)
}

func (in *intake) pause(bizType uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.paused[bizType] = true
}

func (in *intake) isPaused(bizType uint64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.paused[bizType]
}

// release ends the hang of a type.
func (in *intake) release(bizType uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hangs[bizType] = false
}

// Every third is claimed elsewhere.
func TestSweepHandsOverEveryEntryOfFullPagesToAFullIntake(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	s.overdue(typeA, 420)
	in := newIntake(3)
	in.elsewhere = 3
	result, err := s.sweeper(in).Sweep(t.Context())
	if err != nil || result.Tables != 80 || result.Overdue != 420 || result.Delivered != 280 || result.Elsewhere != 140 || len(result.Left) != 0 || result.Err() != nil {
		t.Errorf("%s, %v", result, err)
	}
	if len(in.got) != 420 {
		t.Errorf("%d tasks were handed over", len(in.got))
	}
	for id, n := range in.got {
		if n != 1 {
			t.Errorf("task %s was handed over %d times", id, n)
		}
	}
}

// Tasks in the wrong table can't be delivered. A whole page of them hides none that stands behind it.
func TestSweepFindsWhatStandsBehindAPageOfMisplacedTasks(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.misplace(1, pageTogether, typeA, tocsin.Pending, time.Hour)
	s.add(1, 1, typeA, tocsin.Pending, time.Minute)
	in := newIntake(3)
	sweeper := s.sweeper(in)
	sweeper.rows = sweepPage
	result, err := sweeper.Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "belongs to table 2") || result.Overdue != 1 || result.Delivered != 1 {
		t.Errorf("%s, %v", result, err)
	}
}

func TestATypeThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	const hang, quick, foreign = 600, 150, 100
	s.overdue(typeHang, hang)
	s.overdue(typeB, quick)
	s.overdue(typeForeign, foreign)
	ctx, stop := context.WithCancel(t.Context())
	in := newIntake(10)
	in.hangs[2] = true
	in.settled = func(n int) {
		if n == quick {
			stop() // otherwise the sweep would go on for ever
		}
	}
	result, err := s.sweeper(in).Sweep(ctx)
	if !errors.Is(err, context.Canceled) || !result.Stopped || result.TimedOut || len(result.Failed) != 0 {
		t.Errorf("%s, %v", result, err)
	}
	if result.Delivered != quick || result.InDelivery != 4 {
		t.Errorf("%s: want all of type b delivered, and four in delivery", result)
	}
	want := map[string]int{"hang (stopped)": hang - 4, "foreign (no handler here)": foreign}
	if !maps.Equal(result.Left, want) || result.CutOff != hang-4 || result.Elsewhere != 0 || result.Unread != 0 {
		t.Errorf("%s\nwant %v", result, want)
	}
	if most := in.most[2]; most > 10 {
		t.Errorf("the intake held %d of the type that hangs", most)
	}
	ended := result.Settled(map[uint64]Counts{2: {Retried: 1}, 3: {Delivered: quick}})
	if ended.InDelivery != 0 || ended.Left["hang (stopped)"] != hang-1 || ended.Retried != 1 {
		t.Errorf("%s: one of the four timed out, three were cut off", ended)
	}
	if err := ended.Err(); err == nil || err.Error() != "overdue tasks are left: foreign (no handler here): 100, hang (stopped): 599" {
		t.Error(err)
	}
}

func TestASweepWhoseTimeIsOverSaysWhatItLeft(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	const hang = 300
	s.overdue(typeHang, hang)
	in := newIntake(10)
	in.hangs[2] = true
	one := s.sweeper(in)
	ctx, over := context.WithCancelCause(t.Context())
	in.full = func() { over(errTimeout) }
	result, err := one.Sweep(ctx)
	if err != nil || !result.TimedOut || result.Stopped {
		t.Errorf("%s, %v", result, err)
	}
	if n := result.Left["hang (no time left)"]; n != hang-4 || result.InDelivery != 4 || result.Overdue != hang || result.Unread != 0 {
		t.Errorf("%s", result)
	}
	if len(in.Offer(0, []duequeue.Entry{{JobID: 1, Type: 2, Due: 1}})) == 0 {
		t.Error("the tables were not dropped")
	}
	in.full = func() {}
	in.release(2)
	result, err = one.Sweep(t.Context())
	if err != nil || result.Overdue != hang || result.Delivered != hang+4 || len(result.Left) != 0 || result.Elsewhere+result.InDelivery != 0 {
		t.Errorf("the next sweep, with the outcomes of the four: %s, %v", result, err)
	}
}

func TestASweepEndsWithItsTimeOut(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	s.overdue(typeHang, 5)
	in := newIntake(10)
	in.hangs[2] = true
	one := s.sweeper(in)
	one.cfg.Timeout = 10 * time.Millisecond
	result, err := one.Sweep(t.Context())
	if err != nil || !result.TimedOut || result.Overdue != 5 && result.Unread == 0 {
		t.Errorf("%s, %v", result, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if result, err := one.Sweep(ctx); !errors.Is(err, context.Canceled) || !result.Stopped || result.Unread != 80 || result.Err() == nil {
		t.Errorf("one that had no time at all: %s, %v", result, err)
	}
}

func TestATypeThatIsPausedMeanwhileIsLeft(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	const hang, quick = 100, 50
	s.overdue(typeHang, hang)
	s.overdue(typeB, quick)
	in := newIntake(10)
	in.hangs[2] = true
	paused := slices.Clone(types)
	paused[1].Paused = true
	one := s.sweeper(in)
	one.cfg.Policies = func() []biztype.Policy {
		if in.isPaused(2) {
			return paused
		}
		return types
	}
	in.settled = func(n int) {
		if n == quick {
			in.pause(2)
		}
	}
	result, err := one.Sweep(t.Context())
	if err != nil || result.Delivered != quick || result.InDelivery != 4 || result.Left["hang (paused)"] != result.Overdue-quick-4 {
		t.Errorf("%s, %v", result, err)
	}
	if result.Overdue < quick+10 || result.Overdue > quick+hang || result.TimedOut || result.Stopped {
		t.Errorf("%s", result)
	}
}

func TestSweepNamesTheTableThatFailsAndReadsTheOthers(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	s.overdue(typeA, 240)
	lost := s.layout.Table(7)
	s.exec("DROP TABLE " + lost)
	const want = 240 - 3
	in := newIntake(1000)
	result, err := s.sweeper(in).Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), lost) {
		t.Errorf("error %v does not name %s", err, lost)
	}
	if result.Tables != 79 || result.Overdue != want || len(in.got) != want || fmt.Sprint(result.Failed) != "[db1]" {
		t.Errorf("%s; handed over %d, want %d", result, len(in.got), want)
	}
}

func TestAServerThatFailsOnTheWayLeavesWhatWasFound(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	s.overdue(typeA, 300)
	in := newIntake(10)
	in.hangs[1] = true
	one := s.sweeper(in)
	one.cfg.Tables = &failing{SweepTables: s.store, after: 2, then: func() { in.release(1) }}
	result, err := one.Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "sweep server db1: the server is away") || fmt.Sprint(result.Failed) != "[db1]" {
		t.Errorf("%s, %v", result, err)
	}
	if result.Delivered == 0 || result.Left["a (server failed)"] != result.Overdue-result.Delivered || result.Unread == 0 {
		t.Errorf("%s", result)
	}
}

// failing is a server that fails after a number of peeks.
type failing struct {
	SweepTables
	after int
	then  func()
}

func (f *failing) Peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	if f.after--; f.after < 0 {
		f.then()
		return store.Page{}, errors.New("the server is away")
	}
	return f.SweepTables.Peek(ctx, q)
}

func TestDryRunOfAnUnreachableServerNamesIt(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	s.overdue(typeA, 10)
	one := s.sweeper(nil)
	if result, err := one.Sweep(t.Context()); err != nil || result.Overdue != 10 || result.Elsewhere != 0 || result.Err() != nil {
		t.Errorf("%s, %v", result, err)
	}
	gone := s.cfg
	gone.Servers = []tocsin.Server{{Name: "gone", DSN: "root:secret@tcp(127.0.0.1:1)/"}}
	db, err := store.Open(gone)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	one.cfg.Tables = db
	result, err := one.Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "gone") || strings.Contains(err.Error(), "secret") || result.Tables != 0 {
		t.Errorf("%s, %v", result, err)
	}
}

// moving is a server that moves to another address in the middle of a sweep: its clock is not known until it is read again.
type moving struct {
	SweepTables
	known    bool
	measured int
}

func (m *moving) Measure(ctx context.Context, server int) (store.Offset, error) {
	m.known = true
	m.measured++
	return m.SweepTables.Measure(ctx, server)
}

func (m *moving) Peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	page, err := m.SweepTables.Peek(ctx, q)
	m.known = m.measured > 3 // it moves three times
	return page, err
}

func (m *moving) Now(server int) int64 {
	if !m.known {
		return 0
	}
	return m.SweepTables.Now(server)
}

func TestASweepGoesOnAfterAFailOver(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	s.overdue(typeA, 400)
	one := s.sweeper(newIntake(3))
	m := &moving{SweepTables: s.store}
	one.cfg.Tables = m
	result, err := one.Sweep(t.Context())
	if err != nil || result.Tables != 80 || result.Overdue != 400 || result.Delivered != 400 || m.measured < 4 {
		t.Errorf("%s, %v; the clock was read %d times", result, err, m.measured)
	}
}

// partly recovers claims from healthy tables beside one that fails.
type partly struct {
	SweepTables
	left []int
}

func (p *partly) Recover(context.Context, int, []int, int, map[string]string) (store.Recovered, error) {
	if len(p.left) == 0 {
		return store.Recovered{}, errors.New("a table is locked")
	}
	n := p.left[0]
	p.left = p.left[1:]
	return store.Recovered{Back: n}, errors.New("a table is locked")
}

func TestATableThatFailsKeepsNoClaimsOfOthers(t *testing.T) {
	t.Parallel()
	s := newSwept(t)
	one := s.sweeper(newIntake(3))
	one.cfg.Tables = &partly{SweepTables: s.store, left: []int{500, 200, 100}}
	if result, err := one.Sweep(t.Context()); err == nil || result.Recovered != 800 {
		t.Errorf("%d recovered, %v", result.Recovered, err)
	}
}
