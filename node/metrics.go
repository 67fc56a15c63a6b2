package node

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// modeMetric exports the node's mode, one gauge for each.
type modeMetric struct {
	desc *prometheus.Desc
	mode func() Mode
}

// Describe sends the one description.
func (m *modeMetric) Describe(to chan<- *prometheus.Desc) { to <- m.desc }

// Collect sends 1 for the present mode and 0 for the others.
func (m *modeMetric) Collect(to chan<- prometheus.Metric) {
	now := m.mode()
	for _, mode := range []Mode{Ownership, Rows, Claim, Sweeping, Waiting} {
		value := 0.
		if mode == now {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, string(mode))
	}
}

// export registers what concerns the node as a whole. r may be nil.
func (c Config) export(r prometheus.Registerer, mode func() Mode) {
	if r == nil {
		return
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tocsin_build_info", Help: "1; its labels say which program runs.",
		ConstLabels: prometheus.Labels{"version": c.Version, "schema": strconv.Itoa(layoutrow.SchemaVersion), "goversion": runtime.Version()},
	})
	build.Set(1)
	r.MustRegister(build, &modeMetric{mode: mode, desc: prometheus.NewDesc("tocsin_node_mode",
		"1 for the node's mode, 0 for the others: ownership; rows, nobody owns tables and it claims each row; claim, without a proven lease it claims each row; sweep, etcd has been away since its start and it claims what is overdue; waiting, it delivers nothing.", []string{"mode"}, nil)})
}

// certificatesEvery is how often certificates looks at what connections have shown.
const certificatesEvery = 5 * time.Second

// certificates exports when the certificates of the node's connections expire. Without TLS it exports nothing.
type certificates struct {
	store   *store.Store
	etcd    *mysql.Expiry
	expires *prometheus.GaugeVec
}

func newCertificates(s *store.Store, etcd *mysql.Expiry, r prometheus.Registerer) *certificates {
	return &certificates{store: s, etcd: etcd, expires: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "tocsin", Subsystem: "node", Name: "certificate_expires_timestamp_seconds",
		Help: "When the first of the certificates expires that connections to a server, or to etcd, use: theirs or the node's. In Unix time, as of the last connection; only with TLS.",
	}, []string{"of"})}
}

// run looks at intervals, until ctx ends.
func (c *certificates) run(ctx context.Context) {
	for {
		for i, name := range c.store.Servers() {
			c.export(name, c.store.CertificateExpires(i))
		}
		c.export("etcd", c.etcd.At())
		if loop.Wait(ctx, certificatesEvery) != nil {
			return
		}
	}
}

func (c *certificates) export(of string, at time.Time) {
	if !at.IsZero() {
		c.expires.WithLabelValues(of).Set(float64(at.Unix()))
	}
}

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
