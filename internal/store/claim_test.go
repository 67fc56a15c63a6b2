package store

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestClaimTakesOnlyWhatIsStillToBeHad(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	later := b.clock() + 60_000
	b.add(task{id: id(0, 1)}, task{id: id(0, 2), status: tocsin.Claimed}, task{id: id(0, 3), status: tocsin.Done},
		task{id: id(0, 4), action: later}, task{id: id(0, 5)}, task{id: id(3, 6), kind: 9, version: 4, attempts: 2, payload: "{}"})
	moved := b.entry(id(0, 5))
	moved.Due--
	swapped := b.entry(id(0, 1)) // another row's action_time is no excuse
	before := b.clock()
	rows, err := b.Claim(t.Context(), Claim{
		By: "node-a", Hold: 1500*time.Microsecond + time.Minute,
		Rows: []duequeue.Entry{b.entry(id(3, 6)), moved, swapped, b.entry(id(0, 2)), b.entry(id(0, 3)), b.entry(id(0, 4)), {JobID: id(1, 1)}},
	})
	after := b.clock()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].JobID != id(0, 1) || rows[1].JobID != id(3, 6) {
		t.Fatalf("claimed %+v", rows)
	}
	for _, r := range rows {
		if stored := b.row(r.JobID); stored.Action != r.Action || stored.Status != tocsin.Claimed || stored.ClaimedBy != "node-a" ||
			r.Status != tocsin.Claimed || r.ClaimedBy != "node-a" || !r.ActionTime.Equal(stored.ActionTime) {
			t.Errorf("returned %+v\nstored %+v", r, stored)
		}
		if r.Action < before+60_002 || r.Action > after+60_002 {
			t.Errorf("deadline %d, claimed for 60.0015 s between %d and %d", r.Action, before, after)
		}
	}
	if r := rows[1]; r.Type != 9 || r.Version != 4 || r.Attempts != 2 || r.Payload != "{}" || r.BizID != 7 {
		t.Errorf("row %+v", r)
	}
}

func TestClaimersNeverTakeOneRowTwice(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var tasks []task
	var entries []duequeue.Entry
	for i := range 200 {
		tasks = append(tasks, task{id: id(i%small.Total(), i)})
	}
	b.add(tasks...)
	for _, t := range tasks {
		entries = append(entries, duequeue.Entry{JobID: t.id, Type: 1, Due: t.action})
	}
	var mu sync.Mutex
	takers := make(map[tocsin.JobID]string)
	var claimers sync.WaitGroup
	for _, by := range []string{"a", "b", "c", "d"} {
		claimers.Go(func() {
			for chunk := range slices.Chunk(entries, 40) {
				rows, err := b.Claim(t.Context(), Claim{Rows: chunk, By: by, Hold: time.Minute})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, r := range rows {
					if other, taken := takers[r.JobID]; taken {
						t.Errorf("job_id %s is taken by %s and %s", r.JobID, other, by)
					}
					takers[r.JobID] = by
				}
				mu.Unlock()
			}
		})
	}
	claimers.Wait()
	if len(takers) != len(entries) {
		t.Errorf("%d of %d taken", len(takers), len(entries))
	}
	for id, by := range takers {
		if r := b.row(id); r.ClaimedBy != by {
			t.Errorf("job_id %s is claimed by %s, not %s", id, r.ClaimedBy, by)
		}
	}
}

func TestClaimBehindAFence(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	own := func(group, node string, revisions map[int]int64) {
		var not *Unowned
		if err := b.Own(t.Context(), group, node, revisions); err != nil && (!errors.As(err, &not) || len(not.Failed) > 0) {
			t.Fatal(err)
		}
	}
	own("g", "me", map[int]int64{0: 5, 1: 5, 2: 5})
	own("g", "other", map[int]int64{1: 6})
	own("g", "late", map[int]int64{2: 4})  // an older revision than mine
	own("h", "other", map[int]int64{0: 9}) // another group
	for n, known := range []map[tocsin.JobID]*Row{nil, {}} {
		var entries []duequeue.Entry
		for table := range small.Total() {
			b.add(task{id: id(table, n)})
			entries = append(entries, b.entry(id(table, n)))
			if known != nil {
				known[id(table, n)] = new(b.row(id(table, n)))
			}
		}
		rows, err := b.Claim(t.Context(), Claim{Rows: entries, By: "me", Hold: time.Minute, Fence: &Fence{Group: "g", Node: "me"}, Known: known})
		if got := idsOfRows(rows); err != nil || !slices.Equal(got, []tocsin.JobID{id(0, n), id(2, n)}) {
			t.Errorf("known %t: claimed %v, %v, want those of tables 0 and 2", known != nil, got, err)
		}
		for _, table := range []int{1, 3} {
			if r := b.row(id(table, n)); r.Status != tocsin.Pending {
				t.Errorf("known %t: table %d is %s", known != nil, table, r.Status)
			}
		}
	}
}

// The fence is held until the claim is written: who takes the table over waits
// for that, so no claim of the former owner follows.
func TestClaimHoldsItsFence(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	if err := b.Own(t.Context(), "g", "me", map[int]int64{0: 5}); err != nil {
		t.Fatal(err)
	}
	b.add(task{id: id(0, 1)})
	entry := b.entry(id(0, 1))
	unlock := b.lockedTable(0) // the claim waits for it, its fence held
	done := make(chan error, 1)
	go func() {
		_, err := b.Claim(t.Context(), Claim{Rows: []duequeue.Entry{entry}, By: "me", Hold: time.Minute, Fence: &Fence{"g", "me"}})
		done <- err
	}()
	for b.waiting() == 0 {
		select {
		case err := <-done:
			t.Fatalf("the claim did not wait: %v", err)
		case <-time.After(150 * time.Millisecond): // the server renews what it says of waits if it was not asked for 100 ms
		}
	}
	probe, err := b.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = probe.Exec("SELECT node FROM " + b.layout.Database(0) + ".owner WHERE group_name = 'g' AND table_no = 0 FOR UPDATE NOWAIT")
	if err == nil {
		t.Error("the owner row could be locked while a claim leaned on it")
	}
	_ = probe.Rollback()
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// waiting counts the statements on this test's tables that wait for a table.
func (b *bench) waiting() int {
	b.tb.Helper()
	const query = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%' AND info LIKE ?"
	return scalar[int](b, query, "%"+b.layout.Prefix+"%")
}

func TestClaimLeavesOutTheLockedRowOnly(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	for n, known := range []bool{false, true} { // known rows are claimed by one packet, which leaves no lock behind
		ids := []tocsin.JobID{id(0, 10*n), id(1, 10*n), id(1, 10*n+1), id(1, 10*n+2), id(2, 10*n)}
		asked := b.known(5000, ids...)
		if !known {
			asked.Known = nil
		}
		unlock := b.locked(ids[2])
		rows, err := b.Claim(t.Context(), asked)
		unlock()
		if err == nil || !strings.Contains(err.Error(), ids[2].String()) || strings.Contains(err.Error(), ids[1].String()) {
			t.Errorf("known %t: error %v", known, err)
		}
		if got := sortIDs(idsOfRows(rows)); !slices.Equal(got, slices.Delete(ids, 2, 3)) {
			t.Errorf("known %t: claimed %v", known, got)
		}
	}
}

// TestManyLockedRowsCostAClaimOneWait: an open transaction of a user over many due rows delays the claim of the others by
// one wait for a lock at most, not by one for each row.
func TestManyLockedRowsCostAClaimOneWait(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	const locks, free = 60, 40
	var held []tocsin.JobID
	var entries []duequeue.Entry
	known := make(map[tocsin.JobID]*Row)
	for n := range locks + free {
		id := id(n%4, n+1)
		b.add(task{id: id})
		entries = append(entries, b.entry(id))
		known[id] = new(b.row(id))
		if n < locks {
			held = append(held, id)
		}
	}
	defer b.locked(held...)()
	start := time.Now()
	rows, err := b.Claim(t.Context(), Claim{Rows: entries, By: "me", Hold: time.Hour, Known: known})
	if took := time.Since(start); took > locks*time.Second/3 {
		t.Errorf("the claim took %s", took)
	}
	if len(rows) != free || mysql.ClassOf(err) != mysql.Contended || !strings.Contains(err.Error(), "60 rows") {
		t.Errorf("claimed %d rows, error %v", len(rows), err)
	}
}

// Whoever has claimed must start in time: a claim does not wait for many locks
// while its first rows run out.
func TestClaimGivesUpWhileItsRowsAreFresh(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(0, 1)}, task{id: id(1, 1)}, task{id: id(2, 1)})
	c := Claim{Rows: []duequeue.Entry{b.entry(id(0, 1)), b.entry(id(1, 1)), b.entry(id(2, 1))}, By: "me", Hold: 4 * time.Second}
	defer b.lockedTable(1)()
	rows, err := b.Claim(t.Context(), c)
	if len(rows) != 1 || err == nil || !strings.Contains(err.Error(), "run out") {
		t.Errorf("claimed %d rows, error %v", len(rows), err)
	}
}
