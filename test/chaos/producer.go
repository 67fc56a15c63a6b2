package chaos

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// Load says what the producer adds.
type Load struct {
	Rate    int           // tasks a second
	Near    time.Duration // a task is due this far ahead at least; 0: at once
	Far     time.Duration // and this far at most; 0: 6s
	Changes float64       // share of the tasks that are cancelled or rescheduled
	Fails   bool          // some attempts fail
	Types   []string      // "plain", "strict", "hook"; nil: all
	Work    int           // ms a delivery takes at most; 0: 20
}

func (l Load) withDefaults() Load {
	if l.Far == 0 {
		l.Far = 6 * time.Second
	}
	if l.Types == nil {
		l.Types = []string{"plain", "strict", "hook"}
	}
	if l.Work == 0 {
		l.Work = 20
	}
	return l
}

// The producer's bounds.
const (
	inFlight = 8   // adds at once on each server; when all wait for a sick one, its tasks are left out
	changing = 200 // changes that wait for their moment, or for an answer
)

// producer adds tasks and changes some of them, through the harness's links.
type producer struct {
	site   *Site
	load   Load
	direct []*sql.DB // for transactions of its own, by server
	lanes  lanes     // of adds, by server
	change errgroup.Group
	rng    *rand.Rand
}

// Under does something while a producer adds tasks; the producer ends with it.
func (s *Site) Under(ctx context.Context, seed uint64, load Load, do func(context.Context) error) error {
	p := &producer{site: s, load: load.withDefaults(), rng: draws(seed, 0xadd), lanes: newLanes(s.opts.Servers, inFlight)}
	p.change.SetLimit(changing)
	defer p.close()
	for _, server := range s.tables(s.harness).Servers {
		db, err := openQuiet(server.DSN)
		if err != nil {
			return err
		}
		db.SetMaxOpenConns(4)
		p.direct = append(p.direct, db)
	}
	return beside(ctx, p.run, do)
}

func (p *producer) close() {
	for _, db := range p.direct {
		_ = db.Close()
	}
}

// run adds at the rate until ctx ends, and returns when every answer is there.
func (p *producer) run(ctx context.Context) {
	work := context.WithoutCancel(ctx)
	atRate(ctx, float64(p.load.Rate), func(n int) { p.round(work, n) })
	p.lanes.wait()
	_ = p.change.Wait()
}

// draft is a task about to be added.
type draft struct {
	entry *entry
	task  tocsin.NewTask
}

// round draws n tasks and hands each server those of its tables.
func (p *producer) round(ctx context.Context, n int) {
	parts := make([][]draft, len(p.lanes))
	for range n {
		d := p.draw()
		server := p.site.opts.serverOf(p.site.opts.Layout.TableOf(d.entry.BizID))
		parts[server] = append(parts[server], d)
	}
	for server, drafts := range parts {
		if len(drafts) > 0 && !p.lanes[server].TryGo(func() error { p.add(ctx, server, drafts); return nil }) {
			p.site.log.drop(drafts)
		}
	}
}

// add adds tasks of one server, the first of them in a transaction, and changes some.
func (p *producer) add(ctx context.Context, server int, drafts []draft) {
	p.addTx(ctx, server, drafts[0])
	p.site.addAll(ctx, drafts[1:])
	for _, d := range drafts {
		if d.entry.Word == acknowledged && p.rng.Float64() < p.load.Changes {
			p.change.TryGo(func() error { p.alter(ctx, d.entry); return nil })
		}
	}
}

// draw makes an entry and the task for it.
func (p *producer) draw() draft {
	due := time.Now().Add(p.load.Near + time.Duration(p.rng.Int64N(int64(p.load.Far-p.load.Near)+1)))
	kind := p.load.Types[p.rng.IntN(len(p.load.Types))]
	work := Work{Millis: p.rng.IntN(p.load.Work + 1)}
	if p.load.Fails && p.rng.IntN(10) == 0 {
		work.Fail = 1 + p.rng.IntN(2)
	}
	return p.site.log.newTask(kind, due, work)
}

// newTask makes an entry and the task for it. Its due time is in whole
// milliseconds, rounded up as the client rounds.
func (e *evidence) newTask(kind string, due time.Time, work Work) draft {
	b := bizTypes["chaos."+kind]
	due = due.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	task := e.open(b.Name(), due)
	task.Fail, task.Do = work.Fail, work.Do
	return draft{task, b.New(task.BizID, work, tocsin.At(due))}
}

// addAll adds tasks and writes the answers into their entries.
func (s *Site) addAll(ctx context.Context, drafts []draft) {
	tasks := make([]tocsin.NewTask, len(drafts))
	for i, d := range drafts {
		tasks[i] = d.task
	}
	sent := time.Now()
	added, _ := s.client.AddMany(ctx, tasks) // each Added has its own error
	back := time.Now()
	for i, d := range drafts {
		e := d.entry
		e.Sent, e.Back, e.JobID, e.Word = sent, back, added[i].JobID, wordOf(added[i].Err)
	}
}

// addTx adds one task in a transaction, one in ten of which is rolled back.
func (p *producer) addTx(ctx context.Context, server int, d draft) {
	d.entry.Sent = time.Now()
	d.entry.Word = p.inTx(ctx, p.direct[server], d)
	d.entry.Back = time.Now()
}

func (p *producer) inTx(ctx context.Context, db *sql.DB, d draft) word {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return refusedWord
	}
	added, err := p.site.client.AddTx(ctx, tx, d.task)
	d.entry.JobID = added.JobID
	switch {
	case err != nil:
		_ = tx.Rollback()
		return refusedWord
	case p.rng.Float64() < 0.1:
		_ = tx.Rollback()
		return rolledBack
	case tx.Commit() != nil:
		return unknownWord
	}
	return acknowledged
}

// alter cancels or reschedules a task, half of them when a node may just have
// loaded it.
func (p *producer) alter(ctx context.Context, e *entry) {
	if p.rng.IntN(2) == 0 {
		after := time.Duration(p.rng.Int64N(int64(120*time.Millisecond))) - 20*time.Millisecond
		if left := time.Until(e.Due) + after; left < 2*time.Second {
			_ = loop.Wait(ctx, left)
		}
	}
	kind := []string{opCancel, opReschedule}[p.rng.IntN(2)]
	p.site.ask(ctx, e, op{Kind: kind, Due: time.Now().Add(p.load.Far).Truncate(time.Millisecond)})
}

// ask sends a cancel or reschedule and writes the answer into the entry.
func (s *Site) ask(ctx context.Context, e *entry, o op) {
	o.Sent = time.Now()
	var err error
	if o.Kind == opCancel {
		o.Answer, err = s.client.Cancel(ctx, tocsin.ByID(e.JobID))
	} else {
		o.Answer, err = s.client.Reschedule(ctx, tocsin.ByID(e.JobID), tocsin.At(o.Due))
	}
	o.answered(err)
	e.Change = &o
}
