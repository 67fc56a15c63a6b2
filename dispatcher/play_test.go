package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Whatever happens to rows, tables and the lease between the read of a row and its
// outcome: each attempt starts exactly once, not early, and never beside another
// attempt of its task; a strict task that was cancelled does not start; no claim runs
// out; and in the end every row has its final state and nothing is held.
func TestNoAttemptIsLostOrMadeTwice(t *testing.T) { eachWay(t, testNoAttemptIsLostOrMadeTwice) }

func testNoAttemptIsLostOrMadeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(draws *rapid.T) { newPlay(t, draws).run() })
	})
}

// bubble hides Deadline, which may not be called in a bubble.
type bubble struct{ rapid.TB }

const (
	plainType  = 1
	strictType = 2
)

// read is whole rows on their way to Take, or ids on theirs to Fetched.
type read struct {
	kind  uint64
	room  duequeue.Room
	rows  []store.Row
	asked time.Time
}

// attemptOf tells attempts apart.
type attemptOf struct {
	id       tocsin.JobID
	version  uint32
	attempts int
}

// play is a dispatcher to which things happen.
type play struct {
	*rig
	draws    *rapid.T
	policies []biztype.Policy
	reads    []read
	done     chan struct{} // closed when Run has ended
	err      error         // of Run

	mu        sync.Mutex
	lost      bool // the lease
	started   map[attemptOf]bool
	inHand    map[tocsin.JobID]bool
	cancelled map[tocsin.JobID]bool
	wrong     []string
}

func newPlay(t *testing.T, draws *rapid.T) *play {
	p := &play{draws: draws, started: make(map[attemptOf]bool), inHand: make(map[tocsin.JobID]bool), cancelled: make(map[tocsin.JobID]bool)}
	plain, strict := policy("order.close", plainType), policy("coupon.remind", strictType)
	plain.Concurrency, strict.Concurrency = rapid.IntRange(1, 4).Draw(draws, "slots"), 2
	strict.Strict = true
	plain.Ladder = []biztype.Duration{biztype.Duration(500 * time.Millisecond)} // before an overrun ends
	p.policies = []biztype.Policy{plain, strict}
	sink := handler(p.deliver)
	p.rig = newRig(t, map[string]Sink{plain.Name: sink, strict.Name: sink}, func(cfg *Config) {
		cfg.Store = slowClaims{cfg.Store.(*memory)}
		cfg.LeaseOK = func(string) bool { p.mu.Lock(); defer p.mu.Unlock(); return !p.lost }
	})
	p.store.owner = store.Fence{Group: p.cfg.Group, Node: "me"}
	p.SetPolicies(p.policies)
	p.rig.run()
	p.done = make(chan struct{})
	go func() { p.err = <-p.ended; close(p.done) }()
	return p
}

// slowClaims take a moment, to and fro.
type slowClaims struct{ *memory }

func (s slowClaims) Claim(ctx context.Context, c store.Claim) ([]store.Row, error) {
	time.Sleep(10 * time.Millisecond)
	defer time.Sleep(10 * time.Millisecond)
	return s.memory.Claim(ctx, c)
}

func (s slowClaims) ClaimRows(ctx context.Context, c store.RowsClaim) (store.ClaimedRows, error) {
	time.Sleep(10 * time.Millisecond)
	defer time.Sleep(10 * time.Millisecond)
	return s.memory.ClaimRows(ctx, c)
}

// deliver notes what is wrong, and ends as the task's number says.
func (p *play) deliver(_ context.Context, task tocsin.Info) error {
	one := attemptOf{task.JobID, task.Version, task.Attempts}
	p.mu.Lock()
	switch {
	case p.started[one]:
		p.wrong = append(p.wrong, fmt.Sprintf("started twice: %+v", one))
	case time.Now().Before(task.ActionTime):
		p.wrong = append(p.wrong, fmt.Sprintf("early: %+v", one))
	case p.inHand[task.JobID]:
		p.wrong = append(p.wrong, fmt.Sprintf("started beside another attempt: %+v", one))
	case p.cancelled[task.JobID]:
		p.wrong = append(p.wrong, fmt.Sprintf("started after its cancel: %+v", one))
	}
	p.started[one], p.inHand[task.JobID] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.inHand[task.JobID] = false
	}()
	first := task.Attempts == 0
	switch task.BizID % 6 {
	case 0:
		time.Sleep(3 * time.Second) // over the time-out
	case 1:
		time.Sleep(700 * time.Millisecond) // over what a hand-over waits for
	case 2:
		if first {
			return errors.New("busy")
		}
	case 3:
		if first {
			return tocsin.RetryIn(15*time.Second, errors.New("busy for long"))
		}
	}
	return nil
}

func (p *play) run() {
	defer func() { p.stop(); <-p.done }() // also where a draw ends the play
	for range rapid.IntRange(1, 40).Draw(p.draws, "steps") {
		p.step()
	}
	if rapid.Bool().Draw(p.draws, "stopped") {
		p.stopInOrder()
		return
	}
	p.heal()
	for range 120 {
		if p.open() == 0 {
			break
		}
		p.peek()
		pass(time.Second)
	}
	pass(requeueWithin)
	left, st := p.open(), p.Stats()
	if left > 0 || st.Queued+st.Loaded+st.Open+st.Unsettled > 0 || st.PayloadBytes != 0 || len(p.wrong) > 0 {
		p.draws.Fatalf("%d of %d rows are left, %+v, %v", left, p.seq, st, p.wrong)
	}
}

// stopInOrder ends the node while what was read is taken: no claim is left behind.
func (p *play) stopInOrder() {
	var taking sync.WaitGroup
	for len(p.reads) > 0 {
		r := p.reads[0]
		p.reads = p.reads[1:]
		taking.Go(func() { p.take(r) })
	}
	p.stop()
	<-p.done
	taking.Wait()
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	for _, row := range p.store.rows {
		if row.Status == tocsin.Claimed {
			p.wrong = append(p.wrong, fmt.Sprintf("%s is left claimed", row.JobID))
		}
	}
	if p.err != nil || len(p.wrong) > 0 {
		p.draws.Fatalf("%v, %v", p.err, p.wrong)
	}
}

// step has one thing happen.
func (p *play) step() {
	table := rapid.IntRange(0, rigTables-1).Draw(p.draws, "table")
	switch rapid.IntRange(0, 11).Draw(p.draws, "op") {
	case 0, 1:
		for range rapid.IntRange(1, 8).Draw(p.draws, "rows") {
			ahead := time.Duration(rapid.IntRange(-8000, 1000).Draw(p.draws, "ahead")) * time.Millisecond
			p.insert(table, rapid.Uint64Range(plainType, strictType).Draw(p.draws, "type"), ahead)
		}
	case 2:
		p.peek()
	case 3:
		p.begin(rapid.Uint64Range(plainType, strictType).Draw(p.draws, "type"))
	case 4:
		p.end()
	case 5:
		time.Sleep(time.Duration(rapid.IntRange(1, 5000).Draw(p.draws, "sleep")) * time.Millisecond)
	case 6:
		p.user()
	case 7:
		p.away([]int{table})
		p.another(func(id tocsin.JobID) bool { return id.Table() == table })
		p.Set([]int{table}, &duequeue.Access{Owner: "me", Unclean: rapid.Bool().Draw(p.draws, "unclean")})
	case 8:
		p.SetPolicies(p.policies[:rapid.IntRange(0, 2).Draw(p.draws, "types that go on")])
	case 9:
		if p.sessions != nil {
			p.loseSession(table)
		} else {
			p.looseLease()
		}
	case 10, 11:
		p.sleepUntilHeld()
	}
}

// sleepUntilHeld ends a few milliseconds before a row is due, when it is being held.
func (p *play) sleepUntilHeld() {
	p.peek()
	before := rapid.Int64Range(0, p.within().Milliseconds()).Draw(p.draws, "before")
	for _, row := range p.pending() {
		if wait := row.Action - before - p.now(); wait > 0 {
			time.Sleep(time.Duration(wait) * time.Millisecond)
			return
		}
	}
}

// peek offers every row that is due soon, as an older read may have it.
func (p *play) peek() {
	var near []duequeue.Entry
	for _, row := range p.pending() {
		if row.Action <= p.now()+requeueWithin.Milliseconds() {
			near = append(near, duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.Action})
		}
	}
	p.Offer(0, near) // what is refused the next peek finds
}

func (p *play) now() int64 { return p.store.Now(0) }

// pending gives the pending rows, in order of their ids.
func (p *play) pending() (all []store.Row) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(p.store.rows)) {
		if row := p.store.rows[id]; row.Status == tocsin.Pending {
			all = append(all, *row)
		}
	}
	return all
}

// open counts the rows that have no final state.
func (p *play) open() (n int) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	for _, row := range p.store.rows {
		if !row.Status.Final() {
			n++
		}
		if p.sessions == nil && row.Status == tocsin.Claimed && row.Action < p.now() {
			p.wrong = append(p.wrong, fmt.Sprintf("the claim of %s has run out", row.JobID))
		}
	}
	return n
}

// begin reads whole rows of a type.
func (p *play) begin(kind uint64) {
	most := rapid.IntRange(1, 10).Draw(p.draws, "most")
	var room duequeue.Room
	if p.sessions != nil {
		room.Rows = p.Room(0, kind, most)
	} else {
		room = p.Reserve(0, kind, most)
	}
	if room.Rows == 0 {
		return
	}
	now := p.now()
	due := slices.DeleteFunc(p.pending(), func(row store.Row) bool { return row.Type != kind || row.Action > now })
	p.reads = append(p.reads, read{kind, room, due[:min(len(due), room.Rows)], time.Now()})
}

// end takes what was read, some time ago perhaps.
func (p *play) end() {
	if len(p.reads) > 0 {
		r := p.reads[0]
		p.reads = p.reads[1:]
		p.take(r)
	}
}

func (p *play) take(r read) {
	if p.sessions == nil {
		p.Take(context.Background(), 0, r.kind, r.room, r.rows, r.asked)
		return
	}
	var entries []duequeue.Entry
	for _, row := range r.rows {
		entries = append(entries, duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.Action})
	}
	p.Fetched(0, r.kind, r.room.Rows, entries)
}

// user cancels or puts off a pending task.
func (p *play) user() {
	all := p.pending()
	at, cancel := rapid.IntRange(0, 50).Draw(p.draws, "which"), rapid.Bool().Draw(p.draws, "cancel")
	if len(all) == 0 {
		return
	}
	p.store.change(all[at%len(all)].JobID, func(row *store.Row) {
		switch {
		case row.Status != tocsin.Pending: // it was claimed meanwhile
		case cancel:
			row.Status = tocsin.Cancelled
			p.mu.Lock()
			p.cancelled[row.JobID] = row.Type == strictType
			p.mu.Unlock()
		default:
			// Not to the very millisecond at which it was due: a claim of its delivery would run out.
			due := p.now() + int64(at)*100 + 1
			if due == row.Action {
				due++
			}
			row.Action, row.Version, row.Attempts = due, row.Version+1, 0
			row.ActionTime = time.UnixMilli(row.Action).UTC()
		}
	})
}

// away gives tables up, as an owner does.
func (p *play) away(tables []int) {
	p.Set(tables, nil)
	if err := p.Drain(context.Background(), tables); err != nil {
		p.draws.Fatal(err)
	}
}

// another owner has the tables for a while and completes some of their rows.
func (p *play) another(its func(tocsin.JobID) bool) {
	every := rapid.IntRange(1, 4).Draw(p.draws, "one in")
	for i, row := range p.pending() {
		if i%every == 0 && its(row.JobID) && row.Action <= p.now() {
			p.store.change(row.JobID, func(row *store.Row) {
				if row.Status == tocsin.Pending {
					row.Status = tocsin.Done
				}
			})
		}
	}
	time.Sleep(time.Duration(rapid.IntRange(1, 2000).Draw(p.draws, "away")) * time.Millisecond)
}

// looseLease loses the lease, and the tables to another perhaps, until it is back.
func (p *play) looseLease() {
	p.setLost(true)
	if err := p.Loosen(context.Background(), "me"); err != nil {
		p.draws.Fatal(err)
	}
	if rapid.Bool().Draw(p.draws, "taken") {
		p.setOwner("another")
		p.another(func(tocsin.JobID) bool { return true })
	}
	p.peek()
	time.Sleep(time.Second)
	p.away([]int{0, 1, 2, 3})
	p.setOwner("me")
	p.setLost(false)
	p.Set([]int{0, 1, 2, 3}, &duequeue.Access{Owner: "me"})
}

// loseSession has the session of a table's database not trusted for a while, or others end it: they recover its rows, whose attempts may
// be made again.
func (p *play) loseSession(table int) {
	p.peek()
	if rapid.Bool().Draw(p.draws, "for a while") {
		p.sessions.distrust(table, true)
		time.Sleep(time.Duration(rapid.IntRange(1, 2000).Draw(p.draws, "distrusted")) * time.Millisecond)
		p.sessions.distrust(table, false)
		return
	}
	id := p.sessions.end(table)
	p.store.mu.Lock()
	p.mu.Lock()
	for _, row := range p.store.rows {
		if row.Status == tocsin.Claimed && row.ClaimedBy[:store.SessionSize] == id {
			row.Status, row.ClaimedBy, row.Crashes = tocsin.Pending, "", row.Crashes+1
			p.inHand[row.JobID] = false
			delete(p.started, attemptOf{row.JobID, row.Version, row.Attempts})
		}
	}
	p.mu.Unlock()
	p.store.mu.Unlock()
	p.SessionEnded(table, id)
}

func (p *play) setLost(lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = lost
}

func (p *play) setOwner(node string) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.store.owner.Node = node
}

// heal lets everything go on, and ends all reads.
func (p *play) heal() {
	p.SetPolicies(p.policies)
	for len(p.reads) > 0 {
		p.end()
	}
}
