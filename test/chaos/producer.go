package chaos

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"sync"
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
}

// Under does something while a producer adds tasks; the producer ends with it.
func (s *Site) Under(ctx context.Context, load Load, do func(context.Context) error) error {
	p := &producer{site: s, load: load.withDefaults(), lanes: newLanes(s.opts.Servers, inFlight)}
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
	first := drafts[0].entry
	first.Sent = time.Now()
	first.Word = p.inTx(ctx, p.direct[server], drafts[0])
	first.Back = time.Now()
	p.site.addAll(ctx, drafts[1:])
	for _, d := range drafts {
		if d.entry.Word == acknowledged && rand.Float64() < p.load.Changes {
			p.change.TryGo(func() error { p.alter(ctx, d.entry); return nil })
		}
	}
}

// draw makes an entry and the task for it.
func (p *producer) draw() draft {
	due := time.Now().Add(p.load.Near + rand.N(p.load.Far-p.load.Near+1))
	kind := p.load.Types[rand.IntN(len(p.load.Types))]
	work := Work{Millis: rand.IntN(p.load.Work + 1)}
	if p.load.Fails && rand.IntN(10) == 0 {
		work.Fail = 1 + rand.IntN(2)
	}
	if kind == "pull" {
		work.forWorker()
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

// inTx adds one task in a transaction, one in ten of which is rolled back.
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
	case rand.Float64() < 0.1:
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
	if rand.IntN(2) == 0 {
		after := rand.N(120*time.Millisecond) - 20*time.Millisecond
		if left := time.Until(e.Due) + after; left < 2*time.Second {
			_ = loop.Wait(ctx, left)
		}
	}
	kind := []string{opCancel, opReschedule}[rand.IntN(2)]
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

// tick is the pace of all loads.
const tick = 50 * time.Millisecond

// beside does something while work goes on, which ends with it.
func beside(ctx context.Context, work func(context.Context), do func(context.Context) error) error {
	working, end := context.WithCancel(ctx)
	var worked sync.WaitGroup
	worked.Go(func() { work(working) })
	defer worked.Wait()
	defer end()
	return do(ctx)
}

// atRate calls do each tick until ctx ends, with how many are due by then.
func atRate(ctx context.Context, rate float64, do func(n int)) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for due := 0.0; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-ticks.C:
			due += rate * tick.Seconds()
			do(int(due))
			due -= float64(int(due))
		}
	}
}

// lanes are what a load does side by side, by server.
type lanes []*errgroup.Group

// newLanes makes n lanes. Each does at most limit things at once.
func newLanes(n, limit int) (all lanes) {
	for range n {
		lane := new(errgroup.Group)
		lane.SetLimit(limit)
		all = append(all, lane)
	}
	return all
}

func (l lanes) wait() {
	for _, lane := range l {
		_ = lane.Wait()
	}
}
