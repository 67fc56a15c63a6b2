package pull

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	waiters  *prometheus.GaugeVec
	reserved *prometheus.CounterVec
	settled  *prometheus.CounterVec
	held     *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		waiters:  f.NewGaugeVec(prometheus.GaugeOpts{Name: "tocsin_pull_waiters", Help: "Workers that wait for tasks of a biz type at this node."}, []string{"biz_type"}),
		reserved: f.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_pull_reserved_total", Help: "Tasks handed to workers."}, []string{"biz_type"}),
		settled: f.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_pull_settled_total", Help: "Leases that workers ended, by what they asked for, and whether it counted: done, already, lost.",
		}, []string{"biz_type", "verb", "result"}),
		held: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tocsin_pull_lease_seconds", Help: "Age of leases when workers ended them.", Buckets: []float64{.1, 1, 10, 60},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"biz_type"}),
	}
}
