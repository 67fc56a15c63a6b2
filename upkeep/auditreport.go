package upkeep

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

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
