package devcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// WatchOptions say how Prometheus watches a cluster.
type WatchOptions struct {
	Port  int           // of Prometheus; 0: a free one
	Every time.Duration // between two looks; 0: 5 s
	Rules []string      // absolute paths of files with rules; patterns may name several
}

// Watch starts a Prometheus that collects the metrics of all parts, and returns its URL. It returns devserver.ErrNoPrometheus
// if none is installed. Stop ends it.
func (c *Cluster) Watch(ctx context.Context, opts WatchOptions) (url string, err error) {
	if c.watcher != nil {
		return "", errors.New("devcluster: a Prometheus watches already")
	}
	if opts.Every == 0 {
		opts.Every = 5 * time.Second
	}
	c.watcher, err = devserver.StartPrometheus(ctx, devserver.PrometheusConfig{Port: opts.Port, Text: c.scrapeConfig(opts)})
	if err != nil {
		return "", err
	}
	return c.watcher.URL(), nil
}

// WatcherURL returns the URL of the Prometheus that Watch has started; "" if there is none.
func (c *Cluster) WatcherURL() string {
	if c.watcher == nil {
		return ""
	}
	return c.watcher.URL()
}

// job is one scrape job. Its name and labels are those that docs/operations.md recommends.
const job = `  - job_name: %s
    static_configs:
`

const scrapeTarget = `      - targets: [%q]
        labels: {cluster: %s, instance: %s, __metrics_path__: /%s/metrics}
`

const etcdTarget = `      - targets: [%q]
        labels: {cluster: %s, instance: etcd}
`

// scrapeConfig is the configuration of Prometheus.
func (c *Cluster) scrapeConfig(opts WatchOptions) string {
	var b strings.Builder
	fmt.Fprintf(&b, "global: {scrape_interval: %s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}\nrule_files:\n", opts.Every)
	for _, path := range opts.Rules {
		fmt.Fprintf(&b, "  - %q\n", path)
	}
	target := func(exporter string) {
		fmt.Fprintf(&b, scrapeTarget, c.page.listener.Addr(), ClusterID, exporter, exporter)
	}
	fmt.Fprintf(&b, "scrape_configs:\n"+job, "tocsin")
	for _, name := range c.names {
		target(name)
	}
	fmt.Fprintf(&b, job, "services")
	target(pageServices)
	fmt.Fprintf(&b, job, "node")
	target(pageUpkeep)
	if c.Etcd != nil {
		fmt.Fprintf(&b, job, "etcd")
		fmt.Fprintf(&b, etcdTarget, c.Etcd.Endpoint(), ClusterID)
	}
	return b.String()
}
