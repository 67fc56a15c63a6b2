package node

import (
	"context"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/store"
	"github.com/tocsinhq/tocsin/upkeep"
)

// newAlarms makes the alarms of a node: about all that it settles, and about all tasks of its group while it leads.
func (p *parts) newAlarms() *upkeep.Alarms {
	return upkeep.NewAlarms(upkeep.AlarmsConfig{
		Store: p.store, Cluster: p.cfg.Tables, Policies: func() []biztype.Policy { return p.roster.known() }, Mine: p.cfg.mine, Leads: p.leads,
		Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	})
}

// died tells alarms of a task that an outcome has made dead.
func died(a *upkeep.Alarms, s dispatcher.Settlement) {
	if s.Verb == tocsin.Buried && s.Fate == store.Stored && !s.Undone {
		a.Died(s.Type, s.JobID)
	}
}

// settled has people told of a dead task.
func (p *parts) settled(s dispatcher.Settlement) { died(p.alarms, s) }

// newAlarms makes the alarms of a sweep, which is about all tasks.
func (w *sweepParts) newAlarms() *upkeep.Alarms {
	return upkeep.NewAlarms(upkeep.AlarmsConfig{
		Store: w.store, Cluster: w.cfg.Tables, Policies: func() []biztype.Policy { return *w.policies.Load() },
		Leads: func() bool { return true }, Hurry: w.cfg.only != nil, Logger: w.cfg.Logger, Registerer: w.upkept,
	})
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
