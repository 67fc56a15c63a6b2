package node

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// scope registers metrics for the length of one Run or Sweep, so that a Node
// may run again. The zero Registerer of a Config stays nil.
type scope struct {
	prometheus.Registerer

	mu   sync.Mutex
	made []prometheus.Collector
}

// newScope wraps r; nil gives nil.
func newScope(r prometheus.Registerer) (registerer prometheus.Registerer, end func()) {
	if r == nil {
		return nil, func() {}
	}
	s := &scope{Registerer: r}
	return s, s.end
}

// Register passes on and remembers.
func (s *scope) Register(c prometheus.Collector) error {
	if err := s.Registerer.Register(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, c)
	return nil
}

// MustRegister panics if one can't be registered: two nodes on one Registerer.
func (s *scope) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := s.Register(c); err != nil {
			panic(err)
		}
	}
}

// end takes back what was registered.
func (s *scope) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.made {
		s.Registerer.Unregister(c)
	}
	s.made = nil
}
