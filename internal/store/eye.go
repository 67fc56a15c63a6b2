package store

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// eye looks at one server. It belongs to one goroutine.
type eye struct {
	*Health
	server int
	name   string
	log    *slog.Logger
	failed int        // failed looks in a row
	seen   bool       // it has answered before
	term   *int64     // moves to another address in this process before the node started; nil: not known yet
	far    bool       // its clock is far from this machine's
	known  []Database // as last published
}

func newEye(h *Health, server int) *eye {
	e := &eye{Health: h, server: server, name: h.names[server], log: h.cfg.Logger.With("server", h.names[server])}
	state := h.State()
	for _, n := range h.cfg.Servers.DatabasesOf(server) {
		e.known = append(e.known, state[n])
	}
	return e
}

// look surveys the server.
func (e *eye) look(ctx context.Context) {
	timed, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := e.cfg.Servers.Survey(timed, e.server)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		e.addresses(found)
		e.lost(err)
	default:
		e.answered(found)
	}
}

// lost notes that the server can't be asked. A server that has never answered is
// unreachable at once.
func (e *eye) lost(err error) {
	e.failed++
	e.metrics.up.WithLabelValues(e.name).Set(0)
	why := fmt.Sprintf("server %s can't be used: %v", e.name, err)
	if mysql.ClassOf(err) == mysql.Canceled {
		why = fmt.Sprintf("server %s does not answer within %s", e.name, lookTimeout)
	}
	e.limit.Of(e.log, "lost "+e.name).Warn("server "+mysql.Fault(err), "error", err)
	if e.seen && e.failed < lostAfter {
		return
	}
	e.tell(func(d *Database) { d.Is, d.Why = Unreachable, why })
}

// answered handles what the server said.
func (e *eye) answered(found Survey) {
	if e.failed > 0 {
		e.limit.Of(e.log, "answers "+e.name).Info("server answers again")
	}
	e.failed, e.seen = 0, true
	e.metrics.up.WithLabelValues(e.name).Set(1)
	e.clock(found.Offset)
	e.addresses(found)
	e.tell(func(d *Database) {
		d.Is, d.Why = Usable, ""
		switch wrong, flawed := found.Unusable[d.Number], found.Flawed[d.Number]; {
		case wrong != nil:
			d.Is, d.Why = Wrong, wrong.Error()
		case flawed != nil:
			d.Why = fmt.Sprintf("%s on %s lacks a table or a right, `tocsin doctor` says which: %v", d.Name, d.Server, flawed)
		case found.Full != nil:
			d.Why = fmt.Sprintf("server %s has no room for what is written: %v", d.Server, found.Full)
		case found.ReadOnly != "":
			d.Why = fmt.Sprintf("server %s is read-only, %s: outcomes wait until it takes writes", d.Server, found.ReadOnly)
		}
	})
}

// clock exports the server's clock, and logs when it is far from this machine's.
// Tasks are due by the server's clock, so that delays nothing; but people compare
// times.
func (e *eye) clock(o Offset) {
	e.metrics.offset.WithLabelValues(e.name).Set(o.Ahead.Seconds())
	far := o.Ahead.Abs()-o.RoundTrip > offsetLimit
	switch {
	case far && !e.far:
		e.log.Warn("server's clock is far from this machine's: tasks are due by the server's", "offset", o.Ahead)
	case !far && e.far:
		e.log.Info("server's clock is near this machine's again", "offset", o.Ahead)
	}
	e.far = far
}

// tell judges each database of the server, and publishes and logs the result.
func (e *eye) tell(judge func(*Database)) {
	now := make([]Database, len(e.known))
	var back, wrong, flawed []Database
	for i, was := range e.known {
		now[i] = was
		judge(&now[i])
		switch d := now[i]; {
		case d.Is != Usable:
			wrong = append(wrong, d)
		case d.Why != "":
			flawed = append(flawed, d)
		case was.Why != "":
			back = append(back, d)
		}
	}
	e.known = now
	e.publish(now)
	e.say(slog.LevelError, wrong, "databases can't be used: their tables wait, or go to nodes that can use them")
	e.say(slog.LevelWarn, flawed, "databases are used, but something is wrong with them")
	e.say(slog.LevelInfo, back, "databases can be used again")
}

// say writes one line about some databases, at once and then once a minute. A new
// reason is logged at once: an operator who has mended the first one waits for a
// line. There are few different reasons, except for a server that does not answer:
// its reason contains the error, so it does not count as new.
func (e *eye) say(level slog.Level, some []Database, message string) {
	if len(some) == 0 {
		return
	}
	names := make([]string, len(some))
	for i, d := range some {
		names[i] = d.Name
	}
	cause := fmt.Sprint(message, names)
	if some[0].Is != Unreachable {
		cause += some[0].Why
	}
	args := []any{"databases", names}
	if some[0].Why != "" {
		args = append(args, "why", some[0].Why)
	}
	e.limit.Of(e.log, cause).Log(context.Background(), level, message, args...)
}

// addresses stores, exports and logs what was seen at the addresses of a server.
func (e *eye) addresses(found Survey) {
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
	case now.Address == "": // none was chosen yet
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
