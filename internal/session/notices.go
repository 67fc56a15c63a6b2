package session

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// notices are what the callbacks are to be told. Guarded by Keeper.mu.
type notices struct {
	changed, moved []int
	gone           map[int][]string
}

func (n *notices) addGone(database int, ids ...string) {
	if n.gone == nil {
		n.gone = map[int][]string{}
	}
	n.gone[database] = append(n.gone[database], ids...)
}

// wake has the callbacks called if there is something to tell. Called under mu.
func (k *Keeper) wake() {
	if len(k.pending.changed)+len(k.pending.moved)+len(k.pending.gone) > 0 {
		signal(k.notices)
	}
}

// tellOthers calls the callbacks until done is closed and nothing is left to tell.
func (k *Keeper) tellOthers(done <-chan struct{}) {
	for {
		select {
		case <-k.notices:
			k.deliver()
		case <-done:
			k.deliver()
			return
		}
	}
}

func (k *Keeper) deliver() {
	k.mu.Lock()
	n := k.pending
	k.pending = notices{}
	k.mu.Unlock()
	if databases := once(n.moved); len(databases) > 0 && k.cfg.Moved != nil {
		k.cfg.Moved(databases)
	}
	for _, database := range slices.Sorted(maps.Keys(n.gone)) {
		if k.cfg.Gone != nil {
			k.cfg.Gone(database, once(n.gone[database]))
		}
	}
	if databases := once(n.changed); len(databases) > 0 && k.cfg.Changed != nil {
		k.cfg.Changed(databases)
	}
}

// once sorts values, and leaves each once.
func once[T int | string](values []T) []T {
	slices.Sort(values)
	return slices.Compact(values)
}

type metrics struct {
	lost, ended prometheus.Counter
	failures    *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, trusted func() int) *metrics {
	f := promauto.With(r)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "tocsin", Subsystem: "session", Name: name, Help: help}
	}
	f.NewGaugeFunc(prometheus.GaugeOpts(opts("trusted_databases", "Databases in which the session of this process is trusted: it has beaten in the last 3 s.")), func() float64 { return float64(trusted()) })
	return &metrics{
		lost:     f.NewCounter(prometheus.CounterOpts(opts("lost_total", "Sessions of this process that others ended."))),
		ended:    f.NewCounter(prometheus.CounterOpts(opts("ended_total", "Sessions of others that this process ended, as they showed no sign of life."))),
		failures: f.NewCounterVec(prometheus.CounterOpts(opts("failures_total", "Beats and reads of sessions that failed, and sessions that could not be opened.")), []string{"server"}),
	}
}
