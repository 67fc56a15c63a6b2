package docs_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

func TestMain(m *testing.M) {
	if err := os.Setenv(secretName, couponSecret); err != nil {
		panic(err)
	}
	devtest.Main(m)
}

const (
	minutes30 = 30 * time.Minute
	expected  = "-- ERROR 1062" // marks the statement that the document lets fail
)

// reader is somebody who tries the page from top to bottom, and looks at the tables after each block.
type reader struct {
	*place
	s *session
}

// checks look at the tables after the blocks of a section, one function a block.
var checks = map[string][]func(r reader, t *testing.T, out []string){
	"Through an outbox":                      {reader.outboxAdded, reader.outboxRescheduled, reader.outboxCancelled, reader.outboxKey},
	"1. Which layout is it?":                 {reader.layoutShown},
	"2. Where does the row live?":            {reader.placeShown},
	"3. What number does the biz type have?": {reader.typeShown},
	"4. Make a job_id":                       {reader.jobIDMade},
	"5. Add a task":                          {reader.added},
	"6. Ring the doorbell":                   {reader.rung},
	"7. Add a task once":                     {reader.refused, reader.readBack},
	"8. Look a task up":                      {reader.listed, reader.found},
	"9. Reschedule":                          {reader.rescheduled},
	"10. Cancel":                             {reader.cancelledByID, reader.cancelledByOrder},
	"11. Find dead tasks":                    {reader.deadShown},
	"13. Headers and business keys":          {reader.keyShown, reader.keyAdded, reader.keyCancelled},
}

// TestEveryStatementInOneSession plays the page in sessions of each sql_mode that the server takes, with several time zones.
func TestEveryStatementInOneSession(t *testing.T) {
	t.Parallel()
	modes, zones := devtest.SQLModes(t), []string{"+00:00", "+08:00", "-11:30"}
	for n, zone := range zones {
		t.Run("time zone "+zone, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, order, tocsin.KeyID(orderKey))
			for i := n; i < len(modes); i += len(zones) {
				t.Run("mode "+modes[i], func(t *testing.T) {
					reader{place: p, s: connect(t, fmt.Sprintf("time_zone = '%s', sql_mode = '%s'", zone, modes[i]))}.play(t)
				})
				p.clear(t)
			}
		})
	}
}

// play runs the blocks of the page and checks what each did.
func (r reader) play(t *testing.T) {
	t.Helper()
	seen := map[string]int{}
	for _, b := range ofKind(t, blocks(t, "sql.md"), "sql") {
		check := checks[b.section]
		if seen[b.section] == len(check) {
			t.Fatalf("no check for block %d of section %q", seen[b.section]+1, b.section)
		}
		out := r.s.run(t, r.rename.Replace(b.text))
		check[seen[b.section]](r, t, out)
		seen[b.section]++
	}
	for section, check := range checks {
		if seen[section] != len(check) {
			t.Errorf("section %q has %d blocks, want %d", section, seen[section], len(check))
		}
	}
	errs := r.s.close(t)
	if strings.Count(errs, "\nERROR ") != 1 || !strings.Contains(errs, expected+"\n--") || !strings.Contains(errs, "\nERROR 1062 ") {
		t.Errorf("the client says\n%s\nwant error 1062 of the one statement that is marked with it", errs)
	}
}

// clear empties what a reader has written.
func (p *place) clear(t *testing.T) {
	t.Helper()
	for _, bizID := range []uint64{order, tocsin.KeyID(orderKey)} {
		n := p.layout.TableOf(bizID)
		for _, table := range []string{p.layout.Table(n), p.layout.Database(p.layout.DatabaseOf(n)) + ".doorbell"} {
			p.exec(t, "DELETE FROM "+table)
		}
	}
}

// want compares the client's output.
func want(t *testing.T, what string, out []string, lines ...string) {
	t.Helper()
	if !slices.Equal(out, lines) {
		t.Errorf("%s: the client printed\n%q, want\n%q", what, out, lines)
	}
}

func (r reader) layoutShown(t *testing.T, out []string) {
	want(t, "layout", out,
		"cluster_id\tdatabase_no\tdatabases_total\ttables_per_database\thash\tstate\tdoorbell_horizon_ms",
		fmt.Sprintf("docs\t3\t8\t1024\tcrc32\tactive\t%d", horizon))
}

func (r reader) placeShown(t *testing.T, out []string) {
	n := r.layout.TableOf(order)
	if n != orderTable {
		t.Errorf("the Go side says table %d, the document %d", n, orderTable)
	}
	want(t, "place", out, "table_no\tdatabase_name\ttable_name",
		fmt.Sprintf("%d\t%s\t%s", n, r.layout.Database(r.layout.DatabaseOf(n)), r.layout.TableName(n)))
}

func (r reader) typeShown(t *testing.T, out []string) {
	want(t, "biz type", out, "@biz_type", strconv.Itoa(orderType))
}

func (r reader) jobIDMade(t *testing.T, out []string) {
	want(t, "job_id", out)
	id, err := tocsin.ParseJobID(r.s.run(t, "SELECT @job_id;")[1])
	if err != nil || id.Table() != orderTable {
		t.Errorf("job_id %d (%v) is of table %d", id, err, id.Table())
	}
	r.near(t, "time of the job_id", id.Time(), 0)
}

func (r reader) added(t *testing.T, out []string) {
	want(t, "add", out)
	rows := r.tasks(t, order)
	if len(rows) != 1 || rows[0].Status != tocsin.Pending || rows[0].Payload != `{"reason":"unpaid"}` || rows[0].DedupKey != nil {
		t.Fatalf("rows %+v", rows)
	}
	r.near(t, "due_time", rows[0].DueTime, minutes30)
	if !rows[0].ActionTime.Equal(rows[0].DueTime) {
		t.Errorf("action_time %s, due_time %s", rows[0].ActionTime, rows[0].DueTime)
	}
}

func (r reader) rung(t *testing.T, out []string) {
	want(t, "ring", out)
	rows, bells := r.tasks(t, order), r.bells(t, order)
	if len(rows) != 2 || rows[1].DedupKey == nil || *rows[1].DedupKey != "fraud-check" {
		t.Fatalf("rows %+v", rows)
	}
	r.near(t, "due_time", rows[1].DueTime, 2*time.Second)
	if wanted := (bell{orderTable, rows[1].JobID, orderType, rows[1].ActionTime}); len(bells) != 1 || bells[0] != wanted {
		t.Errorf("bells %+v, want %+v", bells, wanted)
	}
}

func (r reader) refused(t *testing.T, out []string) {
	want(t, "second insert", out)
	if rows := r.tasks(t, order); len(rows) != 2 {
		t.Errorf("%d rows, want 2", len(rows))
	}
}

func (r reader) readBack(t *testing.T, out []string) {
	row := r.tasks(t, order)[1]
	want(t, "read back", out, "job_id\tstatus\tdue_time", fmt.Sprintf("%d\t0\t%s", row.JobID, text(row.DueTime)))
}

// text is a DATETIME(3) as the client prints it.
func text(at time.Time) string { return at.Format("2006-01-02 15:04:05.000") }

func (r reader) listed(t *testing.T, out []string) {
	rows := r.tasks(t, order)
	first, second := min(rows[0].JobID, rows[1].JobID), max(rows[0].JobID, rows[1].JobID)
	if len(out) != 3 || !strings.HasPrefix(out[1], first.String()+"\t") || !strings.HasPrefix(out[2], second.String()+"\t") {
		t.Errorf("the client printed %q for %+v", out, rows)
	}
}

func (r reader) found(t *testing.T, out []string) {
	row := r.tasks(t, order)[1]
	want(t, "look up", out, "table_no", strconv.Itoa(orderTable),
		"biz_id\tbiz_type\tstatus\taction_time\tdue_time\tattempts\tversion\tlast_error",
		fmt.Sprintf("%d\t%d\t0\t%s\t%s\t0\t0\t", order, orderType, text(row.ActionTime), text(row.DueTime)))
}

func (r reader) rescheduled(t *testing.T, out []string) {
	want(t, "reschedule", out)
	row, bells := r.tasks(t, order)[1], r.bells(t, order)
	if row.Version != 1 || row.Attempts != 0 || row.Status != tocsin.Pending || !row.ActionTime.Equal(row.DueTime) {
		t.Errorf("row %+v", row)
	}
	if wanted := (bell{orderTable, row.JobID, orderType, row.ActionTime}); len(bells) != 2 || bells[1] != wanted {
		t.Errorf("bells %+v, want a second one %+v", bells, wanted)
	}
}

func (r reader) cancelledByID(t *testing.T, out []string) {
	want(t, "cancel", out, "cancelled", "1")
	rows := r.tasks(t, order)
	if rows[0].Status != tocsin.Pending || rows[1].Status != tocsin.Cancelled || rows[1].DedupKey != nil {
		t.Errorf("rows %+v", rows)
	}
	r.near(t, "action_time", rows[1].ActionTime, 0)
}

// cancelledByOrder makes both rows dead, for the next section.
func (r reader) cancelledByOrder(t *testing.T, out []string) {
	want(t, "cancel", out, "cancelled", "1")
	rows := r.tasks(t, order)
	if rows[0].Status != tocsin.Cancelled || rows[1].Status != tocsin.Cancelled {
		t.Errorf("rows %+v", rows)
	}
	r.exec(t, "UPDATE "+r.layout.Table(orderTable)+" SET status = 4, last_error = 'no answer' WHERE job_id = ?", rows[0].JobID)
}

func (r reader) deadShown(t *testing.T, out []string) {
	row := r.tasks(t, order)[0]
	want(t, "dead", out, "job_id\tbiz_id\tbiz_type\taction_time\tattempts\tlast_error",
		fmt.Sprintf("%d\t%d\t%d\t%s\t0\tno answer", row.JobID, order, orderType, text(row.ActionTime)))
}

// orderKey is the key of the document's order that has no number.
const orderKey = "ord_01J8Z3"

// keyRow is what a row of the key's table has that others lack.
type keyRow struct {
	Status  tocsin.Status  `db:"status"`
	Headers tocsin.Headers `db:"headers"`
	BizKey  string         `db:"biz_key"`
	Dedup   *string        `db:"dedup_key"`
}

// keyRow reads the only row of the key, and checks where it is.
func (r reader) keyRow(t *testing.T) (row keyRow) {
	t.Helper()
	rows := r.tasks(t, tocsin.KeyID(orderKey))
	if len(rows) != 1 {
		t.Fatalf("rows %+v", rows)
	}
	err := r.db.GetContext(t.Context(), &row, "SELECT status, headers, biz_key, dedup_key FROM "+r.layout.Table(r.layout.TableOf(tocsin.KeyID(orderKey))))
	if err != nil || row.BizKey != orderKey || row.Headers.Get("tenant") != "shop-7" {
		t.Errorf("%+v, %v", row, err)
	}
	return row
}

func (r reader) outboxKey(t *testing.T, out []string) {
	want(t, "add by key", out)
	r.relay(t)
	if row := r.keyRow(t); row.Status != tocsin.Pending {
		t.Errorf("%+v", row)
	}
	table := r.layout.TableOf(tocsin.KeyID(orderKey))
	for _, table := range []string{r.layout.Table(table), r.layout.Database(r.layout.DatabaseOf(table)) + ".doorbell"} {
		r.exec(t, "DELETE FROM "+table)
	}
}

func (r reader) keyShown(t *testing.T, out []string) {
	id := tocsin.KeyID(orderKey)
	want(t, "biz_id of the key", out, "biz_id\ttable_no", strconv.FormatUint(id, 10)+"\t"+strconv.Itoa(r.layout.TableOf(id)))
}

func (r reader) keyAdded(t *testing.T, out []string) {
	want(t, "add by key", out)
	if row := r.keyRow(t); row.Status != tocsin.Pending || row.Dedup == nil || *row.Dedup != "close" {
		t.Errorf("%+v", row)
	}
	r.near(t, "due_time", r.tasks(t, tocsin.KeyID(orderKey))[0].DueTime, minutes30)
}

func (r reader) keyCancelled(t *testing.T, out []string) {
	row := r.keyRow(t)
	if len(out) != 4 || out[0] != "job_id\tstatus\tdue_time\theaders" || out[3] != "1" || row.Status != tocsin.Cancelled || row.Dedup != nil {
		t.Errorf("%q, %+v", out, row)
	}
}

// makeOutbox makes the outbox of the document.
func (p *place) makeOutbox(t *testing.T) {
	t.Helper()
	database := p.layout.Prefix + "_shop"
	p.exec(t, "CREATE DATABASE "+database)
	p.outbox = outbox.Config{DSN: devtest.DSN(t), Table: database + ".tocsin_outbox"}
	if _, err := ddl.ApplyOutbox(t.Context(), ddl.Outbox{DSN: p.outbox.DSN, Table: p.outbox.Table}); err != nil {
		t.Fatal(err)
	}
}

// relay moves the only row of the outbox, as a relay does.
func (p *place) relay(t *testing.T) {
	t.Helper()
	from, err := outbox.Open(p.outbox)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	tasks, err := tocsin.Open(t.Context(), tocsin.Config{Layout: p.layout, Servers: []tocsin.Server{{DSN: devtest.DSN(t)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer tasks.Close()
	rows, err := from.List(t.Context(), 0, 10, false)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows in the outbox, want 1: %v", len(rows), err)
	}
	if got := client.MoverOf(tasks).Move(t.Context(), "docs", rows); got[0].Fate != outbox.Moved {
		t.Fatalf("%+v becomes %+v", rows[0], got[0])
	}
	p.exec(t, "DELETE FROM "+p.outbox.Table)
}

func (r reader) outboxAdded(t *testing.T, out []string) {
	want(t, "add", out)
	r.relay(t)
	rows := r.tasks(t, order)
	if len(rows) != 1 || rows[0].Status != tocsin.Pending || rows[0].Payload != `{"reason":"unpaid"}` {
		t.Fatalf("rows %+v", rows)
	}
	r.near(t, "due_time", rows[0].DueTime, minutes30)
}

func (r reader) outboxRescheduled(t *testing.T, out []string) {
	want(t, "reschedule", out)
	r.relay(t)
	row := r.tasks(t, order)[0]
	if row.Version != 1 {
		t.Errorf("row %+v", row)
	}
	r.near(t, "due_time", row.DueTime, 40*time.Minute)
}

func (r reader) outboxCancelled(t *testing.T, out []string) {
	want(t, "cancel", out)
	r.relay(t)
	if row := r.tasks(t, order)[0]; row.Status != tocsin.Cancelled {
		t.Errorf("row %+v", row)
	}
	for _, table := range []string{r.layout.Table(orderTable), r.layout.Database(3) + ".doorbell"} { // the rest of the page begins anew
		r.exec(t, "DELETE FROM "+table)
	}
}
