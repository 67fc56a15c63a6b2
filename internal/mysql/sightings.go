package mysql

import "context"

// Sighting is what was seen at one of several addresses of a server.
type Sighting struct {
	Address string `json:"address"`
	Used    bool   `json:"used"`   // statements go there
	Writes  bool   `json:"writes"` // it takes writes
	Split   bool   `json:"split"`  // it takes writes too, beside the address in use
	Silent  bool   `json:"silent"` // it does not answer
	Why     string `json:"why"`    // what it is, in a few words

	ReadOnly bool `json:"-"` // it answers, and takes no writes
}

// Term counts the moves to another address. While it stays the same, all statements have gone
// to one server. It is 0 for a server with one address.
func (s *Server) Term() int64 {
	if s.home == nil {
		return 0
	}
	return s.home.term.Load()
}

// Moved has a value when Term has grown; nil for a server with one address. One goroutine may
// receive from it.
func (s *Server) Moved() <-chan struct{} { return s.moved }

// Sightings returns what was last seen at each address, in the order of the DSN; nil for a
// server with one address. It waits until all were looked at once, or ctx ends.
func (s *Server) Sightings(ctx context.Context) []Sighting {
	if s.home == nil {
		return nil
	}
	s.home.await(ctx)
	s.home.mu.Lock()
	defer s.home.mu.Unlock()
	all := make([]Sighting, len(s.home.members))
	for i := range all {
		all[i] = s.home.state(i)
	}
	return all
}

// await waits until all addresses were looked at.
func (h *home) await(ctx context.Context) {
	for {
		h.mu.Lock()
		news, all := h.news, true
		for _, m := range h.members {
			all = all && m.sight.seen
		}
		h.mu.Unlock()
		if all {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
	}
}

// state words what was seen at an address. Called under the lock.
func (h *home) state(i int) Sighting {
	s := h.members[i].sight
	is := Sighting{Address: h.members[i].addr, Used: i == h.using, Writes: s.writes(), Silent: s.err != nil && !s.refuses(), ReadOnly: s.readOnly != ""}
	if h.using >= 0 {
		in := h.members[h.using].sight
		is.Split = !is.Used && is.Writes && in.writes() && s.process != in.process
	}
	is.Why = s.why(h.known, is)
	return is
}

func (s sight) why(known string, is Sighting) string {
	switch {
	case !s.seen:
		return "not looked at yet"
	case s.err != nil:
		return s.err.Error()
	case s.readOnly != "":
		return "is read-only: " + s.readOnly
	case is.Used:
		return "takes writes, in use"
	case s.marker != known && known != "":
		return "takes writes, but its databases are not those of the address in use: not used"
	case s.left:
		return "takes writes, but another address took over from it and it was no replica since: not used"
	case is.Split:
		return "takes writes beside the address in use: not used"
	}
	return "takes writes"
}
