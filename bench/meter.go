package bench

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// Usage is what a piece of work took.
type Usage struct {
	Seconds       float64
	Statements    float64 // as the server counts them, one by one also where many came in a packet
	BytesSent     float64 // by the server
	BytesReceived float64
	Selects       float64
	Inserts       float64
	Updates       float64
	Commits       float64
	ProcessCPU    float64 // seconds, of all of this process, etcd and the load of the measure included
	ServerCPU     float64 // seconds, of the private server; NaN where it is not ours or there is no /proc
}

// PerTask is Usage for one task.
type PerTask struct {
	Statements    float64 `json:"statements"`
	BytesSent     float64 `json:"bytes_sent"` // by the server
	BytesReceived float64 `json:"bytes_received"`
	Selects       float64 `json:"selects"`
	Inserts       float64 `json:"inserts"`
	Updates       float64 `json:"updates"`
	Commits       float64 `json:"commits"` // by statement; one that stands alone commits by itself

	ProcessMicros float64  `json:"process_cpu_us"` // of nodes, handlers, etcd and the measure: all of this process
	ServerMicros  *float64 `json:"server_cpu_us"`  // null: unknown
}

func (u Usage) perTask(n int) PerTask {
	by := 1 / float64(max(n, 1))
	return PerTask{
		Statements: round(u.Statements*by, 4), BytesSent: round(u.BytesSent*by, 1), BytesReceived: round(u.BytesReceived*by, 1),
		Selects: round(u.Selects*by, 4), Inserts: round(u.Inserts*by, 4), Updates: round(u.Updates*by, 4), Commits: round(u.Commits*by, 4),
		ProcessMicros: round(u.ProcessCPU*by*1e6, 1), ServerMicros: known(u.ServerCPU*by*1e6, 1),
	}
}

// rate is tasks a second.
func (u Usage) rate(n int) float64 { return float64(n) / u.Seconds }

// known rounds a figure for JSON, nil where it is unknown.
func known(x float64, decimals int) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	x = round(x, decimals)
	return &x
}

// mean is the average of two of the same work.
func mean(a, b Usage) Usage {
	half := func(x, y float64) float64 { return (x + y) / 2 }
	return Usage{
		Seconds: half(a.Seconds, b.Seconds), Statements: half(a.Statements, b.Statements),
		BytesSent: half(a.BytesSent, b.BytesSent), BytesReceived: half(a.BytesReceived, b.BytesReceived),
		Selects: half(a.Selects, b.Selects), Inserts: half(a.Inserts, b.Inserts),
		Updates: half(a.Updates, b.Updates), Commits: half(a.Commits, b.Commits),
		ProcessCPU: half(a.ProcessCPU, b.ProcessCPU), ServerCPU: half(a.ServerCPU, b.ServerCPU),
	}
}

// plus is what two pieces of work took, one after the other.
func (u Usage) plus(v Usage) Usage {
	return Usage{
		Seconds: u.Seconds + v.Seconds, Statements: u.Statements + v.Statements,
		BytesSent: u.BytesSent + v.BytesSent, BytesReceived: u.BytesReceived + v.BytesReceived,
		Selects: u.Selects + v.Selects, Inserts: u.Inserts + v.Inserts, Updates: u.Updates + v.Updates, Commits: u.Commits + v.Commits,
		ProcessCPU: u.ProcessCPU + v.ProcessCPU, ServerCPU: u.ServerCPU + v.ServerCPU,
	}
}

// glance is what clocks and counters stood at.
type glance struct {
	at      time.Time
	counted map[string]float64
	process time.Duration
	server  float64 // seconds; NaN: unknown
}

// look reads clocks and counters. What it sends itself is one statement.
func (s *site) look(ctx context.Context) (glance, error) {
	counted, err := s.named(ctx, statusSQL)
	if err != nil {
		return glance{}, fmt.Errorf("read the servers' counters: %w", err)
	}
	g := glance{at: time.Now(), counted: make(map[string]float64), process: processCPU(), server: math.NaN()}
	for _, values := range counted {
		for name, text := range values {
			g.counted[name] += number(text)
		}
	}
	if s.own != nil {
		g.server = cpuOf(s.own.Pid())
	}
	return g, nil
}

// number reads a counter; 0: it is none.
func number(text string) float64 {
	value, _ := strconv.ParseFloat(text, 64)
	return value
}

// since is what has been used since begin.
func (s *site) since(ctx context.Context, begin glance) (Usage, error) {
	return s.until(ctx, begin, time.Now())
}

// until is since, for work that ended at a moment just past: its seconds end
// there, its counters now.
func (s *site) until(ctx context.Context, begin glance, end time.Time) (Usage, error) {
	now, err := s.look(ctx)
	if err != nil {
		return Usage{}, err
	}
	counted := func(name string) float64 { return now.counted[name] - begin.counted[name] }
	return Usage{
		Seconds:    end.Sub(begin.at).Seconds(),
		Statements: counted("Questions"), BytesSent: counted("Bytes_sent"), BytesReceived: counted("Bytes_received"),
		Selects: counted("Com_select"), Inserts: counted("Com_insert") + counted("Com_insert_select"), Updates: counted("Com_update"), Commits: counted("Com_commit"),
		ProcessCPU: (now.process - begin.process).Seconds(), ServerCPU: now.server - begin.server,
	}, nil
}

// named reads names and values from every server.
func (s *site) named(ctx context.Context, query string) ([]map[string]string, error) {
	all := make([]map[string]string, len(s.pools))
	for i, pool := range s.pools {
		var err error
		if all[i], err = namedOf(ctx, pool.DB, query); err != nil {
			return nil, fmt.Errorf("server %s: %w", pool.Name, err)
		}
	}
	return all, nil
}

func namedOf(ctx context.Context, db *sqlx.DB, query string) (map[string]string, error) {
	var found []struct {
		Name  string `db:"Variable_name"`
		Value string `db:"Value"`
	}
	if err := db.SelectContext(ctx, &found, query); err != nil {
		return nil, err
	}
	values := make(map[string]string, len(found))
	for _, f := range found {
		values[f.Name] = f.Value
	}
	return values, nil
}

// settings are those of the first server: figures mean little without.
func (s *site) settings(ctx context.Context) (map[string]string, error) {
	return namedOf(ctx, s.pools[0].DB, settingsSQL)
}

// Bounds of calm.
const (
	calmHistory = 200 // transactions that wait to be purged
	calmWithin  = 5 * time.Second
	calmEvery   = 50 * time.Millisecond
)

// calm waits until the servers have purged what was there before, so that one
// part of a run does not pay for another. Servers that don't tell, for lack of a
// right, or take long, are not waited for.
func (s *site) calm(ctx context.Context) error {
	limit := time.After(calmWithin)
	tick := time.NewTicker(calmEvery)
	defer tick.Stop()
	for {
		waiting, err := s.history(ctx)
		if err != nil || waiting <= calmHistory {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return nil
		case <-tick.C:
		}
	}
}

// cpuOf is the seconds of processor time of a process, NaN where /proc does not
// tell.
func cpuOf(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return math.NaN()
	}
	return parseStat(string(text))
}

// parseStat reads user and system time, in hundredths of a second as Linux gives
// them to every program, from behind the name in parentheses.
func parseStat(stat string) float64 {
	const user, system, hz = 11, 12, 100
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) <= system {
		return math.NaN()
	}
	u, err := strconv.ParseInt(fields[user], 10, 64)
	k, err2 := strconv.ParseInt(fields[system], 10, 64)
	if err != nil || err2 != nil {
		return math.NaN()
	}
	return float64(u+k) / hz
}
