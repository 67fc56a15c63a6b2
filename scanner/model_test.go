package scanner

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

// rows is a store in memory for what is about timing and bookkeeping; what is
// about SQL runs against a server.
type rows struct {
	places int // tables, all on one server

	mu      sync.Mutex
	pending map[tocsin.JobID]row
	peeks   []store.PeekQuery
	calls   int
	broken  map[int]error
	bells   []store.Bell // of database 0
	read    int          // how often they were
}

type row struct {
	duequeue.Entry
	commit int64
}

func (r *rows) Servers() []string { return []string{"db1"} }

func (r *rows) ServerOf(table int) int {
	if table < r.places {
		return 0
	}
	return -1
}

func (r *rows) Now(int) int64 { return time.Now().UnixMilli() }

func (r *rows) Recover(context.Context, int, []int, int) (store.Recovered, error) {
	r.count()
	return store.Recovered{}, nil
}

func (r *rows) Bells(_ context.Context, _ int, after map[int]uint64, _ int) (map[int][]store.Bell, error) {
	r.count()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read++
	i := slices.IndexFunc(r.bells, func(b store.Bell) bool { return b.ID > after[0] })
	if i < 0 {
		return nil, nil
	}
	return map[int][]store.Bell{0: r.bells[i:]}, nil
}

func (r *rows) LastBell(context.Context, int) (map[int]uint64, error) {
	r.count()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bells) == 0 {
		return map[int]uint64{0: 0}, nil
	}
	return map[int]uint64{0: r.bells[len(r.bells)-1].ID}, nil
}

// reads gives how often bells were read since the last call.
func (r *rows) reads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.read
	r.read = 0
	return n
}

// ring rings for a task of table 0 that is due now.
func (r *rows) ring(id uint64) tocsin.JobID {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := tocsin.JobID(id << 22)
	r.bells = append(r.bells, store.Bell{ID: id, Entry: duequeue.Entry{JobID: job, Type: 1, Due: r.Now(0)}})
	slices.SortFunc(r.bells, func(a, b store.Bell) int { return cmp.Compare(a.ID, b.ID) })
	return job
}

func (r *rows) count() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
}

func byKey(a, b duequeue.Entry) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Type, b.Type), cmp.Compare(a.JobID, b.JobID))
}

func (r *rows) Peek(_ context.Context, q store.PeekQuery) (store.Page, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.peeks = append(r.peeks, q)
	page := store.Page{Failed: make(map[int]error)}
	for _, table := range q.Tables {
		if err := r.broken[table]; err != nil {
			page.Failed[table] = err
			continue
		}
		found := r.table(table, q)
		if len(found) >= q.Limit {
			found = found[:q.Limit]
			page.Full = append(page.Full, found[q.Limit-1])
		}
		page.Entries = append(page.Entries, found...)
	}
	return page, nil
}

func (r *rows) table(table int, q store.PeekQuery) []duequeue.Entry {
	var found []duequeue.Entry
	for id, row := range r.pending {
		due := row.Due >= q.From && row.Due <= q.Until
		behind := q.After.JobID == 0 || byKey(row.Entry, q.After) > 0
		if id.Table() == table && slices.Contains(q.Types, row.Type) && due && behind && row.commit <= r.Now(0) {
			found = append(found, row.Entry)
		}
	}
	slices.SortFunc(found, byKey)
	return found
}

func (r *rows) Due(_ context.Context, q store.DueQuery) (store.DuePage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	page := store.DuePage{Failed: make(map[int]error)}
	for _, from := range q.From {
		if err := r.broken[from.Table]; err != nil {
			page.Failed[from.Table] = err
			continue
		}
		after := duequeue.Entry{JobID: from.JobID, Type: q.Type, Due: from.Due}
		found := r.table(from.Table, store.PeekQuery{Types: []uint64{q.Type}, Until: q.Until})
		found = slices.DeleteFunc(found, func(e duequeue.Entry) bool { return byKey(e, after) <= 0 })
		if len(found) >= q.Limit {
			found = found[:q.Limit]
			last := found[q.Limit-1]
			page.More = append(page.More, store.Place{Table: from.Table, Due: last.Due, JobID: last.JobID})
		}
		for _, e := range found {
			page.Rows = append(page.Rows, store.Row{Info: tocsin.Info{JobID: e.JobID}, Type: e.Type, Action: e.Due})
		}
	}
	return page, nil
}

// lanes is an intake of one real queue for each biz type.
type lanes struct {
	queues  map[uint64]*duequeue.Queue
	paused  map[uint64]bool
	rows    int              // whole rows that a lane takes between deliveries
	started []duequeue.Entry // whole rows taken
}

func (l *lanes) Reserve(_ context.Context, _ int, bizType uint64, most int) duequeue.Room {
	q := l.queues[bizType]
	if n := min(most, q.Room(), l.rows-len(l.started)); n > 0 && !l.paused[bizType] {
		return duequeue.Room{Rows: n, Reading: q.Begin()}
	}
	return duequeue.Room{}
}

func (l *lanes) Take(_ context.Context, _ int, bizType uint64, room duequeue.Room, rows []store.Row, _ time.Time) (refused int64) {
	q := l.queues[bizType]
	defer q.End(room.Reading)
	for i, row := range rows {
		e := duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.Action}
		if i >= room.Rows {
			return e.Due // they are in order where there is one table; else any will do for a model
		}
		if q.Take(e) {
			l.started = append(l.started, e)
		}
	}
	return 0
}

func newLanes(capacity int, types ...uint64) *lanes {
	l := &lanes{queues: make(map[uint64]*duequeue.Queue), paused: make(map[uint64]bool)}
	for _, t := range types {
		l.queues[t] = duequeue.New(capacity)
	}
	return l
}

func (l *lanes) Offer(_ int, entries []duequeue.Entry) (oldest int64) {
	for _, e := range entries {
		if _, refused := l.queues[e.Type].Offer(e); refused.JobID != 0 && (oldest == 0 || refused.Due < oldest) {
			oldest = refused.Due
		}
	}
	return oldest
}

func (l *lanes) Wanted(int) []uint64 {
	var types []uint64
	for t, q := range l.queues {
		if q.Room() > 0 && !l.paused[t] {
			types = append(types, t)
		}
	}
	return types
}

func (l *lanes) Oldest(int) int64 {
	oldest := int64(math.MaxInt64)
	for _, q := range l.queues {
		if due, ok := q.Oldest(); ok {
			oldest = min(oldest, due)
		}
	}
	return oldest
}

// deliver settles what is due at once and returns how many that were.
func (l *lanes) deliver(r *rows, limit int) int {
	due := l.started
	l.started = nil
	for _, t := range slices.Sorted(maps.Keys(l.queues)) {
		due = l.queues[t].Pop(r.Now(0), limit, due)
	}
	for _, e := range due {
		delete(r.pending, e.JobID)
		l.queues[e.Type].Done(e.JobID)
	}
	return len(due)
}

// work does every job that there is to do now.
func work(sv *server) {
	for range 1000 {
		j, _ := sv.pick(sv.view())
		if j == nil {
			return
		}
		sv.once(context.Background(), j)
	}
	panic("there is no end to the jobs")
}

// Whatever the lanes refuse, whichever types pause, and though inserts commit
// late: without any full peek but the first, every row is delivered once the
// lanes take it, and none stays in the tables.
func TestNoRowIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, playRows)
	})
}

// bubble hides Deadline, which may not be called in a bubble.
type bubble struct{ rapid.TB }

func playRows(t *rapid.T) {
	const tables, size = 5, 2
	r := &rows{places: tables, pending: make(map[tocsin.JobID]row)}
	l := newLanes(rapid.IntRange(1, 8).Draw(t, "capacity"), 1, 2)
	s, err := New(Config{
		Store: r, Intake: l, FullEvery: 1000 * time.Hour, TablesPerStatement: size,
		PageLimit: rapid.IntRange(1, 5).Draw(t, "page"),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.rows = rapid.IntRange(0, 6).Draw(t, "whole rows")
	sv, seq := s.servers[0], 0
	s.Own([]int{0, 1, 2, 3, 4})
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch rapid.IntRange(0, 5).Draw(t, "op") {
		case 0, 1, 2:
			for range rapid.IntRange(1, 6).Draw(t, "rows") {
				seq++
				insert(t, r, seq, tables)
			}
		case 3:
			typ := rapid.Uint64Range(1, 2).Draw(t, "type")
			l.paused[typ] = !l.paused[typ]
		case 4:
			l.deliver(r, rapid.IntRange(1, 5).Draw(t, "deliveries"))
			s.Wake(0)
		case 5:
			time.Sleep(time.Duration(rapid.IntRange(1, 9000).Draw(t, "sleep")) * time.Millisecond)
		}
		work(sv)
	}
	l.paused = make(map[uint64]bool)
	for range seq + 60 {
		if len(r.pending) == 0 {
			return
		}
		time.Sleep(time.Second)
		work(sv)
		l.deliver(r, math.MaxInt)
	}
	t.Fatalf("%d of %d rows are left", len(r.pending), seq)
}

// insert adds a row with an action time not before now, as every write does; it
// commits up to nine seconds later.
func insert(t *rapid.T, r *rows, seq, tables int) {
	now := r.Now(0)
	id := tocsin.JobID(seq<<22 | rapid.IntRange(0, tables-1).Draw(t, "table")<<9)
	due := now + rapid.SampledFrom([]int64{0, 1, 500, 5000, 9000, 15_000}).Draw(t, "ahead")
	late := rapid.SampledFrom([]int64{0, 0, 10, 9000}).Draw(t, "late")
	r.pending[id] = row{duequeue.Entry{JobID: id, Type: rapid.Uint64Range(1, 2).Draw(t, "type"), Due: due}, now + late}
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
		s.Own(all)
		time.Sleep(silentPeeks*DefaultInterval + quietAfter)
		synctest.Wait()
		r.mu.Lock()
		r.calls, r.peeks = 0, nil
		r.mu.Unlock()
		time.Sleep(seconds * time.Second)
		synctest.Wait()
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

// While nothing rings no bell is read, and the first ring is heard within a poll
// of a silent bell all the same; so is one that commits behind a later one.
func TestSilentBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{places: 1}
		in := newIntake(100, 1)
		s := run(t, Config{Store: r, Intake: in, Interval: slow})
		s.Own([]int{0})
		for id := uint64(10); id < 20; id += 5 {
			time.Sleep(2 * quietAfter)
			synctest.Wait()
			r.reads()
			time.Sleep(quietAfter)
			synctest.Wait()
			if n := r.reads(); n != 0 {
				t.Errorf("silent bells were read %d times", n)
			}
			jobs := []tocsin.JobID{r.ring(id)}
			time.Sleep(2 * DefaultBellInterval)
			synctest.Wait()
			if !in.known(jobs) {
				t.Fatalf("bell %d was not heard", id)
			}
			jobs = append(jobs, r.ring(id-1))
			time.Sleep(2 * DefaultBellInterval)
			synctest.Wait()
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

// The lower bound is now - 10 s, or the oldest unsettled task if that is older.
func TestLowerBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{places: 1, pending: make(map[tocsin.JobID]row)}
		l := newLanes(10, 1)
		s, err := New(Config{Store: r, Intake: l})
		if err != nil {
			t.Fatal(err)
		}
		sv := s.servers[0]
		s.Own([]int{0})
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
		if from := last(); from != old.Due {
			t.Errorf("with an old task unsettled it starts at %d, want %d", from, old.Due)
		}
		time.Sleep(DefaultFullEvery)
		if from := last(); from != 0 {
			t.Errorf("the full peek starts at %d", from)
		}
	})
}
