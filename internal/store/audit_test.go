package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// auditAll checks every row of every table and gives what has faults.
func (b *bench) auditAll(limit int) (bad []Audited, rows int) {
	b.tb.Helper()
	for _, status := range AuditStatuses {
		q := AuditQuery{Status: status, Tables: b.TablesOf(0), Limit: limit, Grace: time.Minute, Types: []uint64{1, 2}, Paused: []uint64{2}, Attempts: map[uint64]int{1: 16, 2: 16}}
		for todo := []AuditQuery{q}; len(todo) > 0; todo = todo[1:] {
			page, err := b.Audit(b.tb.Context(), todo[0])
			if err != nil || page.Failed != nil {
				b.tb.Fatal(err, page.Failed)
			}
			rows += page.Rows
			for _, g := range page.Groups {
				if g.Faults != 0 {
					bad = append(bad, g)
				}
			}
			for _, f := range page.Full {
				q.Tables, q.After = []int{f.Table}, f.Last
				todo = append(todo, q)
			}
		}
	}
	return bad, rows
}

// rightBizID gives a biz_id of the table.
func (b *bench) rightBizID(table int) uint64 {
	for n := uint64(1); ; n++ {
		if b.layout.TableOf(n) == table {
			return n
		}
	}
}

func TestAuditFindsEachFault(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	const old, ahead = "UTC_TIMESTAMP(3) - INTERVAL 1 HOUR", "UTC_TIMESTAMP(3) + INTERVAL 1 HOUR"
	for name, c := range map[string]struct {
		set  string
		want string
	}{
		"a pending task in order":             {"version = 0", ""},
		"a claimed task in order":             {"status = 1, claimed_by = 'n', action_time = " + ahead, ""},
		"a done task in order":                {"status = 2, claimed_by = 'n'", ""},
		"a cancelled task long before it due": {"status = 3, due_time = " + ahead, ""},
		"a dead task in order":                {"status = 4, attempts = 16, crashes = 5", ""},
		"a rescheduled task":                  {"version = 1, due_time = " + ahead, ""},
		"a paused type's overdue task":        {"biz_type = 2, action_time = " + old + ", due_time = " + old, ""},
		"a biz_id of another table":           {"biz_id = {other}", "wrong_table"},
		"a job_id of another table":           {"job_id = job_id + 512", "wrong_job_id"},
		"a biz type without policy":           {"biz_type = 3", "unknown_type"},
		"a status that is none":               {"status = 7", "unknown_status"},
		"overdue":                             {"action_time = " + old + ", due_time = " + old, "overdue"},
		"a claim that ran out":                {"status = 1, claimed_by = 'n', action_time = " + old + ", due_time = " + old, "claim_run_out"},
		"settled in the future":               {"status = 2, action_time = " + ahead, "settled_ahead"},
		"pending before its time":             {"due_time = " + ahead, "early"},
		"done before its time":                {"status = 2, due_time = " + ahead, "early"},
		"created after modified":              {"gmt_modified = " + old, "created_after"},
		"modified in the future":              {"gmt_modified = " + ahead, "modified_ahead"},
		"alive after five crashes":            {"crashes = 5", "too_many_crashes"},
		"alive after all attempts":            {"attempts = 16", "too_many_attempts"},
		"cancelled with its dedup_key":        {"status = 3, dedup_key = 'k'", "dedup_kept"},
		"pending with a claimer":              {"claimed_by = 'n'", "odd_claimer"},
		"two faults":                          {"crashes = 5, claimed_by = 'n'", "too_many_crashes,odd_claimer"},
	} {
		b.exec("DELETE FROM " + b.layout.Table(2))
		b.add(task{id: id(2, 1), action: b.clock()}, task{id: id(2, 2), action: b.clock()})
		b.exec(fmt.Sprintf("UPDATE %s SET biz_id = %d, attribute = CONCAT('{', job_id)", b.layout.Table(2), b.rightBizID(2)))
		set := strings.ReplaceAll(c.set, "{other}", fmt.Sprint(b.rightBizID(1)))
		b.exec("UPDATE "+b.layout.Table(2)+" SET "+set+" WHERE job_id = ?", id(2, 1))
		bad, rows := b.auditAll(10)
		var got string
		if len(bad) == 1 && bad[0].Table == 2 && bad[0].Rows == 1 && len(bad[0].Examples) == 1 {
			got = bad[0].Faults.String()
		}
		if got != c.want || len(bad) > 1 || rows != 2 {
			t.Errorf("%s: %+v of %d rows, want %q", name, bad, rows, c.want)
		}
	}
}

func TestAuditGoesPageByPageThroughEveryRowOnce(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	var tasks []task
	for i := range 60 { // many of one action_time
		tasks = append(tasks, task{id: id(1, i), kind: uint64(i%2 + 1), status: tocsin.Status(i % 5), action: now - int64(i%3), by: "n", crashes: 5})
	}
	b.add(tasks...)
	bad, rows := b.auditAll(4)
	wrong := 0
	for _, g := range bad {
		wrong += g.Rows
		if len(g.Examples) == 0 || len(g.Examples) > auditExamples {
			t.Errorf("%+v", g)
		}
	}
	if rows != 60 || wrong != 60 {
		t.Errorf("%d rows, %d with faults", rows, wrong)
	}
}

func (b *bench) auditPlans(t *testing.T) {
	q := AuditQuery{Status: tocsin.Done, Tables: []int{0, 1}, Limit: 100, Types: []uint64{1}, From: 1}
	deep := q
	deep.Tables, deep.After = []int{0}, b.entry(id(0, 301))
	for _, q := range []AuditQuery{q, deep} {
		b.wantPlans(t, map[string]string{"audit": b.union(audit, b.auditSlots(q), q.Tables...)}, func(p plan) bool {
			return strings.HasPrefix(p.table, "<") || // the page itself
				p.table == "schedule" && p.key == "PRIMARY" && p.rows == "1" || // of each run
				p.key == "idx_due" && !strings.Contains(p.extra, "filesort") && (p.access == "range" || p.access == "ref")
		})
	}
}

func TestEveryFaultHasANameAndACondition(t *testing.T) {
	t.Parallel()
	if NoSchedule != 1<<(len(faultNames)-1) {
		t.Errorf("%d names, last bit %b", len(faultNames), NoSchedule)
	}
	if all := Fault(1<<len(faultNames) - 1); len(all.Split()) != len(faultNames) || (WrongTable|Overdue).String() != "wrong_table,overdue" {
		t.Errorf("%v: %s", all.Split(), WrongTable|Overdue)
	}
	for bit := 1; bit < len(faultNames); bit++ {
		if text := strings.Join(strings.Fields(faultConditions), " "); !strings.Contains(text, fmt.Sprintf("<< %d ", bit)) && !strings.HasSuffix(text, fmt.Sprintf("<< %d", bit)) {
			t.Errorf("no condition for %s", faultNames[bit])
		}
	}
}

func TestLackingNamesTheBizIDsWithoutATask(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var ids []uint64
	for n := uint64(1); n <= 600; n++ {
		ids = append(ids, n)
		if n%100 != 0 {
			b.add(task{id: id(b.layout.TableOf(n), int(n)), status: tocsin.Status(n % 5)})
			b.exec(fmt.Sprintf("UPDATE %s SET biz_id = %d WHERE biz_id = 7 AND job_id = %d", b.layout.Table(b.layout.TableOf(n)), n, id(b.layout.TableOf(n), int(n))))
		}
	}
	lacking, failed, err := b.Lacking(t.Context(), 0, 1, ids)
	if err != nil || len(failed) != 0 || len(lacking) != 6 {
		t.Errorf("%v, %v, %v", lacking, failed, err)
	}
	if other, _, err := b.Lacking(t.Context(), 0, 2, ids); err != nil || len(other) != 600 {
		t.Errorf("of another type: %d, %v", len(other), err)
	}
}
