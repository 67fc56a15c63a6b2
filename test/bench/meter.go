package bench

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/procfs"
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

// plus returns u and v, v multiplied by times.
func (u Usage) plus(v Usage, times float64) Usage {
	return Usage{
		Seconds: u.Seconds + times*v.Seconds, Statements: u.Statements + times*v.Statements,
		BytesSent: u.BytesSent + times*v.BytesSent, BytesReceived: u.BytesReceived + times*v.BytesReceived,
		Selects: u.Selects + times*v.Selects, Inserts: u.Inserts + times*v.Inserts,
		Updates: u.Updates + times*v.Updates, Commits: u.Commits + times*v.Commits,
		ProcessCPU: u.ProcessCPU + times*v.ProcessCPU, ServerCPU: u.ServerCPU + times*v.ServerCPU,
	}
}

// measured returns what work takes. One of the statements counted is the second
// read of the counters.
func (s *site) measured(ctx context.Context, work func() error) (Usage, error) {
	before, err := s.counters(ctx)
	if err != nil {
		return Usage{}, err
	}
	begin := time.Now()
	if err := work(); err != nil {
		return Usage{}, err
	}
	seconds := time.Since(begin).Seconds()
	after, err := s.counters(ctx)
	used := after.plus(before, -1)
	used.Seconds = seconds
	return used, err
}

// counters reads what servers and processes have used since they started.
func (s *site) counters(ctx context.Context) (Usage, error) {
	counted := make(map[string]float64)
	for _, pool := range s.pools {
		values, err := named(ctx, pool.DB, statusSQL)
		if err != nil {
			return Usage{}, fmt.Errorf("server %s: read its counters: %w", pool.Name, err)
		}
		for name, text := range values {
			value, _ := strconv.ParseFloat(text, 64) // 0: it is no number
			counted[name] += value
		}
	}
	cpu, _ := processUsed()
	u := Usage{
		Statements: counted["Questions"], BytesSent: counted["Bytes_sent"], BytesReceived: counted["Bytes_received"],
		Selects: counted["Com_select"], Inserts: counted["Com_insert"] + counted["Com_insert_select"],
		Updates: counted["Com_update"], Commits: counted["Com_commit"],
		ProcessCPU: cpu.Seconds(), ServerCPU: math.NaN(),
	}
	if s.own != nil {
		u.ServerCPU, _ = usedBy(s.own.Servers[0].Pid())
	}
	return u, nil
}

// named reads names and values.
func named(ctx context.Context, db *sqlx.DB, query string) (map[string]string, error) {
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
	return named(ctx, s.pools[0].DB, settingsSQL)
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
		waiting, err := s.unpurged(ctx)
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

// unpurged counts the servers' transactions that wait to be purged.
func (s *site) unpurged(ctx context.Context) (sum float64, err error) {
	for _, pool := range s.pools {
		var n float64
		if err := pool.DB.GetContext(ctx, &n, historySQL); err != nil {
			return 0, fmt.Errorf("server %s: read its history list length: %w", pool.Name, err)
		}
		sum += n
	}
	return sum, nil
}

// usedBy is the seconds of processor time and the megabytes of a process now, NaN where /proc does not
// tell.
func usedBy(pid int) (cpu, resident float64) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return math.NaN(), math.NaN()
	}
	stat, err := process.Stat()
	if err != nil {
		return math.NaN(), math.NaN()
	}
	return stat.CPUTime(), float64(stat.ResidentMemory()) / 1e6
}
