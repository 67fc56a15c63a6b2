package house

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// Of a statement that reads or changes a part of what there is, why one part costs no more than another.
const (
	measured = "a test reads pages from all over: package operator, or package schedule for what is due"
	bounded  = "it looks at a fixed number of rows from one end"
	shrinks  = "the rows that it finds leave its range, so each part begins where the range does"
	whole    = "it reads one row, which a whole key names, or counts; the LIMIT is there as it overrides a session's sql_select_limit"
	explicit = "its range begins at an id or key that the caller read before, in the primary key or uk_biz"
)

// partial are the statements with a LIMIT, by their senders.
var partial = map[string]string{
	"get":               measured, // its pages are of ListPage
	"list keyless":      measured,
	"list near":         measured,
	"find":              measured,
	"peek":              measured,
	"acts":              measured,
	"runs":              measured,
	"audit":             measured,
	"audit_schedules":   measured,
	"audit_runs":        measured,
	"audit relayed":     measured,
	"old_runs":          measured,
	"old_bells":         measured,
	"schedules list":    measured,
	"schedules due":     measured,
	"schedules window":  "entries of the index, 2,000 for each page that had no row to show since the last one with a row",
	"schedules ahead":   "each look, of one an hour, goes over all schedules once; most looks find nothing, and are one page",
	"schedule siblings": explicit,
	"schedule open":     bounded,
	"due":               explicit,
	"due_ids":           explicit,
	"claim":             bounded,
	"bells":             explicit,
	"outbox read":       "as explicit; a list of rows that were set aside goes over all rows from there on",
	"relayed open":      explicit,
	"run_after":         explicit,
	"latest_key":        bounded,
	"turn":              "rows of one key, settled ones too: policies.md says that the cost grows with them",
	"recent_before":     bounded,
	"recent_runs":       bounded,
	"next_run_out":      bounded,
	"outbox settled":    bounded,
	"outbox holder":     bounded,
	"active":            whole,
	"holder":            whole,
	"read back":         whole,
	"status":            whole,
	"complete":          whole,
	"some_counts":       bounded,
	"overdue":           bounded,
	"deaths":            "entries of the index between two looks for alarms, those of biz types without an alarm too",
	"ddl ownership":     bounded,
	"expired":           shrinks,
	"ddl restore":       shrinks,
	"purge_acts":        shrinks,
	"relayed forget":    shrinks,
	"relayed replay":    shrinks,
	"forget outbox":     shrinks,
}

// sender is the comment of a statement.
var sender = regexp.MustCompile(`/\* tocsin ([\w ]+?) \*/`)

// Pages checks that of each statement with a LIMIT somebody has judged what a part of it costs that lies deep among the rows.
func Pages(m Module) []string { return pages(m, partial) }

func pages(m Module, partial map[string]string) []string {
	var bad []string
	seen := map[string]bool{}
	for _, f := range m.shipped() {
		if !coversAny(sqlHomes, f.Dir()) {
			continue
		}
		eachString(f.AST, func(lit *ast.BasicLit, text string) {
			name := sender.FindStringSubmatch(text)
			if name == nil {
				return
			}
			if strings.Contains(text, "\nLIMIT ") || strings.Contains(text, " LIMIT ") {
				if seen[name[1]] = true; partial[name[1]] == "" {
					bad = append(bad, f.at(lit.Pos(), "%q reads a part of the rows: try what a part deep among them costs on both servers, and say so in the list", name[1]))
				}
			} else if partial[name[1]] != "" {
				seen[name[1]] = true
			}
		})
	}
	for name := range partial {
		if !seen[name] {
			bad = append(bad, fmt.Sprintf("no statement is %q: take it off the list of those with a LIMIT", name))
		}
	}
	slices.Sort(bad)
	return bad
}
