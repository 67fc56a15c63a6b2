package chaos

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/tocsinhq/tocsin/internal/dashboards"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// The options of make alerts.
var (
	alertProgram = flag.String("tocsin", "bin/tocsin", "the program")
	alertRules   = flag.String("rules", "deploy/prometheus", "folder of the rules")
	alertPanels  = flag.String("panels", "deploy/grafana/dashboards", "folder of the dashboards")
	alertOnly    = flag.String("only", "", "regular expression of the faults to play; all if empty")
	alertFactor  = flag.Int("factor", 30, "by which the rules are shortened; with 1 let a fault last for minutes")
	alertLast    = flag.Duration("last", 45*time.Second, "how long each fault lasts")
	alertCalm    = flag.Duration("calm", 15*time.Second, "pause after each")
)

const (
	shortest = 8 * time.Second // a window
	scrapes  = time.Second     // between two looks of Prometheus
)

// TestAlerts breaks a whole Tocsin in many ways, one after another, watched by a Prometheus with the rules of deploy/prometheus,
// and prints a table: which alert was pending and fired after how long, whether Alertmanager with alertmanager.example.yaml told
// people of it, which panels show it, and what a command of tocsin says of it.
//
// To end within a quarter of an hour it shortens every `for` and every window of the rules by the same factor, and says so;
// thresholds stay as they are. So alerts on what is old by minutes, such as TocsinTaskOverdue, can't be seen here.
func TestAlerts(t *testing.T) {
	onlyLong(t)
	only, err := regexp.Compile(*alertOnly)
	if err != nil {
		t.Fatal(err)
	}
	panels := panelsByAlert(t)
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	a := watched(ctx, t)
	if a.disk == nil {
		fmt.Fprintln(os.Stderr, "The fault \"the disk is full\" can't be played:", a.noDisk)
	}
	adding, end := context.WithCancel(ctx)
	var load sync.WaitGroup
	load.Go(func() { a.add(adding) })
	defer load.Wait()
	defer end()
	fmt.Printf("Every `for` and every window of the rules is divided by %d (windows are at least %s), Prometheus looks every %s; thresholds are as they are. Each fault lasts %s.\n\n",
		*alertFactor, shortest, scrapes, *alertLast)
	fmt.Printf("| fault | alert | pending after | fires after | with the rules as they are | people are told | panels | command | took | it says |\n|---|---|---|---|---|---|---|---|---|---|\n")
	a.orFail(loop.Wait(ctx, 20*time.Second))
	for _, f := range a.outages() {
		if only.MatchString(f.name) && (a.disk != nil || !strings.Contains(f.name, "disk")) {
			a.play(ctx, f, panels)
		}
	}
}

// panelsByAlert returns by alert the panels that link to its section of the runbook, "Overview: Dead tasks". A report names two.
func panelsByAlert(t *testing.T) map[string][]string {
	t.Helper()
	all, err := dashboards.Read(*alertPanels)
	if err != nil {
		t.Fatal(err)
	}
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
	return by
}

// alert is when one was first pending and firing, after the beginning of a fault, and would have fired with the `for` of its
// rule as it is; 0: not seen.
type alert struct{ pending, firing, real time.Duration }

// play breaks the cluster for a while, and prints a row for each alert that was not there before.
func (a *watchedCluster) play(ctx context.Context, f outage, panels map[string][]string) {
	a.t.Helper()
	before := a.alerts(ctx)
	a.tellsAnew()
	began := time.Now()
	f.begin()
	found, said := map[string]alert{}, answer{}
	for time.Since(began) < *alertLast {
		a.orFail(loop.Wait(ctx, 500*time.Millisecond))
		spot(found, before, a.alerts(ctx), time.Since(began))
		if said.command == "" && time.Since(began) > *alertLast*2/3 {
			said = a.ask(began, f)
		}
	}
	pauses := a.pauses(ctx)
	for name, s := range found {
		if s.firing > 0 {
			s.real = s.pending + time.Duration(*alertFactor)*nearest(pauses[name], s.firing-s.pending)
			found[name] = s
		}
	}
	report(f.name, found, a.tellsAnew(), panels, said)
	f.end()
	a.orFail(loop.Wait(ctx, *alertCalm))
}

// spot adds what is new.
func spot(found map[string]alert, before, now map[string]string, after time.Duration) {
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

// alerts returns the states of all alerts that are pending or fire: "TocsinServerDown, critical" is "firing".
func (a *watchedCluster) alerts(ctx context.Context) map[string]string {
	a.t.Helper()
	found, err := a.prom.Alerts(ctx)
	a.orFail(err)
	states := map[string]string{}
	for _, is := range found.Alerts {
		name := string(is.Labels["alertname"]) + ", " + string(is.Labels["severity"])
		if states[name] != string(promv1.AlertStateFiring) {
			states[name] = string(is.State)
		}
	}
	return states
}

// pauses returns how long each alert must hold before it fires, its `for`, under the names of alerts. Several rules may have
// one name.
func (a *watchedCluster) pauses(ctx context.Context) map[string][]time.Duration {
	a.t.Helper()
	found, err := a.prom.Rules(ctx, nil)
	a.orFail(err)
	pauses := map[string][]time.Duration{}
	for _, group := range found.Groups {
		for _, rule := range group.Rules {
			if r, ok := rule.(promv1.AlertingRule); ok {
				name := r.Name + ", " + string(r.Labels["severity"])
				pauses[name] = append(pauses[name], time.Duration(r.Duration*float64(time.Second)))
			}
		}
	}
	return pauses
}

// nearest returns the pause that is nearest to what was seen.
func nearest(pauses []time.Duration, seen time.Duration) time.Duration {
	if len(pauses) == 0 {
		return seen
	}
	return slices.MinFunc(pauses, func(a, b time.Duration) int { return cmp.Compare((a - seen).Abs(), (b - seen).Abs()) })
}

// answer is what a command said of a fault.
type answer struct {
	command string
	took    time.Duration
	line    string
}

// ask asks the fault's command, or `tocsin task why` about a task that fell due during the fault.
func (a *watchedCluster) ask(began time.Time, f outage) answer {
	asks, says := f.asks, regexp.MustCompile(f.says)
	if f.waits != nil {
		id, ok := a.waiting(began.Add(4*time.Second), f.waits)
		if !ok {
			if id, ok = a.waiting(began, f.waits); !ok {
				return answer{command: "task why", line: "(no task)"}
			}
		}
		asks, says = []string{"task", "why", id.String(), "--ask", a.pages()}, regexp.MustCompile(`^[a-z_]+: `)
	}
	got := a.commandIn(30*time.Second, asks...)
	said := answer{"tocsin " + strings.Join(asks[:min(len(asks), 2)], " "), got.took, fmt.Sprintf("(does not say it: exit status %d)", got.code)}
	for line := range strings.Lines(got.stdout) {
		if says.MatchString(line) {
			said.line = strings.ReplaceAll(strings.TrimSpace(line), "|", "/")
			break
		}
	}
	return said
}

// report prints the rows of a fault. told are the alerts that people got.
func report(name string, found map[string]alert, told map[string]bool, panels map[string][]string, said answer) {
	raised, first := 0, time.Duration(0)
	var rows []string
	for name, s := range found {
		base, _, _ := strings.Cut(name, ",")
		fires, real, is := "-", "-", ""
		if s.firing > 0 {
			fires, real = fmt.Sprintf("%.0f s", s.firing.Seconds()), fmt.Sprintf("%.0f s", s.real.Seconds())
			raised++
			if first == 0 || s.real < first {
				first = s.real
			}
		}
		if told[name] {
			is = "yes"
		}
		rows = append(rows, fmt.Sprintf("%05.0f | %s | %.0f s | %s | %s | %s | %s |", s.pending.Seconds(), name, s.pending.Seconds(), fires, real, is, strings.Join(panels[base][:min(len(panels[base]), 2)], "; ")))
	}
	slices.Sort(rows)
	fmt.Printf("| %s | %d raised | | | first %.0f s | %d | | %s | %.1f s | %s |\n", name, raised, first.Seconds(), len(told), said.command, said.took.Seconds(), said.line)
	for _, row := range rows {
		_, row, _ = strings.Cut(row, "| ")
		fmt.Printf("| | %s | | |\n", row)
	}
}
