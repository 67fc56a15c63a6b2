package tocsinkafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/outbox"
)

// partition is an outbox. The id of a record is its offset plus 1: no row has the id 0.
type partition struct {
	records
	of     *topic
	number int32

	mu      sync.Mutex // guards the following
	a       *assignment
	changed chan struct{} // closed at the next change of a
}

// String names the partition in errors.
func (p *partition) String() string { return fmt.Sprintf("%s, partition %d", p.of, p.number) }

// Close does nothing: the topic has the connections.
func (p *partition) Close() error { return nil }

// Session asks for the topic's id, by which a topic that was made anew is another outbox.
func (p *partition) Session(ctx context.Context) (*outbox.Session, error) {
	f, err := p.of.look(ctx)
	if err != nil {
		return nil, err
	}
	if int(p.number) >= f.partitions {
		return nil, fmt.Errorf("%s: the topic has %d partitions now", p, f.partitions)
	}
	c := &conn{part: p, id: f.id, a: p.now()}
	return &outbox.Session{Identity: c.identity(), Conn: c, Patience: p.of.patience, Waiting: c.waiting}, nil
}

// now returns the present assignment; nil: the group has given the partition to nobody or to another process.
func (p *partition) now() *assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.a
}

// set notes that the group has given the partition to this process, with the offset that it has for it; a negative one: none.
func (p *partition) set(offset int64) {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &assignment{partition: p, none: offset < 0, committed: uint64(max(offset, 0))}
	a.over, a.cancel = context.WithCancelCause(context.Background())
	p.a = a
	close(p.changed)
	p.changed = make(chan struct{})
}

// end notes that the partition may be another process's, and returns what was assigned; nil: nothing was.
func (p *partition) end() *assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.a
	if p.a = nil; a != nil {
		a.cancel(outbox.ErrNotLeading)
	}
	return a
}

// await waits for an assignment.
func (p *partition) await(ctx context.Context, wait time.Duration) *assignment {
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		p.mu.Lock()
		a, changed := p.a, p.changed
		p.mu.Unlock()
		if a != nil {
			return a
		}
		select {
		case <-changed:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// assignment is the time for which the group has given a partition to this process.
type assignment struct {
	*partition
	over   context.Context // ends with it
	cancel context.CancelCauseFunc

	mu        sync.Mutex // guards the following
	none      bool       // the group has no offset
	committed uint64     // ids up to it are done, as the group knows
	turn      *progress  // of the session that leads; nil: none does
	rested    chan struct{}
	given     bool   // to another process, perhaps: an offset that is committed from now on might undo that one's
	end       uint64 // of the partition, as heard last
}

// start returns where a turn begins; none: the group has no offset, so it is where the partition begins.
func (a *assignment) start() (from uint64, none bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.committed, a.none
}

// begin makes a session the one that leads.
func (a *assignment) begin(from, end uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn, a.end, a.rested = newProgress(from), end, make(chan struct{})
}

// rest ends the turn of the session that leads.
func (a *assignment) rest() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn = nil
	close(a.rested)
}

// rests waits until no session leads.
func (a *assignment) rests(ctx context.Context) {
	a.mu.Lock()
	leads, rested := a.turn != nil, a.rested
	a.mu.Unlock()
	if !leads {
		return
	}
	select {
	case <-rested:
	case <-ctx.Done():
	}
}

// give ends the commits.
func (a *assignment) give() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.given = true
}

// done returns up to which id all are done, and whether that is more than the group knows.
func (a *assignment) done() (low uint64, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turn == nil || a.given {
		return 0, false
	}
	low = a.turn.low()
	return low, low > a.committed || a.none && low > 0
}

// commit notes what the group knows.
func (a *assignment) commit(low uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.committed, a.none = max(a.committed, low), false
}

// progress is what a turn has read and done. The ids up to top were read; of those, what is not open is done, or was no command:
// a mark of a transaction, a record that was rolled back or compacted away.
type progress struct {
	top  uint64
	open map[uint64]bool
	ids  []uint64 // of open in their order, and others
}

func newProgress(top uint64) *progress { return &progress{top: top, open: map[uint64]bool{}} }

// low returns up to which id all are done.
func (p *progress) low() uint64 {
	for len(p.ids) > 0 && !p.open[p.ids[0]] {
		p.ids = p.ids[1:]
	}
	if len(p.ids) == 0 {
		return p.top
	}
	return p.ids[0] - 1
}

// read notes that the next id was read.
func (p *progress) read(id uint64) {
	p.top = id
	p.open[id] = true
	if p.ids = append(p.ids, id); len(p.ids) > 2*len(p.open)+1000 {
		p.ids = slices.DeleteFunc(slices.Clone(p.ids), func(id uint64) bool { return !p.open[id] })
	}
}

// in returns the open ids of a range, at most some.
func (p *progress) in(r outbox.Range, most int, skip func(uint64) bool) (ids []uint64) {
	at, _ := slices.BinarySearch(p.ids, r.First)
	for ; at < len(p.ids) && p.ids[at] <= r.Last && len(ids) < most; at++ {
		if id := p.ids[at]; p.open[id] && (skip == nil || !skip(id)) {
			ids = append(ids, id)
		}
	}
	return ids
}
