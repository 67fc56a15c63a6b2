package docs_test

import (
	"strconv"
	"testing"

	"github.com/tocsinhq/tocsin"
)

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
