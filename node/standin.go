package node

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// standInEvery is the time between two looks whether this node may still stand in, and for which types.
const standInEvery = 500 * time.Millisecond

// standIns are the tables of other owners in which this node delivers the biz types that those lack.
type standIns struct {
	number func(bizType string) (uint64, bool) // of a biz type; false: unknown, or it can't be delivered here
	may    func() bool                         // whether this node may act on its view of the others: its lease is proven
	tables prometheus.Gauge
	news   chan struct{} // 1 slot: the duties have changed

	// Guarded by holder.mu.
	duties []assign.Duty
	held   map[int]*standIn // by table: those that intake and scan have
}

// standIn is the biz types that a node delivers in tables of one owner.
type standIn struct {
	owner  string
	types  []uint64
	tables []int
}

// newStandIns makes the stand-ins of a node that has no duties.
func newStandIns(number func(string) (uint64, bool), may func() bool, r prometheus.Registerer) standIns {
	return standIns{
		number: number, may: may, news: make(chan struct{}, 1), held: make(map[int]*standIn),
		tables: promauto.With(r).NewGauge(prometheus.GaugeOpts{
			Namespace: "tocsin", Subsystem: "standin", Name: "tables",
			Help: "Tables of other nodes in which this node delivers biz types that their owners lack.",
		}),
	}
}

// forget lets go of tables. Called under holder.mu.
func (s *standIns) forget(tables []int) {
	for _, table := range tables {
		delete(s.held, table)
	}
}

// wanted returns what the duties come to now; nothing while the node may not act.
func (s *standIns) wanted(duties []assign.Duty) (all []*standIn) {
	if !s.may() {
		return nil
	}
	for _, d := range duties {
		one := &standIn{owner: d.Owner, tables: d.Tables}
		for _, name := range d.Types {
			if n, ok := s.number(name); ok {
				one.types = append(one.types, n)
			}
		}
		if len(one.types) > 0 {
			all = append(all, one)
		}
	}
	return all
}

// setDuties replaces the duties. It returns at once.
func (h *holder) setDuties(duties []assign.Duty) {
	tables := 0
	for _, d := range duties {
		tables += len(d.Tables)
		h.limit.Of(h.log, "for "+d.Owner).Info("standing in for a node that lacks biz types",
			"owner", d.Owner, "biz_types", d.Types, "tables", len(d.Tables))
	}
	h.standIns.tables.Set(float64(tables))
	h.mu.Lock()
	h.standIns.duties = duties
	h.mu.Unlock()
	select {
	case h.standIns.news <- struct{}{}:
	default:
	}
}

// runStandIns has intake and scan follow the duties until ctx ends, and then gives up the tables.
func (h *holder) runStandIns(ctx context.Context) {
	tick := time.NewTicker(standInEvery)
	defer tick.Stop()
	for {
		h.mu.Lock()
		duties := h.standIns.duties
		h.mu.Unlock()
		h.standIn(h.standIns.wanted(duties))
		select {
		case <-ctx.Done():
			h.standIn(nil)
			return
		case <-h.standIns.news:
		case <-tick.C:
		}
	}
}

// standIn brings intake and scan to what is wanted. Tables that the node holds as its own are left out.
func (h *holder) standIn(wanted []*standIn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := make(map[int]*standIn)
	for _, w := range wanted {
		for _, table := range w.tables {
			now[table] = w
		}
	}
	var ended []int
	for table, is := range h.standIns.held {
		if next := now[table]; next == nil || is.owner != next.owner || !slices.Equal(is.types, next.types) {
			ended = append(ended, table)
		}
	}
	if slices.Sort(ended); len(ended) > 0 {
		h.standIns.forget(ended)
		h.scan.Set(ended, nil)
	}
	for _, w := range wanted {
		var begun []int
		for _, table := range w.tables {
			if _, owned := h.held[table]; !owned && h.standIns.held[table] == nil {
				h.standIns.held[table] = w
				begun = append(begun, table)
			}
		}
		if len(begun) > 0 {
			h.scan.Set(begun, &duequeue.Access{Owner: w.owner, Types: w.types})
		}
	}
}
