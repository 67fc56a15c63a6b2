package upkeep

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/wait"
)

// Run raises alarms until ctx ends, and then those that wait, for a few seconds.
func (a *Alarms) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if !a.cfg.Leads() {
			a.looked, a.nextRun = nil, time.Time{}
		} else if now := time.Now(); !now.Before(a.nextRun) {
			a.look(ctx, lag)
			a.nextRun = now.Add(lookEvery)
		}
		a.rest(ctx, a.raiseAll(ctx, false))
	}
	a.end(ctx)
}

// rest waits until the next alarm is due, or something new was noted.
func (a *Alarms) rest(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-a.wake:
	}
}

// Once looks at all tables once and raises the alarms that are due. A process that ends afterwards calls it instead of
// Run. It waits a few seconds for further deaths, unless ctx has ended, or with Hurry.
func (a *Alarms) Once(ctx context.Context) {
	if ctx.Err() == nil {
		a.look(ctx, 0)
	}
	if !a.cfg.Hurry && a.count() > 0 && wait.For(ctx, collectFor) == nil {
		a.raiseAll(ctx, false)
	}
	a.end(ctx)
}

// end raises what waits for the last time, and closes what was opened.
func (a *Alarms) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	a.raiseAll(ctx, true)
	if a.client != nil {
		_ = a.client.Close() // the process goes on without it
		a.client = nil
	}
}

// raiseAll raises all alarms that are due, each once; or, at last, all that wait. It returns when the next one is due.
func (a *Alarms) raiseAll(ctx context.Context, last bool) (next time.Time) {
	type later struct {
		of about
		n  *noted
	}
	var left []later
	for {
		of, n, at := a.due(time.Now(), last)
		if n == nil {
			next = at
			break
		}
		bounded, cancel := context.WithTimeout(ctx, alarmLimit)
		again := a.raise(bounded, of, n)
		cancel()
		if again {
			left = append(left, later{of, n})
		}
	}
	for _, l := range left {
		a.back(l.of, l.n)
		if l.n.at.Before(next) {
			next = l.n.at
		}
	}
	if last {
		a.forget()
	}
	return next
}

// forget logs what is lost with this process. Other processes find the dead tasks.
func (a *Alarms) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, n := range a.waiting {
		if len(n.runs) > 0 {
			a.cfg.Logger.Warn("the process ends before an alarm was raised", "biz_type", biztype.NameOf(a.cfg.Policies(), of.bizType), "kind", of.kind, "count", n.count)
		}
		delete(a.waiting, of)
	}
}
