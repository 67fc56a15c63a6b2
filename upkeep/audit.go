package upkeep

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

// An audit changes nothing. It reads all live rows (pending, claimed), and finished ones that were settled within
// AuditConfig.Settled: an audit in each such time reads every row at least once in its final state, and costs what happened
// since, not what is stored. The same holds for runs of the history; schedules, which are few, are all read.
//
// The servers check and count. What travels is a line for each table, biz type and kind of fault, with a few job_ids. A
// statement reads a bounded range of an index and locks nothing.

// Defaults of an AuditConfig.
const (
	auditGrace     = time.Minute
	DefaultSettled = 2 * time.Hour
	All            = -1 // as Settled: every row

	rowsAtOnce  = 16_000 // over the tables of one statement
	rowsOfTable = 4_000  // of a table that is read further on its own
)

// AuditConfig is the config of an audit.
type AuditConfig struct {
	Store    *store.Store
	Policies []biztype.Policy // of all biz types
	Grace    time.Duration    // how late a task may be, or a claim that ran out; in whole seconds; 0: 60s
	Settled  time.Duration    // finished rows that were settled so long ago at most are read; 0: 2h; All: every one
	Progress func(tables int) // called after some tables were read, concurrently; nil: not called
}

// audit is what all walks of an audit read and none changes.
type audit struct {
	AuditConfig
	types    []uint64
	paused   []uint64
	attempts map[uint64]int
	names    map[uint64]string
}

func newAudit(cfg AuditConfig) *audit {
	if cfg.Grace == 0 {
		cfg.Grace = auditGrace
	}
	if cfg.Settled == 0 {
		cfg.Settled = DefaultSettled
	}
	a := &audit{AuditConfig: cfg, attempts: map[uint64]int{}, names: map[uint64]string{}}
	for _, p := range cfg.Policies {
		a.types = append(a.types, p.Number)
		a.names[p.Number] = p.Name
		a.attempts[p.Number] = p.WithDefaults().Attempts
		if p.Paused {
			a.paused = append(a.paused, p.Number)
		}
	}
	return a
}

// name returns the name of a biz type, "#7" if it has none.
func (a *audit) name(typeCode uint64) string {
	if name, ok := a.names[typeCode]; ok {
		return name
	}
	return "#" + strconv.FormatUint(typeCode, 10)
}

// Audit checks the rows of every table of every server, its schedules and the history of its runs, all servers at the same
// time. Its error joins those of the servers and tables that could not be read;
// what does not fit is no error but a finding.
func Audit(ctx context.Context, cfg AuditConfig) (AuditReport, error) {
	start := time.Now()
	a := newAudit(cfg)
	servers := cfg.Store.Servers()
	walks := make([]*auditWalk, len(servers))
	store.EachServer(len(walks), func(server int) {
		walks[server] = &auditWalk{walk: newWalk(cfg.Store, server, cfg.Progress), audit: a, found: findings{}}
		walks[server].run(ctx)
	})
	report := AuditReport{Faults: map[string]int{}, Failed: []string{}}
	all := findings{}
	var errs []error
	for server, w := range walks {
		maps.Copy(all, w.found) // a table is on one server
		report.Tables += w.tables
		report.Cost.plus(w.cost)
		if err := w.failure("audit"); err != nil {
			report.Failed = append(report.Failed, servers[server])
			errs = append(errs, err)
		}
	}
	report.Findings = all.sorted()
	for _, f := range report.Findings {
		report.Faults[f.Fault] += f.Rows
	}
	report.Cost.Took = time.Since(start)
	return report, errors.Join(errs...)
}
