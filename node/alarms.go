package node

import (
	"context"
	"fmt"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/alarms"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/generator"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/store"
)

// newAlarms makes the alarms of a node: about all that it settles, and about all tasks of its group while it leads.
func (p *parts) newAlarms() (err error) {
	p.alarms, err = alarms.New(alarms.Config{
		Tables: p.store, Cluster: p.cfg.Tables, Policies: func() []biztype.Policy { return p.roster.known() }, Mine: p.cfg.mine, Leads: p.leads,
		Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	})
	return err
}

// died tells alarms of a task that an outcome has made dead.
func died(a *alarms.Alarms, s dispatcher.Settlement) {
	if s.Verb == tocsin.Buried && s.Fate == store.Stored && !s.Undone {
		a.Died(s.Type, s.JobID)
	}
}

// settled has people told of a dead task.
func (p *parts) settled(s dispatcher.Settlement) {
	died(p.alarms, s)
}

// missed tells alarms of a run that was too late.
func missed(a *alarms.Alarms, m schedule.MissedRun) { a.Missed(alarms.Missed(m)) }

// passedOver tells alarms of fire times that no run was made for.
func passedOver(a *alarms.Alarms, m generator.Missed) {
	a.Missed(alarms.Missed{BizType: m.BizType, Schedule: m.Schedule, Time: m.Time, Why: fmt.Sprintf("missed, with all that the schedule's policy passes over from then on: %d fire times", m.Times)})
}

// newAlarms makes the alarms of a sweep, which is about all tasks.
func (w *sweepParts) newAlarms() (err error) {
	w.alarms, err = alarms.New(alarms.Config{
		Tables: w.store, Cluster: w.cfg.Tables, Policies: func() []biztype.Policy { return *w.policies.Load() },
		Leads: func() bool { return true }, Hurry: w.cfg.only != nil, Logger: w.cfg.Logger, Registerer: w.upkept,
	})
	return err
}

// settled counts an outcome, and has people told of a dead task.
func (w *sweepParts) settled(s dispatcher.Settlement) {
	w.counts.settled(s)
	died(w.alarms, s)
}

// startAlarms raises alarms while a resident sweep runs. The function that it returns is to be called after the last outcome: it
// raises those that are left, and in a single sweep all.
func (w *sweepParts) startAlarms(ctx context.Context) (end func()) {
	switch {
	case w.mode.dry:
		return func() {}
	case !w.mode.stays:
		return func() { w.alarms.Once(ctx) }
	}
	raising, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { defer close(ended); w.alarms.Run(raising) }()
	return func() { stop(); <-ended }
}
