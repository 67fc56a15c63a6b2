package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Of a key so many rows are claimed at once, in the order of their times. Another biz type of the same biz_id is another key.
func TestAKeysRowsAreClaimedInTurn(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	past := b.clock() - 10_000
	b.add(task{id: id(0, 1), action: past + 40}, task{id: id(0, 2), action: past + 30}, task{id: id(0, 3), action: past + 20},
		task{id: id(0, 4), action: past + 20}, task{id: id(0, 9), action: past - 100, status: tocsin.Done}, task{id: id(0, 5), kind: 2}, task{id: id(0, 6), kind: 2},
		task{id: id(0, 7), action: past + 90_000})
	var all []duequeue.Entry
	for _, n := range []int{1, 2, 3, 4} {
		all = append(all, b.entry(id(0, n)))
	}
	take := func(rows []duequeue.Entry, want ...tocsin.JobID) {
		t.Helper()
		got, err := b.Claim(t.Context(), Claim{Rows: rows, By: "a", Hold: time.Minute, PerKey: 2})
		if err != nil {
			t.Fatal(err)
		}
		if ids := idsOfRows(got); !slices.Equal(ids, want) {
			t.Errorf("claimed %v, want %v", ids, want)
		}
	}
	turn := func(claimed, next []tocsin.JobID) {
		t.Helper()
		key := Key{Table: 0, BizID: 7}
		turns, err := b.Turns(t.Context(), TurnQuery{Type: 1, PerKey: 2, Until: b.clock(), Keys: []Key{{Table: 1, BizID: 7}, key}})
		if err != nil {
			t.Fatal(err)
		}
		got := turns[key]
		slices.Sort(got.Claimed)
		if !slices.Equal(got.Claimed, claimed) || !slices.Equal(idsOfEntries(got.Next), next) || len(turns) > 1 {
			t.Errorf("turns %+v, want %v claimed and %v next", turns, claimed, next)
		}
	}
	turn(nil, []tocsin.JobID{id(0, 3), id(0, 4)})
	take(all, id(0, 3), id(0, 4))
	take(all)
	turn([]tocsin.JobID{id(0, 3), id(0, 4)}, nil)
	b.settleOne(b.outcome(id(0, 4), tocsin.Completed))
	turn([]tocsin.JobID{id(0, 3)}, []tocsin.JobID{id(0, 2)})
	take(all, id(0, 2))
	b.settleOne(b.outcome(id(0, 2), tocsin.Completed))
	b.settleOne(b.outcome(id(0, 3), tocsin.Completed))
	turn(nil, []tocsin.JobID{id(0, 1)})
	take([]duequeue.Entry{b.entry(id(0, 5)), all[0], b.entry(id(0, 6))}, id(0, 1), id(0, 5), id(0, 6))
	b.settleOne(b.outcome(id(0, 1), tocsin.Completed))
	turn(nil, nil)
}

// A row that somebody's transaction holds is waited for by its key, and is no error: it is looked at again.
func TestAKeysLockedRowIsLeftOut(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	past := b.clock() - 10_000
	b.add(task{id: id(0, 1), action: past}, task{id: id(0, 2), action: past + 1})
	defer b.locked(id(0, 1))()
	rows, err := b.Claim(t.Context(), Claim{Rows: []duequeue.Entry{b.entry(id(0, 1)), b.entry(id(0, 2))}, By: "a", Hold: time.Minute, PerKey: 1})
	if err != nil || len(rows) > 0 {
		t.Errorf("claimed %v, %v", idsOfRows(rows), err)
	}
}

// A locked table is waited for twice, with the others and alone, however many of its keys are asked for; those of other tables are read.
func TestTurnsOfALockedTableFailTogether(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(0, 1)})
	q := TurnQuery{Type: 1, PerKey: 1, Until: b.clock(), Keys: []Key{{Table: 0, BizID: 7}}}
	for i := range uint64(maxTables + 5) {
		q.Keys = append(q.Keys, Key{Table: 1, BizID: i})
	}
	defer b.lockedTable(1)()
	turns, err := b.Turns(t.Context(), q)
	if err != nil || !slices.Equal(idsOfEntries(turns[q.Keys[0]].Next), []tocsin.JobID{id(0, 1)}) {
		t.Errorf("%v, of the other table %+v", err, turns[q.Keys[0]])
	}
	for _, k := range q.Keys[1:] {
		if mysql.ClassOf(turns[k].Err) != mysql.Contended {
			t.Fatalf("of the locked table %+v", turns[k])
		}
	}
	if n := b.roundTrips("turn"); n != 3 {
		t.Errorf("it took %d packets", n)
	}
}

// Claimers that race for the rows of one key never hold more than it may have, and take them in order.
func TestRacingClaimersKeepToTheTurns(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 3} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			b := open(t, small)
			var tasks []task
			past := b.clock() - 10_000
			for i := range 60 {
				tasks = append(tasks, task{id: id(0, i), action: past + int64(i*37%60)})
			}
			b.add(tasks...)
			var entries []duequeue.Entry
			for _, x := range tasks {
				entries = append(entries, duequeue.Entry{JobID: x.id, Type: 1, Due: x.action})
			}
			r := turnRace{bench: b, t: t, most: most, entries: entries}
			var claimers sync.WaitGroup
			for _, by := range []string{"a", "b", "c", "d"} {
				claimers.Go(func() { r.claim(by) })
			}
			claimers.Wait()
			if len(r.ended) != len(tasks) || most == 1 && !slices.IsSorted(r.ended) {
				t.Errorf("%d of %d in the order %v", len(r.ended), len(tasks), r.ended)
			}
		})
	}
}

// turnRace is what claimers share.
type turnRace struct {
	*bench
	t       *testing.T
	most    int
	entries []duequeue.Entry

	mu    sync.Mutex
	held  int
	ended []int64 // action times
}

// claim takes what it can get, until all rows have ended.
func (r *turnRace) claim(by string) {
	for {
		r.mu.Lock()
		all := len(r.ended) == len(r.entries)
		r.mu.Unlock()
		if all {
			return
		}
		rows, err := r.Claim(r.t.Context(), Claim{Rows: r.entries, By: by, Hold: time.Minute, PerKey: r.most})
		if err != nil {
			r.t.Error(err)
			return
		}
		r.mu.Lock()
		if r.held += len(rows); r.held > r.most {
			r.t.Errorf("%d rows are held", r.held)
		}
		r.mu.Unlock()
		for _, row := range rows {
			r.mu.Lock()
			r.held--
			r.ended = append(r.ended, r.due(row.JobID))
			r.mu.Unlock()
			r.settleOne(Outcome{JobID: row.JobID, Verb: tocsin.Completed, Version: row.Version, Claimed: true, By: by, Action: row.Action})
		}
	}
}

// due is when a row was due before it was claimed.
func (r *turnRace) due(id tocsin.JobID) int64 {
	return r.entries[slices.IndexFunc(r.entries, func(e duequeue.Entry) bool { return e.JobID == id })].Due
}
