package node

import (
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
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
