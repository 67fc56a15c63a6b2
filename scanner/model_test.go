package scanner

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// work does every job that there is to do now.
func work(sv *server) {
	for range 1000 {
		work, _ := sv.next()
		if work == nil {
			return
		}
		work(context.Background())
	}
	panic("there is no end to the jobs")
}

// Whatever the lanes refuse, whichever types pause, whatever happens to tables and
// server, and though inserts commit late: without any full peek but the first, every
// row is delivered once the lanes take it, and none stays in the tables. None is
// taken once more from what was read before it was settled. Where the server's clock
// is set back, rows may land where peeks have read: full looks find them.
func TestNoRowIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(t *rapid.T) { newPlay(t).run() })
	})
}

// bubble hides Deadline, which may not be called in a bubble.
type bubble struct{ rapid.TB }

const playTables = 5

// play is a scanner between rows and lanes to which things happen.
type play struct {
	t      *rapid.T
	r      *rows
	l      *lanes
	s      *Scanner
	seq    int
	clocks bool // the server's may be set back
}

func newPlay(t *rapid.T) *play {
	p := &play{
		t: t,
		r: &rows{places: playTables, pending: make(map[tocsin.JobID]row), broken: make(map[int]error)},
		l: newLanes(rapid.IntRange(1, 8).Draw(t, "capacity"), 1, 2),
	}
	p.l.rows = rapid.IntRange(0, 6).Draw(t, "whole rows")
	full := 1000 * time.Hour
	if p.clocks = rapid.Bool().Draw(t, "clock is set back"); p.clocks {
		full = DefaultFullEvery
	}
	var err error
	p.s, err = New(Config{
		Store: p.r, Intake: p.l, FullEvery: full, TablesPerStatement: 2,
		PageLimit: rapid.IntRange(1, 5).Draw(t, "page"), Claims: rapid.Bool().Draw(t, "claims"),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.s.Set(owned(playTables), owner)
	return p
}

func (p *play) run() {
	p.r.inDue = func() {
		if rapid.IntRange(0, 3).Draw(p.t, "in a read") == 0 {
			p.step()
		}
	}
	for range rapid.IntRange(1, 60).Draw(p.t, "steps") {
		p.step()
		work(p.s.servers[0])
	}
	p.heal()
	patience := 3*time.Minute + p.r.back
	for range p.seq + int(patience/time.Second) {
		if len(p.r.pending) == 0 {
			break
		}
		time.Sleep(time.Second)
		work(p.s.servers[0])
		p.l.deliver(p.r, math.MaxInt)
	}
	if len(p.r.pending) > 0 || p.l.twice > 0 {
		p.t.Fatalf("%d of %d rows are left, %d were taken twice", len(p.r.pending), p.seq, p.l.twice)
	}
}

// step has one thing happen.
func (p *play) step() {
	t, l, r := p.t, p.l, p.r
	switch rapid.IntRange(0, 11).Draw(t, "op") {
	case 0, 1, 2:
		for range rapid.IntRange(1, 6).Draw(t, "rows") {
			p.insert()
		}
	case 3:
		typ := rapid.Uint64Range(1, 2).Draw(t, "type")
		l.paused[typ] = !l.paused[typ]
	case 4:
		l.deliver(r, rapid.IntRange(1, 5).Draw(t, "deliveries"))
		p.s.Wake(0)
	case 5:
		time.Sleep(time.Duration(rapid.IntRange(1, 9000).Draw(t, "sleep")) * time.Millisecond)
	case 6:
		p.handOver()
	case 7:
		table := rapid.IntRange(0, playTables-1).Draw(t, "sick table")
		if delete(r.broken, table); rapid.Bool().Draw(t, "locked") {
			r.broken[table] = errors.New("locked")
		}
	case 8:
		if r.down = nil; rapid.Bool().Draw(t, "down") {
			r.down = errors.New("no answer")
		}
	case 9:
		if !p.clocks {
			return
		}
		r.back += time.Duration(rapid.IntRange(1, 20_000).Draw(t, "back")) * time.Millisecond
	case 10:
		p.reschedule()
	case 11:
		p.ring()
	}
}

// ring makes the bell of a row heard, whether its lane is full or not.
func (p *play) ring() {
	var near []tocsin.JobID
	for id, row := range p.r.pending {
		if row.commit <= p.r.Now(0) && row.Due <= p.r.Now(0)+DefaultLookAhead.Milliseconds() && !p.l.paused[row.Type] {
			near = append(near, id)
		}
	}
	if len(near) == 0 {
		return
	}
	slices.Sort(near)
	p.s.servers[0].offer([]duequeue.Entry{p.r.pending[rapid.SampledFrom(near).Draw(p.t, "rings")].Entry})
}

// handOver gives a table away, or takes it again.
func (p *play) handOver() {
	table := rapid.IntRange(0, playTables-1).Draw(p.t, "table")
	if !slices.Contains(ownedBy(p.s), table) {
		p.s.Set([]int{table}, owner)
		return
	}
	p.s.Set([]int{table}, nil)
	p.l.drop(table)
}

// reschedule gives a row another action time, not before now.
func (p *play) reschedule() {
	if len(p.r.pending) == 0 {
		return
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(p.r.pending))).Draw(p.t, "row")
	row := p.r.pending[id]
	row.Due, row.commit = p.ahead(), p.r.Now(0)
	p.r.pending[id] = row
}

// heal ends all that is wrong.
func (p *play) heal() {
	p.r.inDue, p.r.down, p.r.broken, p.l.paused = nil, nil, nil, make(map[uint64]bool)
	p.l.rows = max(p.l.rows, 1)
	p.s.Set(owned(playTables), owner)
}

// ahead draws an action time.
func (p *play) ahead() int64 {
	return p.r.Now(0) + rapid.SampledFrom([]int64{0, 1, 500, 5000, 9000, 15_000}).Draw(p.t, "ahead")
}

// insert adds a row with an action time not before now, as every write does; it
// commits up to nine seconds later.
func (p *play) insert() {
	p.seq++
	id := tocsin.JobID(p.seq<<22 | rapid.IntRange(0, playTables-1).Draw(p.t, "table")<<9)
	late := rapid.SampledFrom([]int64{0, 0, 10, 9000}).Draw(p.t, "late")
	typ := rapid.Uint64Range(1, 2).Draw(p.t, "type")
	p.r.pending[id] = row{duequeue.Entry{JobID: id, Type: typ, Due: p.ahead()}, p.r.Now(0) + late}
}

// An idle node that owns 8 x 1024 tables on one server asks it less than 40
// times a second, peeks every table each interval and a half, and spreads the peeks.
func TestIdleCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tables, seconds = 8192, 100
		r := &rows{places: tables}
		s := run(t, Config{Store: r, Intake: newLanes(10, 1)})
		all := make([]int, tables)
		for i := range all {
			all[i] = i
		}
		s.Set(all, owner)
		pass(silentPeeks*DefaultInterval + quietAfter)
		r.mu.Lock()
		r.calls, r.peeks = 0, nil
		r.mu.Unlock()
		pass(seconds * time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		if perSecond := r.calls / seconds; perSecond >= 40 {
			t.Errorf("%d statements a second", perSecond)
		}
		t.Logf("%d statements a second", r.calls/seconds)
		peeked := make(map[int]int)
		for _, q := range r.peeks {
			for _, table := range q.Tables {
				peeked[table]++
			}
		}
		want := seconds * 2 / 3 / int(DefaultInterval/time.Second)
		for table := range tables {
			if n := peeked[table]; n < want-1 || n > want+1 {
				t.Fatalf("table %d was peeked %d times, want about %d", table, n, want)
			}
		}
	})
}

// While tasks come that are due at once, the doorbell is polled more often.
func TestABellThatIsUrgentIsPolledMoreOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{places: 1}
		in := newLanes(100, 1)
		s := run(t, Config{Store: r, Intake: in, Interval: slow})
		s.Set([]int{0}, owner)
		second := func() int {
			r.reads()
			pass(time.Second)
			return r.reads()
		}
		calm := second()
		r.ring(1)
		time.Sleep(2 * DefaultBellInterval)
		hurried := second()
		time.Sleep(2 * hurryFor)
		again := second()
		if calm > 42 || hurried < 95 || again > 42 {
			t.Errorf("%d polls in a second, %d after a task that was due at once, %d later", calm, hurried, again)
		}
	})
}

// While nothing rings no bell is read, and the first ring is heard within a poll
// of a silent bell all the same; so is one that commits behind a later one.
func TestSilentBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{places: 1}
		in := newLanes(100, 1)
		s := run(t, Config{Store: r, Intake: in, Interval: slow})
		s.Set([]int{0}, owner)
		for id := uint64(10); id < 20; id += 5 {
			pass(2 * quietAfter)
			r.reads()
			pass(quietAfter)
			if n := r.reads(); n != 0 {
				t.Errorf("silent bells were read %d times", n)
			}
			jobs := []tocsin.JobID{r.ring(id)}
			pass(2 * DefaultBellInterval)
			if !in.known(jobs) {
				t.Fatalf("bell %d was not heard", id)
			}
			jobs = append(jobs, r.ring(id-1))
			pass(2 * DefaultBellInterval)
			if !in.known(jobs) {
				t.Fatalf("bell %d was not heard behind a later one", id-1)
			}
		}
	})
}

// run starts a scanner and ends it with the test.
func run(t *testing.T, cfg Config) *Scanner {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// The lower bound is now - 10 s, whatever the intake has in hand: else each peek of a group would read the backlog of any
// one type that hangs.
func TestLowerBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{places: 1, pending: make(map[tocsin.JobID]row)}
		l := newLanes(10, 1)
		s, err := New(Config{Store: r, Intake: l})
		if err != nil {
			t.Fatal(err)
		}
		sv := s.servers[0]
		s.Set([]int{0}, owner)
		last := func() int64 {
			work(sv)
			return r.peeks[len(r.peeks)-1].From
		}
		if from := last(); from != 0 {
			t.Errorf("the first peek starts at %d", from)
		}
		first := time.Now()
		time.Sleep(DefaultInterval)
		if from, want := last(), first.Add(-commitTime).UnixMilli(); from != want {
			t.Errorf("the second starts at %d, want %d", from, want)
		}
		old := duequeue.Entry{JobID: 1, Type: 1, Due: first.Add(-time.Minute).UnixMilli()}
		l.Offer(0, []duequeue.Entry{old})
		time.Sleep(DefaultInterval)
		if from, want := last(), first.Add(DefaultInterval-commitTime).UnixMilli(); from != want {
			t.Errorf("with an old task in hand it starts at %d, want %d", from, want)
		}
		time.Sleep(DefaultFullEvery)
		if from := last(); from != 0 {
			t.Errorf("the full peek starts at %d", from)
		}
	})
}
