package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/internal/wait"
)

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
func (s *Site) measure(ctx context.Context, name string, during time.Duration, generates bool) (cost, error) {
	before, err := s.spent(ctx)
	if err != nil {
		return before, err
	}
	if err := wait.For(ctx, during); err != nil {
		return before, err
	}
	if generates {
		if err := s.awaitPasses(ctx, before.passes); err != nil {
			return before, err
		}
	}
	after, err := s.spent(ctx)
	c := cost{name: name, generates: generates, from: before.from, to: after.from, questions: after.questions - before.questions, statements: map[string]float64{},
		nodes: after.nodes - before.nodes, servers: after.servers - before.servers}
	for statement, n := range after.statements {
		c.statements[statement] = n - before.statements[statement]
	}
	return c, err
}

// spent reads the counters.
func (s *Site) spent(ctx context.Context) (c cost, err error) {
	c.from, c.statements = time.Now(), map[string]float64{}
	for _, d := range s.databases {
		var name string
		var n float64
		if err := d.direct.QueryRowContext(ctx, questionsSQL).Scan(&name, &n); err != nil {
			return c, fmt.Errorf("count statements of server db%d: %w", d.number, err)
		}
		c.questions += n
		took, err := cpuOf(d.server.Pid())
		if err != nil {
			return c, err
		}
		c.servers += took
	}
	for _, at := range s.seats {
		took, err := cpuOf(at.present().os.Pid)
		if err != nil {
			return c, err
		}
		c.nodes += took
		counts := at.statements()
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
		for at.statements()[passesTold] < before[i]+float64(len(s.databases)) {
			if err := wait.For(ctx, time.Second); err != nil {
				return fmt.Errorf("node %s ended no pass over each server within %s: %w", at.name, passWithin, err)
			}
		}
	}
	return nil
}

// ticks are the parts of a second in which the kernel counts CPU time.
const ticks = 100

// cpuOf reads the CPU time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	var user, system int64
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name before may have blanks
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return time.Duration(user+system) * time.Second / ticks, nil
}

// What nodes tell beside their round trips: counters of their generators.
const (
	passesTold = "passes"
	runsTold   = "runs made"
)

// told are the counters that nodes tell, by their names there.
var told = map[string]string{"tocsin_generator_passes_total": passesTold, "tocsin_generator_runs_total": runsTold}

// statementsForm begins the line of a node's log that has its round trips.
const statementsForm = "statements: "

// tellStatements writes how many round trips there were, by what they are for.
func tellStatements(r *prometheus.Registry) {
	counts := map[string]uint64{}
	families, _ := r.Gather()
	for _, f := range families {
		if name := told[f.GetName()]; name != "" {
			counts[name] = uint64(f.GetMetric()[0].GetCounter().GetValue())
		}
		if f.GetName() != "tocsin_store_round_trip_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			counts[m.GetLabel()[0].GetValue()] += m.GetHistogram().GetSampleCount()
		}
	}
	text, err := json.Marshal(counts)
	if err != nil {
		panic(err) // plain values only
	}
	fmt.Fprintf(os.Stderr, "%s%s\n", statementsForm, text)
}

// statements are the round trips of the process in the seat, as it told last.
func (at *seat) statements() (counts map[string]float64) {
	at.mu.Lock()
	defer at.mu.Unlock()
	text, err := os.ReadFile(at.log)
	if err != nil {
		return nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if told, found := bytes.CutPrefix(lines.Bytes(), []byte(statementsForm)); found {
			counts = nil
			_ = json.Unmarshal(told, &counts) // half a line is none
		}
	}
	return counts
}
