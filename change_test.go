package tocsin_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestCancelSaysWhatBecameOfEachTask(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	const bizID = 6
	table := cfg.Layout.Table(cfg.Layout.TableOf(bizID))
	for status := range uint8(5) {
		id := add(t, c, remind.New(bizID, "x", tocsin.In(day))).JobID
		exec(t, db, "UPDATE "+table+" SET status = ? WHERE job_id = ?", status, uint64(id))
	}
	other := add(t, c, closeOrder.New(bizID, order{}, tocsin.In(day))).JobID
	more := add(t, c, remind.New(bizID, "x", tocsin.In(day)).Dedup("k")).JobID
	ch := must[tocsin.Change](t)(c.Cancel(t.Context(), remind.Of(bizID)))
	if ch != (tocsin.Change{Changed: 2, InDelivery: 1, Final: 3}) {
		t.Errorf("got %+v", ch)
	}
	if got := get(t, c, more); got.Status != tocsin.Cancelled || got.DedupKey != "" || !got.ActionTime.Equal(got.Modified) {
		t.Errorf("cancelled: %+v", got)
	}
	if got := get(t, c, other); got.Status != tocsin.Pending {
		t.Errorf("task of another biz type: %+v", got)
	}
	if ch := must[tocsin.Change](t)(c.Cancel(t.Context(), remind.Of(bizID+1))); ch != (tocsin.Change{}) {
		t.Errorf("nothing there: %+v", ch)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM "+table+" WHERE status = 1"); n != 1 {
		t.Errorf("%d are claimed", n)
	}
}

func TestRescheduleBeginsAnew(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	id := add(t, c, remind.New(6, "x", tocsin.In(day))).JobID
	exec(t, db, "UPDATE "+cfg.Layout.Table(id.Table())+" SET attempts = 5, last_error = 'x'")
	before := get(t, c, id)
	at := time.Now().Add(2 * day).UTC().Truncate(time.Millisecond)
	for name, ref := range map[string]tocsin.Ref{"by id": tocsin.ByID(id), "by biz": remind.Of(6)} {
		if ch := must[tocsin.Change](t)(c.Reschedule(t.Context(), ref, tocsin.At(at))); ch.Changed != 1 {
			t.Errorf("%s: %+v", name, ch)
		}
	}
	got := get(t, c, id)
	if !got.ActionTime.Equal(at) || !got.DueTime.Equal(at) || got.Attempts != 0 || got.Version != 2 || got.Key() == before.Key() {
		t.Errorf("got %+v", got)
	}
	if n := bells(t, c, db, id); n != 0 {
		t.Errorf("%d rings", n)
	}
	must[tocsin.Change](t)(c.Reschedule(t.Context(), remind.Of(6), tocsin.At(time.Unix(1, 0))))
	if got := get(t, c, id); !got.ActionTime.Equal(got.Modified) || got.DueTime.Unix() != 1 || bells(t, c, db, id) != 1 {
		t.Errorf("into the past: %+v, %d rings", got, bells(t, c, db, id))
	}
	exec(t, db, "UPDATE "+cfg.Layout.Table(id.Table())+" SET status = 1")
	for name, ref := range map[string]tocsin.Ref{"by id": tocsin.ByID(id), "by biz": remind.Of(6)} {
		if ch := must[tocsin.Change](t)(c.Reschedule(t.Context(), ref, tocsin.In(0))); ch != (tocsin.Change{InDelivery: 1}) {
			t.Errorf("claimed, %s: %+v", name, ch)
		}
	}
}

func TestCompleteTxIsOnceAndNamesWhatChanged(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	for name, s := range map[string]struct {
		change string // of the row, after it was loaded
		want   string // "": completed
	}{
		"pending":     {"", ""},
		"claimed":     {"SET status = 1", ""},
		"dead":        {"SET status = 4", ""},
		"cancelled":   {"SET status = 3", "it is cancelled already"},
		"completed":   {"SET status = 2", "it is done already"},
		"rescheduled": {"SET version = 7", "it was rescheduled meanwhile (version 7, not 0)"},
		"purged":      {"DELETE", "it is not in"},
	} {
		info := get(t, c, add(t, c, remind.New(6, "x", tocsin.In(day))).JobID)
		switch {
		case s.change == "DELETE":
			exec(t, db, "DELETE FROM "+info.Table+" WHERE job_id = ?", uint64(info.JobID))
		case s.change != "":
			exec(t, db, "UPDATE "+info.Table+" "+s.change+" WHERE job_id = ?", uint64(info.JobID))
		}
		tx := begin(t, db)
		err := tocsin.CompleteTx(t.Context(), tx, info)
		if s.want != "" {
			if !errors.Is(err, tocsin.ErrConflict) || !strings.Contains(err.Error(), s.want) {
				t.Errorf("%s: %v", name, err)
			}
			_ = tx.Rollback()
			continue
		}
		if err := errors.Join(err, tx.Commit()); err != nil || get(t, c, info.JobID).Status != tocsin.Done {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCompleteTxNeedsATable(t *testing.T) {
	t.Parallel()
	var tx *sql.Tx // is not touched
	for _, table := range []string{"", "x", "toc_0.task_0000; DROP TABLE x", "`toc_0`.task_0000"} {
		if err := tocsin.CompleteTx(t.Context(), tx, tocsin.Info{JobID: 1, Table: table}); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("%q: %v", table, err)
		}
	}
}

func TestListIsOldestFirstAndNamesTypes(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	first := add(t, c, remind.New(6, "x", tocsin.In(day))).JobID
	second := add(t, c, closeOrder.New(6, order{}, tocsin.In(0))).JobID
	third := add(t, c, remind.New(6, "x", tocsin.In(time.Second)).Dedup("k")).JobID
	exec(t, session(t, devtest.DSN(t), ""), "UPDATE "+cfg.Layout.Table(first.Table())+" SET biz_type = 12345 WHERE job_id = ?", uint64(third))
	list := must[[]tocsin.Info](t)(c.List(t.Context(), 6))
	if len(list) != 3 || list[0].JobID != first || list[1].JobID != second || list[2].JobID != third {
		t.Fatalf("got %+v", list)
	}
	if list[0].BizType != "coupon.remind" || list[1].BizType != "order.close" || list[2].BizType != "#12345" {
		t.Errorf("types %q, %q, %q", list[0].BizType, list[1].BizType, list[2].BizType)
	}
	if none := must[[]tocsin.Info](t)(c.List(t.Context(), 7)); len(none) != 0 {
		t.Errorf("got %+v", none)
	}
}
