package duequeue

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/tocsinhq/tocsin"
	"pgregory.net/rapid"
)

// id makes a job_id in a table, so that Drop has something to tell apart.
func id(table, n int) tocsin.JobID { return tocsin.JobID(n<<22 | table<<9) }

// pair drives a queue and its model side by side.
type pair struct {
	q *Queue
	m *model
}

func (p pair) check(t rapid.TB) {
	queueDue, ok := p.q.Next()
	if due, some := first(inOrder(p.m.queued)); due != queueDue || ok != some {
		t.Fatalf("Next is %d, %t; want %d, %t", queueDue, ok, due, some)
	}
	if p.q.Len() != len(p.m.queued) || p.q.Known() != len(p.m.queued)+len(p.m.flying) {
		t.Fatalf("%d queued of %d known; want %d, and %d in flight", p.q.Len(), p.q.Known(), len(p.m.queued), len(p.m.flying))
	}
	if p.q.Room() != max(p.m.capacity-len(p.q.index), 0) {
		t.Fatalf("%d indexed, room %d of %d", len(p.q.index), p.q.Room(), p.m.capacity)
	}
}

func (p pair) offer(t rapid.TB, e Entry) {
	refused, some := p.q.Offer(e)
	if want, out := p.m.offer(e); some != out || refused != want {
		t.Fatalf("Offer(%v) is %v, %t; want %v, %t", e, refused, some, want, out)
	}
}

func (p pair) pop(t rapid.TB, now int64, limit int) {
	got := p.q.Pop(now, limit, nil)
	if want := p.m.pop(now, limit); !slices.Equal(got, want) {
		t.Fatalf("Pop(%d, %d) is %v; want %v", now, limit, got, want)
	}
}

func (p pair) done(id tocsin.JobID) {
	p.q.Done(id)
	p.m.done(id)
}

// take may be refused for what ended before the reads under way began, if there
// are any, but never granted for what ended since. What it refuses is known.
func (p pair) take(t rapid.TB, e Entry) {
	got, must, may := p.q.Take(e), p.m.mustTake(e), p.m.mayTake(e)
	if must && !got || got && !may {
		t.Fatalf("Take(%v) is %t; must be %t, may be %t", e, got, must, may)
	}
	_, waits := p.m.queued[e.JobID]
	_, flies := p.m.flying[e.JobID]
	switch {
	case got:
		delete(p.m.queued, e.JobID)
		p.m.flying[e.JobID] = e
	case !waits && !flies:
		p.m.queued[e.JobID] = e
	}
}

func (p pair) requeue(e Entry) {
	p.q.Requeue(e)
	p.m.requeue(e)
}

func (p pair) drop(table int) {
	gone := func(n int) bool { return n == table }
	p.q.Drop(gone)
	p.m.drop(gone)
}

// step plays one operation, drawn by op, on both.
func (p pair) step(t rapid.TB, op int, e Entry) {
	switch op % 12 {
	case 0, 1, 2, 3:
		p.offer(t, e)
	case 4:
		p.pop(t, e.Due, 3)
	case 5:
		p.done(e.JobID)
	case 6:
		p.requeue(e)
	case 7:
		p.drop(e.JobID.Table())
	case 8:
		p.m.open = append(p.m.open, &reading{p.q.Begin(), map[tocsin.JobID]bool{}})
	case 9:
		if n := len(p.m.open); n > 0 {
			i := int(e.Due) % n
			p.q.End(p.m.open[i].Reading)
			p.m.open = slices.Delete(p.m.open, i, i+1)
		}
	case 10:
		p.take(t, e)
	case 11:
		p.m.capacity = 1 + int(e.Due)
		p.q.SetCap(p.m.capacity)
	}
	p.check(t)
}

// A queue behaves as the naive model does, whatever is done to it.
func TestQueueIsAsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 24).Draw(t, "capacity")
		p := pair{New(capacity), newModel(capacity)}
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			e := Entry{
				JobID: id(rapid.IntRange(0, 2).Draw(t, "table"), rapid.IntRange(1, 12).Draw(t, "n")),
				Due:   rapid.Int64Range(0, 20).Draw(t, "due"),
			}
			p.step(t, rapid.IntRange(0, 11).Draw(t, "op"), e)
		}
	})
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 1, 9, 0, 2, 3, 4, 0, 5, 6, 1, 7})
	f.Add([]byte("a queue of bytes, three a step"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := pair{New(8), newModel(8)}
		for ; len(b) >= 3; b = b[3:] {
			p.step(t, int(b[0]), Entry{JobID: id(int(b[1]>>6), int(b[1]&63)+1), Due: int64(b[2])})
		}
	})
}

// With a read always under way, what ended is remembered as long as any read
// needs it, and forgotten at last.
func TestWhatEndedIsForgottenWhileReadsGoOn(t *testing.T) {
	q := New(1)
	reads := []Reading{q.Begin()}
	for n := range 20 * agedAt {
		e := Entry{JobID: id(0, n+1)}
		if !q.Take(e) {
			t.Fatalf("entry %d is refused", n)
		}
		q.Done(e.JobID)
		if q.Take(e) {
			t.Fatalf("entry %d is taken again from a read that began before it ended", n)
		}
		if got := q.Pop(0, 1, nil); len(got) != 1 || got[0] != e {
			t.Fatalf("entry %d is not to be read again", n)
		}
		q.Done(e.JobID)
		if n%100 == 0 {
			reads = append(reads, q.Begin())
			q.End(reads[0])
			reads = reads[1:]
		}
	}
	if held := len(q.ended.ids[0]) + len(q.ended.ids[1]); held > 3*agedAt {
		t.Errorf("%d ids are remembered", held)
	}
}

// What ended during a read is not taken from it, though a late bell has brought it
// back: it waits to be looked at.
func TestALateBellDoesNotBringBackWhatEndedDuringARead(t *testing.T) {
	q, e := New(2), Entry{JobID: 1, Due: 10}
	q.Offer(e)
	r := q.Begin()
	q.Pop(10, 1, nil)
	q.Done(e.JobID)
	q.Offer(e)
	if q.Take(e) {
		t.Error("it was taken")
	}
	if q.End(r); q.Len() != 1 || !q.Take(e) {
		t.Error("it is not taken from a later read")
	}
}

// million offers n entries in an order of no kind.
func million(q *Queue, n int) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		q.Offer(Entry{JobID: tocsin.JobID(random.Uint64() >> 1), Type: uint64(i), Due: random.Int64()})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A million entries cost well under 100 MB, and nothing once they are gone.
func TestMemory(t *testing.T) {
	const n, limit = 1_000_000, 100 << 20
	before := heapInUse()
	q := New(n)
	million(q, n)
	used := heapInUse() - before
	t.Logf("%d entries: %d MB", q.Len(), used>>20)
	if q.Len() != n || used > limit {
		t.Errorf("%d entries take %d MB, more than %d", q.Len(), used>>20, limit>>20)
	}
	q.Drop(func(int) bool { return true })
	if left := int64(heapInUse()) - int64(before); left > 1<<20 {
		t.Errorf("an empty queue still takes %d bytes", left)
	}
	runtime.KeepAlive(q)
}

// BenchmarkQueue passes entries through a queue that holds many others.
func BenchmarkQueue(b *testing.B) {
	for _, held := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("holding %d", held), func(b *testing.B) {
			q := New(held + 1)
			million(q, held)
			b.ReportAllocs()
			var due []Entry
			for i := 0; b.Loop(); i++ {
				q.Offer(Entry{JobID: tocsin.JobID(i + 1), Due: int64(i)})
				due = q.Pop(1<<63-1, 1, due[:0])
				q.Done(due[0].JobID)
			}
		})
	}
}
