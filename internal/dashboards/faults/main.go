package main

import (
	"cmp"
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
	"github.com/tocsinhq/tocsin/internal/loop"
)

type options struct {
	tocsin, rules, panels string
	only                  *regexp.Regexp
	last, calm            time.Duration
	factor                int
}

func main() {
	var o options
	flag.StringVar(&o.tocsin, "tocsin", "bin/tocsin", "the program")
	flag.StringVar(&o.rules, "rules", "deploy/prometheus", "folder of the rules")
	flag.StringVar(&o.panels, "panels", "deploy/grafana/dashboards", "folder of the dashboards")
	only := flag.String("only", "", "regular expression of the faults to play; all if empty")
	flag.IntVar(&o.factor, "factor", 30, "by which the rules are shortened; with 1 let a fault last for minutes")
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
	fmt.Printf("Every `for` and every window of the rules is divided by %d (windows are at least %s), Prometheus looks every %s; thresholds are as they are. Each fault lasts %s.\n\n", o.factor, shortest, scrapes, o.last)
	fmt.Printf("| fault | alert | pending after | fires after | with the rules as they are | people are told | panels | command | took | it says |\n|---|---|---|---|---|---|---|---|---|---|\n")
	if err := loop.Wait(ctx, 20*time.Second); err != nil {
		return err
	}
	for _, f := range faults {
		if !o.only.MatchString(f.name) || p.disk == nil && strings.Contains(f.name, "disk") {
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

// seen is when an alert was first pending and firing, after the beginning of a fault, and would have fired with the `for` of its
// rule as it is; 0: not seen.
type seen struct{ pending, firing, real time.Duration }

// play breaks the place for a while, and prints a row for each alert that was not there before.
func (p *place) play(ctx context.Context, f fault, panels map[string][]string) error {
	before, err := p.alerts(ctx)
	if err != nil {
		return err
	}
	p.tellsAnew()
	began := time.Now()
	if err := f.begin(ctx, p); err != nil {
		return err
	}
	found, said := map[string]seen{}, answer{}
	for time.Since(began) < p.opts.last {
		if err := loop.Wait(ctx, 500*time.Millisecond); err != nil {
			return err
		}
		now, err := p.alerts(ctx)
		if err != nil {
			return err
		}
		note(found, before, now, time.Since(began))
		if said.command == "" && time.Since(began) > p.opts.last*2/3 {
			said = p.ask(ctx, began, f)
		}
	}
	pauses, err := p.pauses(ctx)
	if err != nil {
		return err
	}
	for alert, s := range found {
		if s.firing > 0 {
			s.real = s.pending + time.Duration(p.opts.factor)*nearest(pauses[alert], s.firing-s.pending)
			found[alert] = s
		}
	}
	report(f.name, found, p.tellsAnew(), panels, said)
	if err := f.end(ctx, p); err != nil {
		return err
	}
	return loop.Wait(ctx, p.opts.calm)
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

// answer is what a command said of a fault.
type answer struct {
	command string
	took    time.Duration
	line    string
}

// ask asks the fault's command, or `tocsin task why` about a task that fell due during the fault.
func (p *place) ask(ctx context.Context, began time.Time, f fault) answer {
	asks, says := f.asks, regexp.MustCompile(f.says)
	if f.waits != nil {
		id, ok := p.waiting(began.Add(4*time.Second), f.waits)
		if !ok {
			if id, ok = p.waiting(began, f.waits); !ok {
				return answer{command: "task why", line: "(no task)"}
			}
		}
		asks, says = []string{"task", "why", id.String(), "--ask", "PAGES"}, regexp.MustCompile(`^[a-z_]+: `)
	}
	args := slices.Clone(asks)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "PAGES", strings.Join(p.pages[:], ","))
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	began = time.Now()
	out, err := p.command(ctx, args...).Output()
	a := answer{"tocsin " + strings.Join(asks[:min(len(asks), 2)], " "), time.Since(began), fmt.Sprintf("(does not say it: %v)", err)}
	for line := range strings.Lines(string(out)) {
		if says.MatchString(line) {
			a.line = strings.ReplaceAll(strings.TrimSpace(line), "|", "/")
			break
		}
	}
	return a
}

// command prepares a call of the program with the place's config.
func (p *place) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, p.opts.tocsin, append(args, "--config", p.config())...)
}

// report prints the rows of a fault. told are the alerts that people got.
func report(name string, found map[string]seen, told map[string]bool, panels map[string][]string, said answer) {
	raised, first := 0, time.Duration(0)
	var rows []string
	for alert, s := range found {
		base, _, _ := strings.Cut(alert, ",")
		fires, real, is := "-", "-", ""
		if s.firing > 0 {
			fires, real = fmt.Sprintf("%.0f s", s.firing.Seconds()), fmt.Sprintf("%.0f s", s.real.Seconds())
			raised++
			if first == 0 || s.real < first {
				first = s.real
			}
		}
		if told[alert] {
			is = "yes"
		}
		rows = append(rows, fmt.Sprintf("%05.0f | %s | %.0f s | %s | %s | %s | %s |", s.pending.Seconds(), alert, s.pending.Seconds(), fires, real, is, strings.Join(panels[base][:min(len(panels[base]), 2)], "; ")))
	}
	slices.Sort(rows)
	fmt.Printf("| %s | %d raised | | | first %.0f s | %d | | %s | %.1f s | %s |\n", name, raised, first.Seconds(), len(told), said.command, said.took.Seconds(), said.line)
	for _, row := range rows {
		_, row, _ = strings.Cut(row, "| ")
		fmt.Printf("| | %s | | |\n", row)
	}
}

// nearest returns the pause that is nearest to what was seen.
func nearest(pauses []time.Duration, seen time.Duration) time.Duration {
	if len(pauses) == 0 {
		return seen
	}
	return slices.MinFunc(pauses, func(a, b time.Duration) int { return cmp.Compare((a - seen).Abs(), (b - seen).Abs()) })
}
