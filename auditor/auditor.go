package auditor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/store"
)

// Defaults of a Config.
const (
	DefaultGrace   = time.Minute
	DefaultSettled = 2 * time.Hour
	All            = -1 // as Settled: every row

	rowsAtOnce  = 16_000 // over the tables of one statement
	rowsOfTable = 4_000  // of a table that is read further on its own
)

// Tables is what an audit reads, by server.
type Tables interface {
	Measure(ctx context.Context, server int) (store.Offset, error)
	Audit(ctx context.Context, q store.AuditQuery) (store.AuditPage, error)
	AuditSchedules(ctx context.Context, q store.AuditRest) (page store.AuditRestPage, there bool, err error)
	AuditRuns(ctx context.Context, q store.AuditRest) (page store.AuditRestPage, there bool, err error)
	Lacking(ctx context.Context, server int, typeCode uint64, bizIDs []uint64) (lacking []uint64, failed map[int]error, err error)
}

// Config of an Auditor.
type Config struct {
	Tables   Tables
	Now      func(server int) int64 // that server's clock, Unix ms; valid after Measure
	Servers  []string               // names, by index
	TablesOf func(server int) []int // table numbers on a server
	ServerOf func(table int) int
	Layout   tocsin.Layout
	Policies []biztype.Policy         // of all biz types
	Grace    time.Duration            // how late a task may be, or a claim that ran out; in whole seconds; 0: 60s
	Settled  time.Duration            // finished rows that were settled so long ago at most are read; 0: 2h; All: every one
	Progress func(server, tables int) // told of tables that are read, by each server's goroutine; nil: nobody
}

// Auditor checks rows. Its methods may be called again, and concurrently.
type Auditor struct {
	cfg      Config
	types    []uint64
	paused   []uint64
	attempts map[uint64]int
	names    map[uint64]string
}

// New checks the config and makes an Auditor.
func New(cfg Config) (*Auditor, error) {
	if cfg.Tables == nil || cfg.Now == nil || cfg.TablesOf == nil || cfg.ServerOf == nil {
		return nil, errors.New("auditor: Tables, Now, TablesOf and ServerOf are needed")
	}
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.Settled == 0 {
		cfg.Settled = DefaultSettled
	}
	if cfg.Progress == nil {
		cfg.Progress = func(int, int) {}
	}
	a := &Auditor{cfg: cfg, attempts: map[uint64]int{}, names: map[uint64]string{}}
	for _, p := range cfg.Policies {
		a.types = append(a.types, p.Number)
		a.names[p.Number] = p.Name
		a.attempts[p.Number] = p.WithDefaults().Attempts
		if p.Paused {
			a.paused = append(a.paused, p.Number)
		}
	}
	return a, nil
}

// name gives the name of a biz type, "#7" where it has none.
func (a *Auditor) name(typeCode uint64) string {
	if name, ok := a.names[typeCode]; ok {
		return name
	}
	return "#" + strconv.FormatUint(typeCode, 10)
}

// Audit checks the rows of every table of every server, its schedules and the history of its runs, all servers at the same
// time. Its error joins those of the servers and tables that could not be read;
// what does not fit is no error but a finding.
func (a *Auditor) Audit(ctx context.Context) (Report, error) {
	start := time.Now()
	report := Report{Faults: map[string]int{}, Failed: []string{}}
	walks := make([]*walk, len(a.cfg.Servers))
	tablewalk.Servers(len(walks), func(server int) {
		walks[server] = &walk{Auditor: a, server: server, tally: tally{}, failed: map[int]bool{}, unscheduled: map[int]bool{}}
		walks[server].run(ctx)
	})
	all := tally{}
	var rest []Finding
	var errs []error
	for _, w := range walks {
		for p, f := range w.tally { // a table is on one server
			all[p] = f
		}
		rest = append(rest, w.found...)
		report.Tables += w.tables
		report.Cost.plus(w.cost)
		if len(w.errs) > 0 {
			report.Failed = append(report.Failed, a.cfg.Servers[w.server])
			errs = append(errs, fmt.Errorf("audit server %s: %w", a.cfg.Servers[w.server], tablewalk.Join(w.errs...)))
		}
	}
	slices.SortFunc(rest, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Fault, b.Fault))
	})
	report.Findings = append(all.findings(a.cfg.Layout, a.name), rest...)
	for _, f := range report.Findings {
		report.Faults[f.Fault] += f.Rows
	}
	report.Cost.Took = time.Since(start)
	return report, errors.Join(errs...)
}
