// Command pictures draws what the panels of the dashboards show, an SVG file for each dashboard, from the data of a Prometheus.
// It is not Grafana: it draws the same queries, units, thresholds and places in a plain way, so that one can see whether a panel
// is empty or can't be read. Without -prometheus it runs the demo of package live first, in which a server goes down and comes
// back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tocsinhq/tocsin/internal/dashboards"
	"github.com/tocsinhq/tocsin/internal/dashboards/live"
	"github.com/tocsinhq/tocsin/internal/wait"
)

type options struct {
	prometheus, from, rules, to string
	over                        time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.prometheus, "prometheus", "", "URL of the Prometheus; \"\": run a demo first")
	flag.DurationVar(&o.over, "over", 4*time.Minute, "the time to draw, up to now; also how long the demo runs")
	flag.StringVar(&o.from, "from", "deploy/grafana/dashboards", "folder of the dashboards")
	flag.StringVar(&o.rules, "rules", "deploy/prometheus", "folder of the demo's rules")
	flag.StringVar(&o.to, "to", "bin/pictures", "folder of the pictures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.prometheus == "" {
		return demo(ctx, o)
	}
	p, err := live.Dial(o.prometheus)
	if err != nil {
		return err
	}
	return drawAll(ctx, p, o, time.Now().Add(-o.over))
}

// demo draws one that runs for o.over; its server goes down after a third of that.
func demo(ctx context.Context, o options) (err error) {
	fmt.Fprintf(os.Stderr, "pictures: a demo runs for %s\n", o.over)
	d, err := live.Start(ctx, live.Options{Rules: o.rules, Every: 2 * time.Second, Rate: 50, Sweep: 10 * time.Second, Upkeep: 20 * time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := wait.Until(ctx, d.Began.Add(o.over/3)); err != nil {
		return err
	}
	if err := d.BreakServer(ctx); err != nil {
		return err
	}
	if err := wait.Until(ctx, d.Began.Add(o.over)); err != nil {
		return err
	}
	return drawAll(ctx, d.Prometheus, o, d.Began)
}

// drawAll draws all dashboards and prints the names of the files.
func drawAll(ctx context.Context, p *live.Prometheus, o options, from time.Time) error {
	boards, err := dashboards.Read(o.from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.to, 0o755); err != nil {
		return err
	}
	to := time.Now()
	times := span{from: from, step: max(to.Sub(from)/200, time.Second).Round(time.Second)}
	times.n = int(to.Sub(from)/times.step) + 1
	for _, d := range boards {
		c, err := drawBoard(ctx, p, d, times)
		if err != nil {
			return fmt.Errorf("%s: %w", d.File, err)
		}
		path := filepath.Join(o.to, strings.TrimSuffix(d.File, ".json")+".svg")
		if err := os.WriteFile(path, []byte(c.String()), 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
