package node

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// scope registers metrics for the length of one Run or Sweep, so that a Node
// may run again. The zero Registerer of a Config stays nil.
type scope struct {
	prometheus.Registerer

	mu     sync.Mutex
	made   []prometheus.Collector
	failed error // the first failed registration
}

// newScope wraps r.
func newScope(r prometheus.Registerer) *scope { return &scope{Registerer: r} }

// registerer returns the Registerer for the engines; nil if there is none.
func (s *scope) registerer() prometheus.Registerer {
	if s.Registerer == nil {
		return nil
	}
	return s
}

// Register passes the collector on and remembers it. It also remembers the first
// error.
func (s *scope) Register(c prometheus.Collector) error {
	err := s.Registerer.Register(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = cmp.Or(s.failed, err)
		return err
	}
	s.made = append(s.made, c)
	return nil
}

// MustRegister leaves an error to check, while other Registerers panic: a mistake in
// the metrics must not end the process.
func (s *scope) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = s.Register(c)
	}
}

// check returns nil if all metrics are registered.
func (s *scope) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		return nil
	}
	return fmt.Errorf("node: metrics: %w: give each node a Registerer of its own, such as prometheus.WrapRegistererWith makes", s.failed)
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
