package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

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
		if wait.For(ctx, certificatesEvery) != nil {
			return
		}
	}
}

func (c *certificates) export(of string, at time.Time) {
	if !at.IsZero() {
		c.expires.WithLabelValues(of).Set(float64(at.Unix()))
	}
}
