package auditor

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

// Report of one audit.
type Report struct {
	Tables   int            `json:"tables"` // read without an error
	Faults   map[string]int `json:"faults"` // rows by fault, over all tables
	Findings []Finding      `json:"findings"`
	Failed   []string       `json:"failed"` // servers that could not be read in full
	Cost     Cost           `json:"cost"`
}

// Finding counts rows of one table and biz type that have a fault. Schedules and runs have findings too, of the table that
// holds them. A row with
// two faults is in two findings.
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

// place is where rows with one fault are counted.
type place struct {
	table    int
	typeCode uint64
	fault    store.Fault
}

// tally counts rows by place.
type tally map[place]*Finding

// add counts a group of rows under each of its faults.
func (t tally) add(g store.Audited) {
	for _, fault := range g.Faults.Split() {
		p := place{g.Table, g.Type, fault}
		if t[p] == nil {
			t[p] = &Finding{Examples: []tocsin.JobID{}}
		}
		f := t[p]
		f.Rows += g.Rows
		f.Examples = append(f.Examples, g.Examples[:min(len(g.Examples), maxExamples-len(f.Examples))]...)
	}
}

// findings gives the tally by table, biz type and fault.
func (t tally) findings(layout tocsin.Layout, name func(uint64) string) []Finding {
	places := slices.SortedFunc(maps.Keys(t), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.typeCode, b.typeCode), cmp.Compare(a.fault, b.fault))
	})
	all := []Finding{}
	for _, p := range places {
		f := *t[p]
		f.Table, f.Type, f.Fault = layout.Table(p.table), name(p.typeCode), p.fault.String()
		all = append(all, f)
	}
	return all
}
