package health

import (
	"slices"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/store"
)

// Server is what the node knows about a server with several addresses.
type Server struct {
	Name      string           `json:"name"`      // in the config
	Address   string           `json:"address"`   // in use
	Failovers int64            `json:"failovers"` // moves to another address since the node started
	Addresses []mysql.Sighting `json:"addresses"` // what was last seen at each
}

// Servers returns the servers with several addresses that have answered.
func (h *Health) Servers() []Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []Server{} // an empty list in JSON, not null
	for _, name := range h.names {
		if s, ok := h.servers[name]; ok {
			all = append(all, s)
		}
	}
	return all
}

// addresses stores, exports and logs what was seen at the addresses of a server.
func (e *eye) addresses(found store.Survey) {
	if len(found.Addresses) == 0 {
		return
	}
	if e.term == nil {
		e.term = &found.Term
	}
	now := Server{Name: e.name, Failovers: found.Term - *e.term, Addresses: found.Addresses}
	for _, a := range found.Addresses {
		if a.Used {
			now.Address = a.Address
		}
		e.metrics.used.WithLabelValues(e.name, a.Address).Set(oneIf(a.Used))
		e.metrics.writes.WithLabelValues(e.name, a.Address).Set(oneIf(a.Writes))
	}
	e.mu.Lock()
	was := e.servers[e.name]
	e.servers[e.name] = now
	e.mu.Unlock()
	e.metrics.failovers.WithLabelValues(e.name).Add(float64(now.Failovers - was.Failovers))
	switch {
	case was.Address == "":
		e.log.Info("this address of the server takes writes and is used", "address", now.Address)
	case now.Failovers != was.Failovers:
		e.log.Warn("fail-over: another address of the server takes writes and is used now", "from", was.Address, "to", now.Address)
	}
	e.split(now)
}

// split logs that several servers take writes, once a minute while it lasts.
func (e *eye) split(now Server) {
	at := slices.IndexFunc(now.Addresses, func(a mysql.Sighting) bool { return a.Split })
	if at < 0 {
		return
	}
	other := now.Addresses[at]
	e.limit.Of(e.log, "split "+e.name+other.Address+other.Why).Error("two addresses of one server take writes: make the other read-only",
		"used", now.Address, "other", other.Address, "why", other.Why)
}
