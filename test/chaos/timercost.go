package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// kindle is how long schedules and direct tasks go on before their cost is measured.
const kindle = 5 * time.Second

// makeSchedules makes the schedules, and one change of each kind. It measures what they cost, if that is wanted.
func (s *Site) makeSchedules(ctx context.Context, cfg Config) (err error) {
	if s.keeper, err = s.newKeeper(ctx, cfg.Timers); err != nil {
		return err
	}
	if cfg.Timers.Measure > 0 {
		say(cfg.Out, "measure without schedules")
		if err := s.measureBefore(ctx, cfg); err != nil {
			return err
		}
	}
	say(cfg.Out, "make %d schedules", cfg.Timers.Schedules)
	if err := s.keeper.create(ctx, cfg.Length); err != nil {
		return err
	}
	if cfg.Timers.Measure > 0 {
		say(cfg.Out, "measure with schedules")
		if err := loop.Wait(ctx, kindle); err != nil {
			return err
		}
		if err := s.measure(ctx, "with schedules", cfg.Timers.Measure, true); err != nil {
			return err
		}
	}
	s.keeper.eachKind(ctx)
	say(cfg.Out, "faults and changes")
	return nil
}

// measureBefore measures the cluster at rest, and while as many tasks are added directly as the schedules will make.
func (s *Site) measureBefore(ctx context.Context, cfg Config) error {
	if err := s.measure(ctx, "at rest", cfg.Timers.Measure, false); err != nil {
		return err
	}
	load := Load{Rate: cfg.Timers.rate(), Near: time.Second, Types: []string{"plain", "plain", "strict", "hook"}, Work: 9}
	err := s.Under(ctx, load, func(ctx context.Context) error {
		if err := loop.Wait(ctx, load.withDefaults().Far); err != nil {
			return err
		}
		return s.measure(ctx, "same tasks, no schedules", cfg.Timers.Measure, false)
	})
	return errors.Join(err, s.Drain(ctx, drainWithin))
}

// rate is how many runs a second the schedules have.
func (l TimerLoad) rate() int { return l.Schedules/4 + l.Schedules/2/60 }

// cost is what servers and nodes did in a part of a run without faults.
type cost struct {
	name       string
	generates  bool // runs of schedules are made
	from, to   time.Time
	deliveries int
	made       int                // runs
	questions  float64            // statements that the servers were sent, by all clients
	statements map[string]float64 // round trips of nodes, by what they are for; also passes
	passes     []float64          // by node
	nodes      time.Duration      // CPU time of the nodes
	servers    time.Duration      // and of the database servers
}

// String is for the report.
func (c cost) String() string {
	a := func(of float64) float64 { return of / c.to.Sub(c.from).Seconds() }
	text := fmt.Sprintf("%.0f s: %.0f deliveries/s, %.0f runs made/s, %.0f statements/s; of a core, nodes %.1f %%, servers %.1f %%", c.to.Sub(c.from).Seconds(),
		a(float64(c.deliveries)), a(float64(c.made)), a(c.questions), 100*a(c.nodes.Seconds()), 100*a(c.servers.Seconds()))
	for _, name := range ofJudges {
		if n := c.statements[name]; n > 0 {
			text += fmt.Sprintf("; %s %.1f/s", name, a(n))
		}
	}
	if c.generates {
		own := c.generator()
		text += fmt.Sprintf("; generators in %.0f passes: %.1f statements/s, %.2f %% of all, for %.0f transactions and %.0f runs", c.statements[passesTold], a(own),
			100*own/max(c.questions, 1), c.statements["schedule lock"], c.statements[runsTold])
	}
	return text
}

// ofJudges are the round trips that only the judges of runs need.
var ofJudges = []string{"judged", "runs_from", "replace", "open_from"}

// ofGenerators are the round trips of whoever makes runs, and how many statements each is: a transaction begins, locks the schedule,
// reads the clock, and commits. Nothing else makes them while nobody changes schedules.
var ofGenerators = map[string]float64{"schedules due": 1, "schedule lock": 4, "schedule runs": 1, "schedule keys": 1, "schedule ring": 1, "schedule made": 1}

// generator is how many statements the nodes needed to make runs.
func (c cost) generator() (n float64) {
	for name, statements := range ofGenerators {
		n += statements * c.statements[name]
	}
	return n
}

// passWithin is how long after its last pass over a server a generator begins another one at most, and what that takes.
const passWithin = 4 * time.Minute

// measure measures what the cluster does for a while. With schedules it goes on until each node has ended a pass over each
// server, and so made the runs that were to be made then.
func (s *Site) measure(ctx context.Context, name string, during time.Duration, generates bool) error {
	before, err := s.spent(ctx)
	if err != nil {
		return err
	}
	if err := loop.Wait(ctx, during); err != nil {
		return err
	}
	if generates {
		if err := s.awaitPasses(ctx, before.passes); err != nil {
			return err
		}
	}
	after, err := s.spent(ctx)
	if err != nil {
		return err
	}
	c := cost{name: name, generates: generates, from: before.from, to: after.from, questions: after.questions - before.questions, statements: map[string]float64{},
		nodes: after.nodes - before.nodes, servers: after.servers - before.servers}
	for statement, n := range after.statements {
		c.statements[statement] = n - before.statements[statement]
	}
	s.log.measures = append(s.log.measures, c)
	return nil
}

// measured counts the deliveries and the runs that were made in each part whose cost was measured.
func (v verdict) measured() {
	for _, c := range v.measures {
		in := func(t time.Time) bool { return t.After(c.from) && t.Before(c.to) }
		for _, of := range v.deliveries {
			for _, d := range of {
				if in(d.At) {
					c.deliveries++
				}
			}
		}
		for _, f := range v.runs {
			if in(f.Made) {
				c.made++
			}
		}
		v.report.costs = append(v.report.costs, c)
	}
}

// spent reads the counters.
func (s *Site) spent(ctx context.Context) (c cost, err error) {
	c.from, c.statements = time.Now(), map[string]float64{}
	for _, d := range s.databases {
		var name string
		var n float64
		if err := d.direct.QueryRowContext(ctx, questionsSQL).Scan(&name, &n); err != nil {
			return c, fmt.Errorf("count statements of %s: %w", d, err)
		}
		c.questions += n
		took, err := cpuOf(d.server.Pid())
		if err != nil {
			return c, err
		}
		c.servers += took
	}
	for _, at := range s.seats {
		took, err := cpuOf(at.present().Pid)
		if err != nil {
			return c, err
		}
		c.nodes += took
		counts := at.counters()
		for statement, n := range counts {
			c.statements[statement] += n
		}
		c.passes = append(c.passes, counts[passesTold])
	}
	return c, nil
}

// awaitPasses returns when each node has ended a pass over each server more than it had.
func (s *Site) awaitPasses(ctx context.Context, before []float64) error {
	ctx, cancel := context.WithTimeout(ctx, passWithin)
	defer cancel()
	for i, at := range s.seats {
		for at.counters()[passesTold] < before[i]+float64(len(s.databases)) {
			if err := loop.Wait(ctx, time.Second); err != nil {
				return fmt.Errorf("node %s ended no pass over each server within %s: %w", at.name, passWithin, err)
			}
		}
	}
	return nil
}

// cpuOf reads the CPU time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}

// The counters that processes tell, beside their round trips by what these are for.
const (
	passesTold = "passes"    // of generators
	runsTold   = "runs made" // by generators
	claimsTold = "claims"    // that got their row
	vainTold   = "claims in vain"
	backTold   = "rows put back"
)

// told are the metrics of those counters.
var told = map[string]string{
	"tocsin_generator_passes_total":   passesTold,
	"tocsin_generator_runs_total":     runsTold,
	"tocsin_dispatcher_claimed_total": claimsTold,
	"tocsin_dispatcher_dropped_total": vainTold, // those that were refused their claim

	"tocsin_dispatcher_given_back_total": backTold,
}

// countersForm begins the line of a log that has a process's counters.
const countersForm = "counters: "

// tellCounters writes what the process has done so far, each second until ended is closed.
func tellCounters(ended <-chan struct{}, r *prometheus.Registry) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		text, err := json.Marshal(gathered(r))
		if err != nil {
			panic(err) // plain values only
		}
		fmt.Fprintf(os.Stderr, "%s%s\n", countersForm, text)
	}
}

// gathered are the round trips, by what they are for, and what is told.
func gathered(r *prometheus.Registry) map[string]float64 {
	counts := map[string]float64{}
	families, _ := r.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := told[f.GetName()]
			switch {
			case f.GetName() == "tocsin_store_round_trip_seconds":
				counts[m.GetLabel()[0].GetValue()] += float64(m.GetHistogram().GetSampleCount())
			case name != "" && (name != vainTold || m.GetLabel()[0].GetValue() == "claim_refused"):
				counts[name] += m.GetCounter().GetValue()
			}
		}
	}
	return counts
}

// countersIn are the highest counters in a log: a process that ends has none at last.
func countersIn(log string) map[string]float64 {
	most := map[string]float64{}
	eachLine(log, func(line []byte) {
		var counts map[string]float64
		text, found := bytes.CutPrefix(line, []byte(countersForm))
		if !found || json.Unmarshal(text, &counts) != nil { // half a line is none
			return
		}
		for name, n := range counts {
			most[name] = max(most[name], n)
		}
	})
	return most
}

// eachLine hands over the lines of a log. A log that is not there has none.
func eachLine(log string, do func(line []byte)) {
	text, err := os.ReadFile(log)
	if err != nil {
		return
	}
	for line := range bytes.Lines(text) {
		do(line)
	}
}
