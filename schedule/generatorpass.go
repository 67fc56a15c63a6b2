package schedule

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// PassResult counts what a pass of a Generator did.
type PassResult struct {
	Schedules  int // whose runs were made
	Runs       int // made
	PassedOver int // fire times that were missed, and no run was made for
	Lost       int // looks in vain: another process was faster
	Failed     int // schedules whose runs could not be made
}

func (r PassResult) plus(o PassResult) PassResult {
	return PassResult{r.Schedules + o.Schedules, r.Runs + o.Runs, r.PassedOver + o.PassedOver, r.Lost + o.Lost, r.Failed + o.Failed}
}

// pass is one pass over a server.
type pass struct {
	*Generator
	server int
	ahead  time.Duration
	wary   atomic.Bool // a Make took long

	mu     sync.Mutex
	result PassResult
	makes  map[tocsin.JobID]int // of schedules that were due
	done   map[tocsin.JobID]bool
	under  map[int]int // Makes under way, by database
	stuck  map[int]int // Makes that took long and failed, by database
	failed []Due
}

// pass makes the runs of all schedules of a server whose next fire time is less than a time ahead. The error says that they
// could not be found, or not all of them.
func (g *Generator) pass(ctx context.Context, server int, ahead time.Duration) (PassResult, error) {
	p := &pass{Generator: g, server: server, ahead: ahead, makes: map[tocsin.JobID]int{}, done: map[tocsin.JobID]bool{}, under: map[int]int{}, stuck: map[int]int{}}
	var err error
	for more := true; more && err == nil; {
		more, err = p.next(ctx)
	}
	if ctx.Err() != nil {
		return p.result, ctx.Err()
	}
	g.passes.Inc()
	g.runs.Add(float64(p.result.Runs))
	g.passedOver.Add(float64(p.result.PassedOver))
	g.lost.Add(float64(p.result.Lost))
	g.failures.Add(float64(p.result.Failed))
	if err == nil || len(p.makes) > 0 { // else nothing could be read
		g.overdue[server].Store(earliest(p.failed))
	}
	if err != nil {
		g.failures.Inc()
		g.limit.Of(g.cfg.Logger, "due "+g.servers[server]).Warn("schedules can't be read: their next runs are made later", "error", err, "server", g.servers[server])
		return p.result, err
	}
	if p.result.Runs+p.result.PassedOver > 0 {
		g.cfg.Logger.Debug("runs of schedules made", "server", g.servers[server], "schedules", p.result.Schedules,
			"runs", p.result.Runs, "passed_over", p.result.PassedOver)
	}
	return p.result, nil
}

// earliest returns the earliest fire time in Unix ms; 0: there is none.
func earliest(due []Due) int64 {
	if len(due) == 0 {
		return 0
	}
	return slices.MinFunc(due, func(a, b Due) int { return a.Next.Compare(b.Next) }).Next.UnixMilli()
}

// next works on the schedules that are due now, a batch of them. False: there are none but those that this pass is through
// with.
func (p *pass) next(ctx context.Context) (more bool, err error) {
	asked, cancel := context.WithTimeout(ctx, dueWithin)
	defer cancel()
	due, err := p.maker.Due(asked, p.server, p.ahead, passBatch, func(d Due) bool {
		return !p.done[d.ID] && (p.cfg.Mine == nil || p.cfg.Mine(d.Table))
	})
	if len(due)+len(p.failed) > 0 {
		p.overdue[p.server].Store(earliest(slices.Concat(p.failed, due)))
	}
	p.makeAll(ctx, due)
	return len(due) > 0 && ctx.Err() == nil, err
}

// makeAll makes the next runs of these schedules, passWidth at a time. A Make that takes long makes way for another, as rows that are locked
// hold up no others. From then on no Make of the pass waits for a lock: each that does keeps a connection of the server's pool.
func (p *pass) makeAll(ctx context.Context, due []Due) {
	var workers sync.WaitGroup
	free := make(chan struct{}, passWidth)
	for _, d := range due {
		if loop.Wait(ctx, pauseBefore(d, len(due), p.cfg.Store.Now(p.server))) != nil {
			break
		}
		free <- struct{}{}
		if !p.begin(d) {
			<-free
			continue
		}
		workers.Go(func() {
			release := sync.OnceFunc(func() { <-free })
			late := time.AfterFunc(makeSlow, func() {
				p.wary.Store(true)
				release()
			})
			began := time.Now()
			failed := p.make(ctx, d) != nil
			slow := time.Since(began) > makeSlow
			p.end(d, failed && slow)
			if late.Stop(); slow && !failed { // it waited for no lock that lasts
				p.wary.Store(false)
			}
			release()
		})
	}
	workers.Wait()
}

// begin notes that a Make begins. False: all that may be under way in its database are, and take long: the schedule comes up
// again when they have ended. If as many have failed, the rest of the database is left to the next pass.
func (p *pass) begin(d Due) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck[d.Database] >= passWidth {
		p.fail(d)
		return false
	}
	if p.under[d.Database] == passWidth {
		return false
	}
	p.under[d.Database]++
	return true
}

func (p *pass) end(d Due, stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.under[d.Database]--; stuck {
		p.stuck[d.Database]++
	}
}

// fail leaves a schedule alone for the rest of the pass. Called under mu.
func (p *pass) fail(d Due) {
	p.done[d.ID] = true
	p.result.Failed++
	p.failed = append(p.failed, d)
}

// pauseBefore is the time between two Makes when so many schedules are due, at now by the server's clock. There is none if
// the run is nearer than half of what is normal.
func pauseBefore(d Due, of int, now int64) time.Duration {
	if d.Next.UnixMilli() < now+(Step/2).Milliseconds() {
		return 0
	}
	return min(passSpread/time.Duration(of), passPause)
}

// make makes the next runs of one schedule. A schedule that needed none, or that is due again and again, is left
// alone for the rest of the pass.
func (p *pass) make(ctx context.Context, d Due) error {
	bounded, cancel := context.WithTimeout(ctx, makeWithin)
	defer cancel()
	made, err := p.makeOne(bounded, d.ID, p.wary.Load())
	if made.PassedOver > 0 {
		p.cfg.Missed(MissedRun{BizType: made.BizType, Schedule: made.Name, Time: d.Next,
			Why: fmt.Sprintf("missed, with all that the schedule's policy passes over from then on: %d fire times", made.PassedOver)})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.makes[d.ID]++; p.makes[d.ID] == 1 && err == nil && made.Runs+made.PassedOver > 0 {
		p.result.Schedules++
	}
	p.result.Runs, p.result.PassedOver = p.result.Runs+made.Runs, p.result.PassedOver+made.PassedOver
	switch {
	case err != nil:
		p.fail(d)
		p.limit.Of(p.cfg.Logger, "make").Error("runs of a schedule can't be made", "error", err, "schedule_id", d.ID.String(), "next_fire", d.Next)
	case made.Runs+made.PassedOver == 0 && p.makes[d.ID] == 1:
		p.done[d.ID] = true
		p.result.Lost++
	case made.Runs+made.PassedOver == 0 || p.makes[d.ID] >= passMakes:
		p.done[d.ID] = true
	}
	return err
}
