package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/push"
)

const (
	pushWithin = 10 * time.Second
	maxPage    = 64 << 20 // bytes of a Pushgateway's page that are read
)

// push sends what from gathers, the run's own metrics among it, to the Pushgateway at url, in place of what was pushed there
// before as job name. If the last run failed, the time of the last success is taken from what it replaces.
func (l *LastRun) push(ctx context.Context, url, name string, from prometheus.Gatherer) error {
	if l.failed {
		before, err := pushed(ctx, url, l.success, name)
		if err != nil {
			return err
		}
		l.succeeded.Set(before)
	}
	return Push(ctx, url, name, from)
}

// Push sends what from gathers to the Pushgateway at url, in place of what was pushed there before as job name. It takes at
// most 10 s, and ends early with ctx.
func Push(ctx context.Context, url, name string, from prometheus.Gatherer) error {
	ctx, cancel := context.WithTimeout(ctx, pushWithin)
	defer cancel()
	if err := push.New(url, name).Gatherer(from).PushContext(ctx); err != nil {
		return fmt.Errorf("push metrics: %w", err)
	}
	return nil
}

// pushed returns the value of a metric that was pushed before as a job; 0 if there is none.
func pushed(ctx context.Context, url, metric, job string) (value float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read pushed metrics: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("read pushed metrics: %s answers %s", url, resp.Status)
	}
	return valueIn(io.LimitReader(resp.Body, maxPage), metric, fmt.Sprintf("job=%q", job))
}
