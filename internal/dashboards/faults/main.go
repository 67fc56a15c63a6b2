package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/dashboards"
	"github.com/tocsinhq/tocsin/internal/wait"
)

type options struct {
	tocsin, rules, panels string
	only                  *regexp.Regexp
	last, calm            time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.tocsin, "tocsin", "bin/tocsin", "the program")
	flag.StringVar(&o.rules, "rules", "deploy/prometheus", "folder of the rules")
	flag.StringVar(&o.panels, "panels", "deploy/grafana/dashboards", "folder of the dashboards")
	only := flag.String("only", "", "regular expression of the faults to play; all if empty")
	flag.DurationVar(&o.last, "last", 45*time.Second, "how long each fault lasts")
	flag.DurationVar(&o.calm, "calm", 15*time.Second, "pause after each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if o.only, err = regexp.Compile(*only); err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	panels, err := panelsOf(o.panels)
	if err != nil {
		return err
	}
	p := &place{opts: o}
	defer p.stop()
	if err := p.start(ctx); err != nil {
		return err
	}
	adding, end := context.WithCancel(ctx)
	var load sync.WaitGroup
	load.Go(func() { p.add(adding) })
	defer load.Wait()
	defer end()
	fmt.Printf("Every `for` and every window of the rules is divided by %d (windows are at least %s), Prometheus looks every %s; thresholds are as they are. Each fault lasts %s.\n\n", factor, shortest, scrapes, o.last)
	fmt.Printf("| fault | alert | pending after | fires after | panels | `tocsin task why` of a task that waits |\n|---|---|---|---|---|---|\n")
	if err := wait.For(ctx, 20*time.Second); err != nil {
		return err
	}
	for _, f := range faults {
		if !o.only.MatchString(f.name) {
			continue
		}
		if err := p.play(ctx, f, panels); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// panelsOf returns by alert the panels that link to its section of the runbook, "Overview: Dead tasks". A report names two.
func panelsOf(dir string) (map[string][]string, error) {
	all, err := dashboards.Read(dir)
	by := map[string][]string{}
	for _, d := range all {
		for _, panel := range d.Panels {
			for _, link := range panel.Links {
				if alert, ok := strings.CutPrefix(link.Title, "Runbook: "); ok {
					by[alert] = append(by[alert], strings.TrimPrefix(d.Title, "Tocsin / ")+": "+panel.Title)
				}
			}
		}
	}
	return by, err
}

// seen is when an alert was first pending and firing, after the beginning of a fault; 0: not seen.
type seen struct{ pending, firing time.Duration }

// play breaks the place for a while, and prints a row for each alert that was not there before.
func (p *place) play(ctx context.Context, f fault, panels map[string][]string) error {
	before, err := p.prom.Alerts(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f.begin(ctx, p); err != nil {
		return err
	}
	found, why := map[string]seen{}, ""
	for time.Since(began) < p.opts.last {
		if err := wait.For(ctx, 500*time.Millisecond); err != nil {
			return err
		}
		now, err := p.prom.Alerts(ctx)
		if err != nil {
			return err
		}
		note(found, before, now, time.Since(began))
		if why == "" && time.Since(began) > p.opts.last*2/3 {
			why = p.why(ctx, began, f)
		}
	}
	report(f.name, found, panels, why)
	if err := f.end(ctx, p); err != nil {
		return err
	}
	return wait.For(ctx, p.opts.calm)
}

// note adds what is new.
func note(found map[string]seen, before, now map[string]string, after time.Duration) {
	for name, state := range now {
		s := found[name]
		if before[name] == state || before[name] == "firing" {
			continue
		}
		if s.pending == 0 {
			s.pending = after
		}
		if state == "firing" && s.firing == 0 {
			s.firing = after
		}
		found[name] = s
	}
}

// why asks `tocsin task why` about a task that fell due during the fault.
func (p *place) why(ctx context.Context, began time.Time, f fault) string {
	id, ok := p.waiting(began.Add(4*time.Second), f.waits)
	if !ok {
		if id, ok = p.waiting(began, f.waits); !ok {
			return "(no task)"
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.opts.tocsin, "task", "why", id.String(), "--config", p.config(), "--ask", strings.Join(p.pages[:], ",")).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) < 2 {
		return fmt.Sprintf("(%v)", err)
	}
	return lines[1]
}

func report(name string, found map[string]seen, panels map[string][]string, why string) {
	var rows []string
	for alert, s := range found {
		base, _, _ := strings.Cut(alert, ",")
		fires := "-"
		if s.firing > 0 {
			fires = fmt.Sprintf("%.0f s", s.firing.Seconds())
		}
		rows = append(rows, fmt.Sprintf("%05.0f | %s | %.0f s | %s | %s |", s.pending.Seconds(), alert, s.pending.Seconds(), fires, strings.Join(panels[base][:min(len(panels[base]), 2)], "; ")))
	}
	slices.Sort(rows)
	for _, row := range rows {
		_, row, _ = strings.Cut(row, "| ")
		fmt.Printf("| %s | %s %s |\n", name, row, strings.ReplaceAll(why, "|", "/"))
		name, why = "", ""
	}
	if len(rows) == 0 {
		fmt.Printf("| %s | none | | | | %s |\n", name, why)
	}
}
