package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
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

// maxExamples is how many job_ids stand for a finding.
const maxExamples = 3

// AuditReport is the result of one audit.
type AuditReport struct {
	Tables   int            `json:"tables"` // read without an error
	Faults   map[string]int `json:"faults"` // rows by fault, over all tables
	Findings []Finding      `json:"findings"`
	Failed   []string       `json:"failed"` // servers that could not be read in full
	Cost     Cost           `json:"cost"`
}

// Finding counts rows of one table and biz type that have a fault. Schedules and runs have findings too, of the table that
// holds them. A row with two faults is in two findings.
type Finding struct {
	Table    string         `json:"table"`    // full name, "toc_3.task_0517"
	Type     string         `json:"biz_type"` // "#7" where no policy has number 7
	Fault    string         `json:"fault"`    // a word of store.Fault
	Rows     int            `json:"rows"`
	Examples []tocsin.JobID `json:"examples"`        // a few tasks; null for schedules and runs
	Names    []string       `json:"names,omitempty"` // a few schedules, or job_ids of runs
}

// Cost is what an audit took from the servers.
type Cost struct {
	Statements int           `json:"statements"`
	Rows       int           `json:"rows"`    // read
	Busy       time.Duration `json:"busy_ns"` // time of the statements, added up over the servers
	Took       time.Duration `json:"took_ns"` // with the pauses, servers side by side
}

func (c *Cost) plus(o Cost) {
	c.Statements += o.Statements
	c.Rows += o.Rows
	c.Busy += o.Busy
}

// spent counts statements that began at a time and have ended now.
func (c *Cost) spent(statements, rows int, began time.Time) {
	c.plus(Cost{Statements: statements, Rows: rows, Busy: time.Since(began)})
}

// place is where rows with a fault are counted. Reports are in the order of the fields.
type place struct {
	number   int         // of the table of tasks; those of schedules and runs come last
	typeCode uint64      // of tasks
	fault    store.Fault // of tasks

	table, bizType, word string
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.number, o.number), cmp.Compare(p.typeCode, o.typeCode), cmp.Compare(p.fault, o.fault),
		cmp.Compare(p.table, o.table), cmp.Compare(p.bizType, o.bizType), cmp.Compare(p.word, o.word))
}

// findings counts rows by place.
type findings map[place]*Finding

// at returns the finding of a place, which is new if there is none.
func (f findings) at(p place) *Finding {
	if f[p] == nil {
		f[p] = &Finding{Table: p.table, Type: p.bizType, Fault: p.word}
	}
	return f[p]
}

func (f findings) sorted() []Finding {
	all := []Finding{}
	for _, p := range slices.SortedFunc(maps.Keys(f), place.compare) {
		all = append(all, *f[p])
	}
	return all
}

// Ended returns the metrics of the audit. ok says that it read all.
func (r AuditReport) Ended(ok bool) Ended {
	return Ended{Subsystem: "auditor", Took: r.Cost.Took, OK: ok && len(r.Findings) == 0, Figures: []Figure{
		{Name: "tables", Last: "Tables that the last audit read without an error.", Value: r.Tables},
		{Name: "rows", Last: "Rows that the last audit read.", Value: r.Cost.Rows},
		{Name: "statements", Last: "Statements that the last audit sent.", Value: r.Cost.Statements},
		{Name: "failed_servers", Last: "Servers that the last audit could not read in full.", Value: len(r.Failed)},
		faultsFigure("Rows with a fault that the last audit found, by fault; faults that it did not find are left out.", r.Faults),
	}}
}

func faultsFigure(help string, faults map[string]int) Figure {
	return Figure{Name: "faults", Last: help, Labels: []string{"fault"}, Values: func(set func(n int, labels ...string)) {
		for fault, rows := range faults {
			set(rows, fault)
		}
	}}
}

// auditWalk is one audit of one server, by one goroutine.
type auditWalk struct {
	walk
	*audit
	found findings
	cost  Cost

	unscheduled map[int]bool // databases whose schedules can't be read, or that have no table for them
}

// run checks the schedules first, since runs are compared with them, and the history last, when the server's clock is known.
func (w *auditWalk) run(ctx context.Context) {
	var err error
	if w.unscheduled, err = w.rest(ctx, "schedule", w.store.AuditSchedules, 0); err == nil {
		err = w.overTables(ctx, func(tables []int) error {
			for _, status := range store.AuditStatuses {
				if err := w.rows(ctx, tables, status); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		_, err = w.rest(ctx, "run", w.store.AuditRuns, w.since())
	}
	if err != nil {
		w.fail(err)
	}
}

// since is the earliest time from which on finished rows and runs are read, 0 for all.
func (w *auditWalk) since() int64 {
	if w.Settled < 0 {
		return 0
	}
	return w.store.Now(w.server) - w.Settled.Milliseconds()
}

// rows checks the rows of one status, page by page.
func (w *auditWalk) rows(ctx context.Context, tables []int, status tocsin.Status) error {
	q := store.AuditQuery{
		Server: w.server, Status: status,
		Grace: w.Grace, Types: w.types, Paused: w.paused, Attempts: w.attempts, Unscheduled: w.unscheduled,
	}
	if status.Final() {
		q.From = w.since()
	}
	pages := store.Over(w.well(tables))
	return paged(ctx, func() (bool, error) {
		step, more := pages.Next()
		if !more {
			return false, nil
		}
		q.Tables, q.After, q.Limit = step.Tables, step.After, rowsAtOnce/store.Together
		if step.Alone() {
			q.Limit = rowsOfTable
		}
		began := time.Now()
		page, err := w.store.Audit(ctx, q)
		w.cost.spent(page.Statements, page.Rows, began)
		for _, group := range page.Groups {
			w.count(group)
		}
		for _, table := range slices.Sorted(maps.Keys(page.Failed)) {
			w.failTable(table, page.Failed[table])
		}
		for _, full := range page.Full {
			pages.More(full.Table, full.Last)
		}
		return true, err
	})
}

// count counts a group of rows under each of its faults.
func (w *auditWalk) count(g store.Audited) {
	for _, fault := range g.Faults.Split() {
		f := w.found.at(place{
			number: g.Table, typeCode: g.Type, fault: fault,
			table: w.store.Layout().Table(g.Table), bizType: w.name(g.Type), word: fault.String(),
		})
		if f.Examples == nil {
			f.Examples = []tocsin.JobID{}
		}
		f.Rows += g.Rows
		f.Examples = append(f.Examples, g.Examples[:min(len(g.Examples), maxExamples-len(f.Examples))]...)
	}
}

// readRest checks a page of a table beside the task tables.
type readRest = func(context.Context, store.AuditRest) (page store.AuditRestPage, there bool, err error)

// rest checks a table that each database has beside its task tables: all of it, or what begins with a time. It returns the
// databases whose table can't be read, or is not there. The error is the server's as a whole.
func (w *auditWalk) rest(ctx context.Context, table string, read readRest, from int64) (without map[int]bool, err error) {
	without = map[int]bool{}
	q := store.AuditRest{Server: w.server, From: from, Limit: rowsAtOnce, Grace: w.Grace, Types: w.types}
	err = w.overDatabases(func(database int) error {
		q.Database = database
		there, err := w.whole(ctx, table, read, q)
		without[database] = !there
		return err
	}, func(database int, err error) {
		without[database] = true
		if mysql.ClassOf(err) == mysql.Denied {
			err = fmt.Errorf("%w: the role audit needs more rights, as `tocsin ddl grants --role audit` prints them", err)
		}
		w.fail(err)
	})
	return without, err
}

// whole checks a table of one database page by page, and reports whether it is there.
func (w *auditWalk) whole(ctx context.Context, table string, read readRest, q store.AuditRest) (there bool, err error) {
	name := w.store.Layout().Database(q.Database) + "." + table
	err = paged(ctx, func() (bool, error) {
		began := time.Now()
		page, exists, err := read(ctx, q)
		there, q.Place = exists, page.Next
		w.cost.spent(1, page.Rows, began)
		for _, g := range page.Groups {
			for _, fault := range g.Faults {
				f := w.found.at(place{number: w.store.Layout().Total(), table: name, bizType: w.name(g.Type), word: fault})
				f.Rows += g.Rows
				f.Names = append(f.Names, g.Examples[:min(len(g.Examples), maxExamples-len(f.Names))]...)
			}
		}
		return page.Next != 0, err
	})
	return there, err
}
