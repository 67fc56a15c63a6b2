package docs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// program gives the one program of a kind, for the place's databases.
func (p *place) program(t *testing.T, kind string) string {
	t.Helper()
	return p.rename.Replace(ofKind(t, blocks(t, "sql.md"), kind)[0].text)
}

func TestShellAddsATask(t *testing.T) {
	t.Parallel()
	const bizID = 77
	p, dir := newPlace(t, bizID), home(t)
	payload := "{\"say\": \"it's 100% \\\\ 中文 🔔\"}\n; DROP"
	out, err := shell(t, dir, p.program(t, "sh add-task.sh"), fmt.Sprint(bizID), "3", payload)
	if err != nil {
		t.Fatal(err)
	}
	rows, bells := p.tasks(t, bizID), p.bells(t, bizID)
	if len(rows) != 1 || len(bells) != 1 || bells[0].JobID != rows[0].JobID || bells[0].TableNo != rows[0].JobID.Table() {
		t.Fatalf("rows %+v, bells %+v", rows, bells)
	}
	if rows[0].Payload != payload {
		t.Errorf("payload %q, want %q", rows[0].Payload, payload)
	}
	if out != rows[0].JobID.String()+"\n" {
		t.Errorf("printed %q, want the job_id %d", out, rows[0].JobID)
	}
	p.near(t, "due_time", rows[0].DueTime, 3*time.Second)
	p.seenFromGo(t, rows[0])
	if out, err := shell(t, dir, p.program(t, "sh add-task.sh"), "1;DROP", "3", ""); err == nil {
		t.Errorf("a biz_id that is no number is taken: %s", out)
	}
}

// seenFromGo wants the client of the Go API to find the same task by its job_id alone.
func (p *place) seenFromGo(t *testing.T, row task) {
	t.Helper()
	client, err := tocsin.Open(t.Context(), tocsin.Config{Layout: p.layout, Servers: []tocsin.Server{{DSN: devtest.DSN(t)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	info, err := client.Get(t.Context(), row.JobID)
	if err != nil {
		t.Fatal(err)
	}
	if info.BizType != "order.close" || info.BizID != row.BizID || info.Payload != row.Payload || !info.DueTime.Equal(row.DueTime) {
		t.Errorf("from Go: %+v, in the table: %+v", info, row)
	}
}

func TestShellListsTheDeadOfAllTables(t *testing.T) {
	t.Parallel()
	orders := []uint64{order, 77} // by name of the table
	p := newPlace(t, orders...)
	var wanted []string
	for i, bizID := range orders {
		table := p.layout.TableOf(bizID)
		for status := range 5 {
			id := 1<<40 | table<<9 | status
			p.exec(t, "INSERT INTO "+p.layout.Table(table)+` (job_id, gmt_create, gmt_modified, biz_id, biz_type, status,
				action_time, due_time, attempts, last_error, attribute)
				VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), ?, 7, ?, '2026-02-03 04:05:06', '2026-02-03 04:05:06', ?, 'gone', '')`,
				id, bizID, status, i+1)
			if status == int(tocsin.Dead) {
				wanted = append(wanted, fmt.Sprintf("%d\t%d\t7\t2026-02-03 04:05:06.000\t%d\tgone", id, bizID, i+1))
			}
		}
	}
	out, err := shell(t, home(t), p.program(t, "sh"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(wanted, "\n") + "\n"; out != got {
		t.Errorf("printed\n%swant\n%s", out, got)
	}
}

// TestJavaAndPHPStatementsRun prepares the statements of the two programs, and runs them as the programs do.
func TestJavaAndPHPStatementsRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t, order)
	database, table := p.layout.Database(3), p.layout.TableName(orderTable)
	java := statements(t, p.program(t, "java"), database, table)
	php := statements(t, p.program(t, "php"), database, table)
	if len(java) != 2 || len(php) != 2 {
		t.Fatalf("%d and %d statements, want 2 and 2", len(java), len(php))
	}
	const id, due = orderTable<<9 | 1<<50, "2026-02-03 04:05:06.789"
	steps := []struct {
		what, sql string
		args      []any
		rows      int64
	}{
		{"add with fewer databases", java[0], []any{id, "120881", orderType, due, due, "key", "{}", 4, 1024}, 0},
		{"add with another layout", java[0], []any{id, "120881", orderType, due, due, "key", "{}", 8, 16}, 0},
		{"add", java[0], []any{id, "120881", orderType, due, due, "key", "{}", 8, 1024}, 1},
		{"ring", java[1], []any{orderTable, id}, 1},
		{"cancel", php[0], []any{order, orderType}, 1},
		{"cancel again", php[0], []any{order, orderType}, 0},
	}
	for _, step := range steps {
		if got := p.prepared(t, step.sql, step.args); got != step.rows {
			t.Errorf("%s: %d rows, want %d", step.what, got, step.rows)
		}
	}
	var rows []map[string]any
	list, err := p.db.QueryxContext(t.Context(), php[1], order)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = list.Close() }()
	for list.Next() {
		row := map[string]any{}
		if err := list.MapScan(row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if len(rows) != 1 || fmt.Sprintf("%s", rows[0]["job_id"]) != fmt.Sprint(id) {
		t.Errorf("listed %v", rows)
	}
}

// prepared runs a statement that the server, not the client, fills in, and returns the rows it changed.
func (p *place) prepared(t *testing.T, sql string, args []any) int64 {
	t.Helper()
	stmt, err := p.db.PrepareContext(t.Context(), sql)
	if err != nil {
		t.Fatalf("%v in\n%s", err, sql)
	}
	defer func() { _ = stmt.Close() }()
	res, err := stmt.ExecContext(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v in\n%s", err, sql)
	}
	n, err := res.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAddIsRefusedInTheWrongPlace runs the statement of section 5 where the layout row says no.
func TestAddIsRefusedInTheWrongPlace(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		spoil string
		want  int
	}{
		"nothing is wrong":                {"UPDATE toc_3.layout SET cluster_id = 'x'", 1},
		"the database is retired":         {"UPDATE toc_3.layout SET state = 'retired'", 0},
		"there are more tables":           {"UPDATE toc_3.layout SET tables_per_database = 512, databases_total = 15", 0},
		"it is another database":          {"UPDATE toc_3.layout SET database_no = 4", 0},
		"databases are divided otherwise": {"UPDATE toc_3.layout SET tables_per_database = 512, databases_total = 16", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := reader{place: newPlace(t, order, tocsin.KeyID(orderKey)), s: connect(t, "time_zone = '+00:00'")}
			r.exec(t, r.rename.Replace(c.spoil))
			for _, b := range ofKind(t, blocks(t, "sql.md"), "sql") {
				if strings.Compare(b.section, "6") < 0 && b.section[1] == '.' {
					r.s.run(t, r.rename.Replace(b.text))
				}
			}
			if errs := r.s.close(t); errs != "" {
				t.Error(errs)
			}
			if rows := r.tasks(t, order); len(rows) != c.want {
				t.Errorf("%d rows, want %d", len(rows), c.want)
			}
		})
	}
}

// TestPlacesOfTheDocument compares its table of examples with the Go side, whose place is the server's own: see
// TestTableNumberIsTheServersOwnCRC32 in internal/client.
func TestPlacesOfTheDocument(t *testing.T) {
	t.Parallel()
	layout := tocsin.Layout{Databases: 8, Tables: 1024}
	rows := places(t)
	if len(rows) < 3 {
		t.Fatalf("the document has %d examples", len(rows))
	}
	for _, row := range rows {
		if n := layout.TableOf(row.bizID); n != row.number || layout.Table(n) != row.table {
			t.Errorf("document: %+v; Go: %d, %s", row, n, layout.Table(n))
		}
	}
}
