package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestCancelSaysWhatBecameOfEachTask(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	const bizID = 6
	table := c.Layout().Table(c.Layout().TableOf(bizID))
	for status := range uint8(5) {
		id := add(t, c, remind.New(bizID, "x", tocsin.In(day))).JobID
		exec(t, db, "UPDATE "+table+" SET status = ? WHERE job_id = ?", status, uint64(id))
	}
	other := add(t, c, closeOrder.New(bizID, order{}, tocsin.In(day))).JobID
	more := add(t, c, remind.New(bizID, "x", tocsin.In(day)).Dedup("k")).JobID
	due := add(t, c, remind.New(bizID, "x", tocsin.In(0))).JobID
	ch := must[tocsin.Change](t)(c.Cancel(t.Context(), remind.Of(bizID)))
	if ch != (tocsin.Change{Changed: 4, InDelivery: 2, Final: 3}) {
		t.Errorf("got %+v", ch)
	}
	if got := get(t, c, more); got.Status != tocsin.Cancelled || got.DedupKey != "" || !got.ActionTime.Equal(got.Modified) {
		t.Errorf("cancelled: %+v", got)
	}
	if got := get(t, c, due); got.Status != tocsin.Cancelled {
		t.Errorf("a due task: %+v", got)
	}
	if got := get(t, c, other); got.Status != tocsin.Pending {
		t.Errorf("task of another biz type: %+v", got)
	}
	if ch := must[tocsin.Change](t)(c.Cancel(t.Context(), remind.Of(bizID+1))); ch != (tocsin.Change{}) {
		t.Errorf("nothing there: %+v", ch)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM "+table+" WHERE status IN (0, 1) AND job_id <> ?", uint64(other)); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// strict makes a biz type strict.
func strict(t *testing.T, c *tocsin.Client, db *sql.DB, number int) {
	t.Helper()
	for n := range c.Layout().Databases {
		exec(t, db, "UPDATE "+c.Layout().Database(n)+`.biz_type SET policy = '{"timeout":"10s","strict":true}' WHERE number = ?`, number)
	}
}

// TestAClaimedTaskOfAStrictTypeIsNotChanged, nor are others of its biz_id: the error says so, and nothing is half done. What is
// due is not claimed, so no delivery of it is under way.
func TestAClaimedTaskOfAStrictTypeIsNotChanged(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	strict(t, c, db, 8)
	const bizID = 6
	table := c.Layout().Table(c.Layout().TableOf(bizID))
	waiting, claimed := add(t, c, remind.New(bizID, "x", tocsin.In(0))).JobID, add(t, c, remind.New(bizID, "x", tocsin.In(0))).JobID
	exec(t, db, "UPDATE "+table+" SET status = 1, claimed_by = 'node-1' WHERE job_id = ?", uint64(claimed))
	before := listed(t, c, bizID)
	for name, change := range map[string]func(tocsin.Ref) (tocsin.Change, error){
		"cancel":     func(ref tocsin.Ref) (tocsin.Change, error) { return c.Cancel(t.Context(), ref) },
		"reschedule": func(ref tocsin.Ref) (tocsin.Change, error) { return c.Reschedule(t.Context(), ref, tocsin.In(day)) },
		"cancel in a transaction": func(ref tocsin.Ref) (tocsin.Change, error) {
			tx := begin(t, db)
			defer func() { _ = tx.Commit() }()
			return c.CancelTx(t.Context(), tx, ref)
		},
		"reschedule in a transaction": func(ref tocsin.Ref) (tocsin.Change, error) {
			tx := begin(t, db)
			defer func() { _ = tx.Commit() }()
			return c.RescheduleTx(t.Context(), tx, ref, tocsin.In(day))
		},
	} {
		for _, ref := range []tocsin.Ref{tocsin.ByID(claimed), remind.Of(bizID)} {
			if ch, err := change(ref); !errors.Is(err, tocsin.ErrInDelivery) || ch != (tocsin.Change{}) {
				t.Errorf("%s: %+v, %v", name, ch, err)
			}
		}
	}
	if after := listed(t, c, bizID); !slices.Equal(after, before) {
		t.Errorf("%+v, was %+v", after, before)
	}
	if ch := must[tocsin.Change](t)(c.Cancel(t.Context(), tocsin.ByID(waiting))); ch != (tocsin.Change{Changed: 1}) {
		t.Errorf("what is due: %+v", ch)
	}
	exec(t, db, "UPDATE "+c.Layout().Database(c.Layout().DatabaseOf(claimed.Table()))+".biz_type SET policy = '{}'") // the policy decides as it is now
	if ch := must[tocsin.Change](t)(c.Cancel(t.Context(), tocsin.ByID(claimed))); ch != (tocsin.Change{Changed: 1, InDelivery: 1}) {
		t.Errorf("not strict any more: %+v", ch)
	}
}

func TestRescheduleBeginsAnew(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	id := add(t, c, remind.New(6, "x", tocsin.In(day))).JobID
	exec(t, db, "UPDATE "+c.Layout().Table(id.Table())+" SET attempts = 5, last_error = 'x'")
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
	for name, ref := range map[string]tocsin.Ref{"by id": tocsin.ByID(id), "by biz": remind.Of(6)} {
		exec(t, db, "UPDATE "+c.Layout().Table(id.Table())+" SET status = 1, claimed_by = 'node-1', action_time = action_time + INTERVAL 10 SECOND")
		version := get(t, c, id).Version
		if ch := must[tocsin.Change](t)(c.Reschedule(t.Context(), ref, tocsin.At(at))); ch != (tocsin.Change{Changed: 1, InDelivery: 1}) {
			t.Errorf("claimed, %s: %+v", name, ch)
		}
		if got := get(t, c, id); got.Status != tocsin.Pending || got.ClaimedBy != "" || got.Version != version+1 || !got.ActionTime.Equal(at) {
			t.Errorf("claimed, %s: %+v", name, got)
		}
	}
}

func TestCompleteTxIsOnceAndNamesWhatChanged(t *testing.T) {
	t.Parallel()
	c, db := start(t)
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

func TestListIsOldestFirstAndNamesTypes(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	first := add(t, c, remind.New(6, "x", tocsin.In(day))).JobID
	second := add(t, c, closeOrder.New(6, order{}, tocsin.In(0))).JobID
	third := add(t, c, remind.New(6, "x", tocsin.In(time.Second)).Dedup("k")).JobID
	exec(t, session(t, devtest.DSN(t), ""), "UPDATE "+c.Layout().Table(first.Table())+" SET biz_type = 12345 WHERE job_id = ?", uint64(third))
	list := listed(t, c, 6)
	if len(list) != 3 || list[0].JobID != first || list[1].JobID != second || list[2].JobID != third {
		t.Fatalf("got %+v", list)
	}
	if list[0].BizType != "coupon.remind" || list[1].BizType != "order.close" || list[2].BizType != "#12345" {
		t.Errorf("types %q, %q, %q", list[0].BizType, list[1].BizType, list[2].BizType)
	}
	if none := listed(t, c, 7); len(none) != 0 {
		t.Errorf("got %+v", none)
	}
}

func TestChangesGoThroughTheFunctionsOfUseChangesWhichMayRefuseThem(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	var seen []string
	for _, name := range []string{"outer", "inner"} {
		cfg.UseChanges = append(cfg.UseChanges, func(next tocsin.ChangeFunc) tocsin.ChangeFunc {
			return func(ctx context.Context, call *tocsin.Changing) error {
				err := next(ctx, call)
				seen = append(seen, fmt.Sprint(name, " ", call.Op, " ", call.BizType, " ", call.BizID, " ", call.BizKey, " ", call.JobID != 0, " ", call.Done.Changed))
				return err
			}
		})
	}
	refused := errors.New("not on a Friday")
	cfg.UseChanges = append(cfg.UseChanges, func(next tocsin.ChangeFunc) tocsin.ChangeFunc {
		return func(ctx context.Context, call *tocsin.Changing) error {
			if call.Op == "cancel" {
				return refused
			}
			return next(ctx, call)
		}
	})
	c, db := open(t, cfg), session(t, devtest.DSN(t), "")
	id := add(t, c, closeOrder.New(7, order{}, tocsin.In(time.Hour))).JobID
	add(t, c, closeOrder.NewKey("ord_1", order{}, tocsin.In(time.Hour)))
	within := func(do func(tx tocsin.Tx) (tocsin.Change, error)) (tocsin.Change, error) {
		tx := must[*sql.Tx](t)(db.BeginTx(t.Context(), nil))
		defer func() { _ = tx.Commit() }()
		return do(tx)
	}
	for want, call := range map[string]func() (tocsin.Change, error){ // in any order
		"reschedule order.close 7  false 1": func() (tocsin.Change, error) {
			return c.Reschedule(t.Context(), closeOrder.Of(7), tocsin.In(2*time.Hour))
		},
		"reschedule_tx  0  true 1": func() (tocsin.Change, error) {
			return within(func(tx tocsin.Tx) (tocsin.Change, error) {
				return c.RescheduleTx(t.Context(), tx, tocsin.ByID(id), tocsin.In(3*time.Hour))
			})
		},
		fmt.Sprintf("cancel_tx order.close %d ord_1 false 1", tocsin.KeyID("ord_1")): func() (tocsin.Change, error) {
			return within(func(tx tocsin.Tx) (tocsin.Change, error) {
				return c.CancelTx(t.Context(), tx, closeOrder.OfKey("ord_1"))
			})
		},
	} {
		seen = nil
		done, err := call()
		if err != nil || done.Changed != 1 || !slices.Equal(seen, []string{"inner " + want, "outer " + want}) {
			t.Errorf("%+v, %v: %q, want %q", done, err, seen, want)
		}
	}
	if done, err := c.Cancel(t.Context(), tocsin.ByID(id)); !errors.Is(err, refused) || done.Changed != 0 || get(t, c, id).Status != tocsin.Pending {
		t.Errorf("%+v, %v", done, err)
	}
	cfg.UseChanges = append(cfg.UseChanges, nil)
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "a function of UseChanges is nil") {
		t.Error(err)
	}
}

// A nil context once panicked inside the pool and left its lock taken, which blocked
// the client for ever. In AddMany it ended the process.
func TestANilContextOrTransactionIsRefusedAndTheClientGoesOn(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	tx := must[*sql.Tx](t)(db.Begin())
	defer func() { _ = tx.Rollback() }()
	var none context.Context
	task, ref, in := remind.New(1, "x", tocsin.In(day)), tocsin.ByID(1), tocsin.In(0)
	for name, call := range map[string]func() error{
		"Open":           func() error { _, err := tocsin.Open(none, cfg); return err },
		"Add":            func() error { _, err := c.Add(none, task); return err },
		"AddMany":        func() error { _, err := c.AddMany(none, []tocsin.NewTask{task}); return err },
		"AddTx":          func() error { _, err := c.AddTx(none, tx, task); return err },
		"Cancel":         func() error { _, err := c.Cancel(none, ref); return err },
		"CancelTx":       func() error { _, err := c.CancelTx(none, tx, ref); return err },
		"Reschedule":     func() error { _, err := c.Reschedule(none, ref, in); return err },
		"RescheduleTx":   func() error { _, err := c.RescheduleTx(none, tx, ref, in); return err },
		"Get":            func() error { _, err := c.Get(none, 1); return err },
		"List":           func() error { _, err := c.List(none, 1); return err },
		"CompleteTx":     func() error { return tocsin.CompleteTx(none, tx, tocsin.Info{}) },
		"AddTx, nil":     func() error { _, err := c.AddTx(t.Context(), nil, task); return err },
		"CancelTx, nil":  func() error { _, err := c.CancelTx(t.Context(), nil, ref); return err },
		"Resched., nil":  func() error { _, err := c.RescheduleTx(t.Context(), nil, ref, in); return err },
		"Complete., nil": func() error { return tocsin.CompleteTx(t.Context(), nil, tocsin.Info{}) },
	} {
		if err := call(); !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), "is nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
	added, _ := c.AddMany(none, []tocsin.NewTask{task, task})
	for _, a := range added {
		if !errors.Is(a.Err, tocsin.ErrInvalid) {
			t.Errorf("AddMany says %v of a task", a.Err)
		}
	}
	add(t, c, task) // nothing is locked
}

// TestTwoThatReplaceATaskThatIsNotThereYet cancel by biz_id and then add, both before either commits. At REPEATABLE READ the cancels lock
// the gap in which both insert, so the server ends one of them, and its repetition finds the other's task. At READ COMMITTED only a unique key
// keeps them from leaving two.
func TestTwoThatReplaceATaskThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	plain := remind.New(6, "x", tocsin.In(day))
	for name, s := range map[string]struct {
		level       sql.IsolationLevel
		task        tocsin.NewTask
		ended, left int
	}{
		"repeatable read":                    {sql.LevelRepeatableRead, plain, 1, 1},
		"read committed":                     {sql.LevelReadCommitted, plain, 0, 2},
		"read committed, with a unique key":  {sql.LevelReadCommitted, plain.Unique("k", tocsin.While(tocsin.Pending, tocsin.Claimed)), 0, 1},
		"repeatable read, with a unique key": {sql.LevelRepeatableRead, plain.Unique("k", tocsin.While(tocsin.Pending, tocsin.Claimed)), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, db := start(t)
			var txs [2]*sql.Tx
			for i := range txs {
				txs[i] = must[*sql.Tx](t)(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: s.level}))
				defer func() { _ = txs[i].Rollback() }()
				must[tocsin.Change](t)(c.CancelTx(t.Context(), txs[i], remind.Of(6)))
			}
			_, errs := devtest.AtOnce(len(txs), func(i int) (tocsin.Added, error) {
				added, err := c.AddTx(t.Context(), txs[i], s.task)
				if err != nil {
					return added, errors.Join(err, txs[i].Rollback())
				}
				return added, txs[i].Commit()
			})
			ended := 0
			for _, err := range errs {
				var said *mysql.MySQLError
				switch {
				case errors.As(err, &said) && (said.Number == 1213 || said.Number == 1020):
					if said.Number == 1213 { // not 1020, of a MariaDB with innodb_snapshot_isolation: an insert waited for a row that is new now
						ended++
					}
					tx := must[*sql.Tx](t)(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: s.level}))
					must[tocsin.Change](t)(c.CancelTx(t.Context(), tx, remind.Of(6)))
					must[tocsin.Added](t)(c.AddTx(t.Context(), tx, s.task))
					commit(t, tx)
				case err != nil:
					t.Error(err)
				}
			}
			left := 0
			for _, info := range listed(t, c, 6) {
				if info.Status == tocsin.Pending {
					left++
				}
			}
			if ended != s.ended || left != s.left {
				t.Errorf("%d were ended, want %d; %d tasks are left, want %d", ended, s.ended, left, s.left)
			}
		})
	}
}
