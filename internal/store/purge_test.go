package store

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

const hour = int64(time.Hour / time.Millisecond)

// there reports whether the row exists.
func (b *bench) there(id tocsin.JobID) bool {
	b.tb.Helper()
	return scalar[int](b, "SELECT COUNT(*) FROM "+b.layout.Table(id.Table())+" WHERE job_id = ?", id) == 1
}

func TestPurgeDeletesOnlyWhatIsStillAsItWasFound(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	before := time.Now().UnixMilli() - hour
	old := before - 1000
	cases := []struct {
		name string
		row  task
		gone bool
	}{
		{"done before the cut-off", task{status: tocsin.Done, action: old}, true},
		{"pending, however old", task{status: tocsin.Pending, action: old}, false},
		{"claimed, however old", task{status: tocsin.Claimed, action: old}, false},
		{"cancelled, where done ones are purged", task{status: tocsin.Cancelled, action: old}, false},
		{"dead, where done ones are purged", task{status: tocsin.Dead, action: old}, false},
		{"done at the cut-off", task{status: tocsin.Done, action: before}, false},
		{"done of another biz type than it was", task{status: tocsin.Done, action: old, kind: 2}, false},
		{"done after it was found, settled anew", task{status: tocsin.Done, action: before + hour}, false},
	}
	var found []duequeue.Entry
	for i, c := range cases {
		c.row.id = id(1, i)
		b.add(c.row)
		found = append(found, duequeue.Entry{JobID: c.row.id, Type: 1, Due: old})
	}
	if got, err := b.Purge(t.Context(), 0, tocsin.Done, before, found); err != nil || !maps.Equal(got, map[uint64]int{1: 1}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, status := range []tocsin.Status{tocsin.Pending, tocsin.Claimed, tocsin.Dead + 1} {
		if _, err := b.Purge(t.Context(), 0, status, b.clock(), found); !errors.Is(err, errNotFinal) {
			t.Errorf("%s: %v", status, err)
		}
	}
	for i, c := range cases {
		if b.there(id(1, i)) == c.gone {
			t.Errorf("%s: there %t", c.name, !c.gone)
		}
	}
}

func TestPurgeCountsByBizType(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var rows []duequeue.Entry
	for i := range 12 {
		row := task{id: id(i%4, i), kind: uint64(i%3 + 1), status: tocsin.Dead, action: 1000}
		b.add(row)
		rows = append(rows, duequeue.Entry{JobID: row.id, Type: row.kind, Due: 1000})
	}
	got, err := b.Purge(t.Context(), 0, tocsin.Dead, b.clock(), rows[:10])
	if want := map[uint64]int{1: 4, 2: 3, 3: 3}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	got, err = b.Purge(t.Context(), 0, tocsin.Dead, b.clock(), rows)
	if want := map[uint64]int{1: 0, 2: 1, 3: 1}; err != nil || !maps.Equal(got, want) {
		t.Errorf("again: %v, %v, want %v", got, err, want)
	}
}

func TestPurgeOfALockedRowIsContendedAndDeletesNothing(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(0, 1), status: tocsin.Done, action: 1000}, task{id: id(0, 2), status: tocsin.Done, action: 1000})
	unlock := b.locked(id(0, 2))
	defer unlock()
	rows := []duequeue.Entry{{JobID: id(0, 1), Type: 1}, {JobID: id(0, 2), Type: 1}}
	if _, err := b.Purge(t.Context(), 0, tocsin.Done, b.clock(), rows); mysql.ClassOf(err) != mysql.Contended {
		t.Errorf("%v", err)
	}
	if !b.there(id(0, 1)) {
		t.Error("half a batch is deleted")
	}
}

// purgeTexts are the statements that purge done rows.
func (b *bench) purgeTexts(rows []duequeue.Entry) (texts []string) {
	for _, part := range byTableAndType(rows) {
		in := slots{"ids": part.ids, "status": tocsin.Done, "type": part.typeCode, "before": instant(b.clock())}
		texts = append(texts, strings.TrimSuffix(b.union(purge, in, part.table), ";"))
	}
	return texts
}

func (b *bench) purgePlans(t *testing.T) {
	found, err := b.Peek(t.Context(), PeekQuery{Status: tocsin.Done, Tables: []int{0}, Types: []uint64{1, 2, 3}, Until: b.clock(), Limit: 300})
	if err != nil || len(found.Entries) != 300 {
		t.Fatalf("%d entries, %v", len(found.Entries), err)
	}
	for _, text := range b.purgeTexts(found.Entries) {
		b.wantPlans(t, map[string]string{"purge": text}, func(p plan) bool { return p.key == "PRIMARY" && p.access == "range" })
	}
}

func TestPurgeBellsLeavesTheYoungAndTheNewest(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	for _, due := range []int64{now - 3*hour, now - 2*hour, now + 9000, now - 2*hour, now, now - 2*hour} { // ids 1 to 6
		b.exec(b.ringing(1, due))
	}
	removed, next, err := b.PurgeBells(t.Context(), 0, 1, 0, now-hour, 3)
	if removed != 2 || next != 2 || err != nil {
		t.Errorf("first: %d, %d, %v", removed, next, err)
	}
	removed, next, err = b.PurgeBells(t.Context(), 0, 1, next, now-hour, 3)
	if removed != 1 || next != 4 || err != nil { // 3 and 5 ring for the future
		t.Errorf("second: %d, %d, %v", removed, next, err)
	}
	removed, next, err = b.PurgeBells(t.Context(), 0, 1, next, now-hour, 3)
	if removed != 0 || next != 0 || err != nil {
		t.Errorf("third: %d, %d, %v", removed, next, err)
	}
	rung, err := b.Bells(t.Context(), 0, nil, 10)
	if got := fmt.Sprint(len(rung[0]), rung[1][0].ID, rung[1][1].ID, rung[1][2].ID, len(rung[1])); err != nil || got != "0 3 5 6 3" {
		t.Errorf("left: %s, %v", got, err)
	}
	for range 4 {
		b.exec(b.ringing(1, now)) // ids 7 to 10
	}
	if removed, next, err := b.PurgeBells(t.Context(), 0, 1, 6, now-hour, 3); removed != 0 || next != 0 || err != nil {
		t.Errorf("all young: %d, %d, %v", removed, next, err)
	}
	for range 3 {
		b.exec(b.ringing(0, now-hour))
	}
	if removed, _, err := b.PurgeBells(t.Context(), 0, 0, 0, now, 10); removed != 2 || err != nil {
		t.Errorf("all old: %d, %v", removed, err)
	}
	if last, err := b.LastBell(t.Context(), 0); last[0] != 3 || err != nil {
		t.Errorf("the highest id fell: %v, %v", last, err)
	}
	b.exec("DELETE FROM " + b.layout.Database(0) + ".doorbell")
	if removed, next, err := b.PurgeBells(t.Context(), 0, 0, 0, now, 10); removed != 0 || next != 0 || err != nil {
		t.Errorf("empty: %d, %d, %v", removed, next, err)
	}
}

// ringing is a statement that rings the bell of a database.
func (b *bench) ringing(database int, due int64) string {
	return "INSERT INTO " + b.layout.Database(database) + ".doorbell (table_no, job_id, biz_type, action_time) VALUES (0, 1, 1, " + string(appendTime(nil, due)) + ")"
}

// A user's transaction that has added a task may stay open while later ones have committed.
func TestAPurgeOfBellsWaitsForNoneThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	b.exec(b.ringing(0, now-2*hour))
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(b.ringing(0, now)); err != nil {
		t.Fatal(err)
	}
	b.exec(b.ringing(0, now))
	if removed, next, err := b.PurgeBells(t.Context(), 0, 0, 0, now-hour, 10); removed != 1 || next != 0 || err != nil {
		t.Errorf("%d, %d, %v", removed, next, err)
	}
}

// While a purge is under way, uncommitted, whoever lives on the same table goes
// on: none of these waits for a lock.
func TestAPurgeUnderWayHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := open(t, tocsin.Layout{Databases: 1, Tables: 1})
	var rows []duequeue.Entry
	for i := range 300 { // old ones between live ones
		b.add(task{id: id(0, 2*i), status: tocsin.Done, action: 1000}, task{id: id(0, 2*i+1), action: 2000})
		rows = append(rows, duequeue.Entry{JobID: id(0, 2*i), Type: 1})
	}
	b.add(task{id: id(0, 900), status: tocsin.Claimed, action: 1000})
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if res, err := tx.Exec(b.purgeTexts(rows)[0]); err != nil {
		t.Fatal(err)
	} else if n, _ := res.RowsAffected(); n != 300 {
		t.Fatalf("deleted %d", n)
	}
	if page, err := b.Peek(t.Context(), PeekQuery{Tables: []int{0}, Types: []uint64{1}, Until: b.clock(), Limit: 1000}); err != nil || len(page.Entries) != 300 {
		t.Errorf("peek: %d, %v", len(page.Entries), err)
	}
	var outcomes []Outcome
	var claim []duequeue.Entry
	for i := range 300 {
		if i%2 == 0 {
			outcomes = append(outcomes, Outcome{JobID: id(0, 2*i+1)})
		} else {
			claim = append(claim, duequeue.Entry{JobID: id(0, 2*i+1), Type: 1, Due: 2000})
		}
	}
	if fates, err := b.Settle(t.Context(), 0, outcomes); err != nil || fates[0] != Stored {
		t.Errorf("settle: %v", err)
	}
	if got, err := b.Claim(t.Context(), Claim{Rows: claim, By: "n", Hold: time.Minute}); err != nil || len(got) != 150 {
		t.Errorf("claim: %d, %v", len(got), err)
	}
	if got, err := b.Recover(t.Context(), 0, []int{0}, 10, nil); err != nil || got.Back != 1 {
		t.Errorf("recover: %+v, %v", got, err)
	}
	b.add(task{id: id(0, 1000), action: 1000}) // also beside the deleted keys
}

// A purge must not disturb who lives on the same table, nor the other way round.
func TestPurgeBesideAddsSettlesAndCancels(t *testing.T) {
	t.Parallel()
	b := open(t, tocsin.Layout{Databases: 1, Tables: 1})
	const rows = 400
	var tasks []task
	for i := range rows {
		tasks = append(tasks, task{id: id(0, i), status: tocsin.Done, action: 1000}, task{id: id(0, rows+i), version: 1})
	}
	b.add(tasks...)
	var w sync.WaitGroup
	w.Go(func() { // settles
		for i := range rows {
			o := Outcome{JobID: id(0, rows+i), Version: 1}
			if fates, err := b.Settle(t.Context(), 0, []Outcome{o}); err != nil || fates[0] != Stored {
				t.Errorf("settle: %v, %v", fates, err)
			}
		}
	})
	w.Go(func() { // adds
		for i := range rows {
			b.add(task{id: id(0, 2*rows+i), action: 1000})
		}
	})
	for range 2 { // purges, side by side
		w.Go(func() {
			for removed := 1; removed > 0; {
				page, err := b.Peek(t.Context(), PeekQuery{Status: tocsin.Done, Tables: []int{0}, Types: []uint64{1}, Until: 1000, Limit: 20})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := b.Purge(t.Context(), 0, tocsin.Done, 2000, page.Entries); err != nil {
					t.Error(err)
					return
				}
				removed = len(page.Entries)
			}
		})
	}
	w.Wait()
	var done, pending int
	if err := b.db.QueryRow("SELECT SUM(status = 2), SUM(status = 0) FROM "+b.layout.Table(0)).Scan(&done, &pending); err != nil || done != rows || pending != rows {
		t.Errorf("%d done, %d pending, %v; want %d each", done, pending, err, rows)
	}
}
