package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/session"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/upkeep"
)

// newKeeper makes the sessions under which a sweep claims.
func (w *sweepParts) newKeeper(id string) (*session.Keeper, error) {
	return session.New(session.Config{
		Store: w.store, Group: w.cfg.Group, Node: id, Schema: layoutrow.SchemaVersion, About: "{}",
		Ended:  func(database int, id string) { w.dispatcher.SessionEnded(database, id) },
		Logger: w.cfg.Logger, Registerer: w.metrics,
	})
}

// openDispatcher makes what claims, delivers and settles.
func (w *sweepParts) openDispatcher(ctx context.Context, recorder *upkeep.Recorder) (err error) {
	id := w.cfg.Name + "-sweep-" + strings.ToLower(rand.Text()[:8])
	var sessions dispatcher.Sessions
	if w.store.ByRows() && !w.mode.dry {
		if w.keeper, err = w.newKeeper(id); err != nil {
			return err
		}
		sessions = w.keeper
	}
	w.dispatcher, err = dispatcher.New(dispatcher.Config{
		Store: w.store, Servers: len(w.store.Servers()), ServerOf: w.store.ServerOf, Node: id, Sessions: sessions, DatabaseOf: w.store.Layout().DatabaseOf,
		QueueCap: w.cfg.QueueCap, PayloadBytes: w.cfg.PayloadBytes, SweepGrace: w.cfg.SweepGrace, DrainTimeout: cmp.Or(w.mode.drain, cutOffAfter),
		Runs: schedule.NewRuns(w.store, schedule.RunsConfig{ // its metrics would be those of Run; the sweeper counts what it skips
			Missed: w.alarms.Missed, Logger: w.cfg.Logger,
		}),
		Target: w.targets.of, ClaimAll: true, MayClaim: w.writes.mayClaim, Settled: w.settled, Record: recorder.Record, Observe: w.cfg.observer(ctx),
		Logger: w.cfg.Logger, // its metrics would be those of Run's dispatcher
	})
	return err
}

// keepSessions keeps the sessions until the function that it returns is called.
func (w *sweepParts) keepSessions(ctx context.Context) (end func()) {
	if w.keeper == nil {
		return func() {}
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var kept sync.WaitGroup
	kept.Go(func() { w.keeper.Run(keeping) })
	w.watchSessions(ctx)
	return func() { stop(); kept.Wait() }
}

// watchSessions returns when the sweep has a session in each usable database, and has seen every other session either beat or end: claims of
// processes that are dead are recovered by it then. That takes half a second beside nodes that live, and 6 s after nodes have died.
func (w *sweepParts) watchSessions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, session.StandFor+2*time.Second)
	defer cancel()
	if w.keeper.Opened(ctx, true) != nil {
		return
	}
	first := make(map[string]uint64) // beats by session
	for w.someStill(first) && loop.Wait(ctx, 100*time.Millisecond) == nil {
	}
}

// someStill reports whether there is a session, or a database whose sessions were not read yet, that has shown no beat since it was first seen.
func (w *sweepParts) someStill(first map[string]uint64) (still bool) {
	for server := range w.store.Servers() {
		for _, database := range w.store.Usable(server) {
			members, read := w.keeper.Sessions(database)
			still = still || read.IsZero()
			for _, m := range members {
				if beat, known := first[m.ID]; !known {
					first[m.ID], still = m.Beat, still || !m.Self
				} else if beat == m.Beat && !m.Self {
					still = true
				}
			}
		}
	}
	return still
}
