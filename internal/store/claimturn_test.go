package store

import (
	"slices"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// Of a key so many rows are claimed at once, in the order of their times. Another biz type of the same biz_id is another key.
func TestARowsClaimTakesAKeysRowsInTurn(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	past := b.clock() - 10_000
	b.add(task{id: id(0, 1), action: past + 40}, task{id: id(0, 2), action: past + 30}, task{id: id(0, 3), action: past + 20}, task{id: id(0, 4), action: past + 20},
		task{id: id(0, 5), action: past, kind: 2}, task{id: id(0, 9), action: past - 100, status: tocsin.Done})
	c := b.rowsClaim(id(0, 1), id(0, 2), id(0, 3), id(0, 4), id(0, 5))
	c.PerKey = 2
	take := func(claimed, refused []tocsin.JobID) {
		t.Helper()
		c.Number++
		got := b.claimRows(c)
		if b.wantClaimed(got, claimed, refused); len(got.Crowded) > 0 {
			t.Errorf("crowded: %v", got.Crowded)
		}
	}
	take([]tocsin.JobID{id(0, 3), id(0, 4), id(0, 5)}, []tocsin.JobID{id(0, 1), id(0, 2)})
	take(nil, []tocsin.JobID{id(0, 1), id(0, 2)})
	b.settleOne(b.outcome(id(0, 3), tocsin.Completed))
	take([]tocsin.JobID{id(0, 2)}, []tocsin.JobID{id(0, 1)})
	b.settleOne(b.outcome(id(0, 2), tocsin.Completed))
	b.settleOne(b.outcome(id(0, 4), tocsin.Completed))
	take([]tocsin.JobID{id(0, 1)}, nil)
}

// The first of a key's rows is held by another transaction: those behind it wait for their turn.
func TestARowsClaimWaitsForAKeysLockedRow(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	past := b.clock() - 10_000
	b.add(task{id: id(0, 1), action: past}, task{id: id(0, 2), action: past + 1})
	c := b.rowsClaim(id(0, 1), id(0, 2))
	c.PerKey = 1
	defer b.locked(id(0, 1))()
	b.wantClaimed(b.claimRows(c), nil, []tocsin.JobID{id(0, 1), id(0, 2)})
}

// Two claims have passed the condition, as each was made before the other's commit. Whoever reads last learns it.
func TestACrowdedKeyIsReported(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	c := RowsClaim{Session: bySessions, Number: 7, PerKey: 1}
	mine, other := c.Claimer(0), Token("eeeeeeeeeeee", 1)
	b.add(
		task{id: id(0, 1), status: tocsin.Claimed, by: mine}, task{id: id(0, 2), status: tocsin.Claimed, by: other}, // crowded
		task{id: id(0, 3), kind: 2, status: tocsin.Claimed, by: mine}, task{id: id(0, 4), kind: 2}, task{id: id(0, 5), kind: 2, status: tocsin.Done}, // alone
		task{id: id(1, 6), kind: 3, status: tocsin.Claimed, by: mine}, task{id: id(1, 7), kind: 3, status: tocsin.Claimed, by: mine}, // both
		task{id: id(2, 8), status: tocsin.Claimed, by: c.Claimer(1)}, // another database, alone
	)
	for _, job := range []tocsin.JobID{id(0, 1), id(0, 2), id(0, 3), id(1, 6), id(1, 7), id(2, 8), id(3, 9)} {
		c.Rows = append(c.Rows, duequeue.Entry{JobID: job})
	}
	want := []tocsin.JobID{id(0, 1), id(1, 6), id(1, 7)}
	got := b.claimRows(c)
	b.wantClaimed(got, []tocsin.JobID{id(0, 1), id(0, 3), id(1, 6), id(1, 7), id(2, 8)}, nil)
	if !slices.Equal(sortIDs(got.Crowded), want) {
		t.Errorf("crowded %v, want %v", got.Crowded, want)
	}
	b.exec("DROP TABLE " + b.layout.Table(3)) // the packet is repeated table by table, and fails for one
	got, err := b.ClaimRows(t.Context(), c)
	if err != nil || len(got.Failed) != 1 || !slices.Equal(sortIDs(got.Crowded), want) {
		t.Errorf("crowded %v, want %v: %v, %v", got.Crowded, want, err, got.Failed)
	}
}

// Claimers race for the rows of one key while rows with earlier places appear. Without those that are crowded, no more are held than may be.
func TestRacingClaimsKeepToTheTurns(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	const rows = 40
	past := b.clock() - 10_000
	var entries []duequeue.Entry
	for i := range rows {
		entries = append(entries, duequeue.Entry{JobID: id(0, i), Type: 1, Due: past - int64(i)})
	}
	var mu sync.Mutex
	held, done := 0, 0
	var all sync.WaitGroup
	all.Go(func() {
		for _, e := range entries {
			b.add(task{id: e.JobID, action: e.Due})
		}
	})
	for i := range 3 {
		c := RowsClaim{Session: bySessions, Number: uint64(i) << 32, PerKey: 1, Rows: entries}
		all.Go(func() {
			for {
				mu.Lock()
				over := done == rows || t.Failed()
				mu.Unlock()
				if over {
					return
				}
				c.Number++
				got, err := b.ClaimRows(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				for _, row := range got.Rows {
					o := Outcome{JobID: row.JobID, Verb: tocsin.Completed, Version: row.Version, Claimed: true, Token: true, By: c.Claimer(0)}
					if slices.Contains(got.Crowded, row.JobID) {
						o.Verb, o.Back, o.Next = tocsin.Snoozed, true, row.Action
					}
					mu.Lock()
					if held += len(got.Rows) - len(got.Crowded); held > 1 {
						t.Errorf("%d rows are held", held)
					}
					held -= len(got.Rows) - len(got.Crowded)
					if o.Verb == tocsin.Completed {
						done++
					}
					mu.Unlock()
					if fate := b.settleOne(o); fate != Stored {
						t.Errorf("%s: %s", row.JobID, fate)
					}
				}
			}
		})
	}
	all.Wait()
}

// A claim for a program that reads payloads up to a version leaves newer ones as they are, and those whose version it can't tell.
func TestNewerPayloadsAreNotClaimed(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	var readable, refused []tocsin.JobID
	for i, c := range []struct {
		headers string // "": NULL
		reads   bool
	}{
		{"", true}, {`{"tenant":"a"}`, true}, {`{"_payload_version":"2"}`, true}, {`{"_payload_version":"9","tenant":"a"}`, true}, {`{"_payload_version":"10"}`, true},
		{`{"_payload_version":"11"}`, false}, {`{"_payload_version":"100","tenant":"a"}`, false}, {`{"tenant":"a","_payload_version":"3"}`, false}, {`{"_payload_version":"2x3"}`, false},
	} {
		job := id(0, i)
		b.add(task{id: job})
		b.exec("UPDATE "+b.layout.Table(0)+" SET headers = NULLIF(?, '') WHERE job_id = ?", c.headers, uint64(job))
		if c.reads {
			readable = append(readable, job)
		} else {
			refused = append(refused, job)
		}
	}
	c := b.rowsClaim(slices.Concat(readable, refused)...)
	c.Newest = 10
	b.wantClaimed(b.claimRows(c), readable, refused)
	c = b.rowsClaim(refused...)
	c.Newest, c.NoWait = 10, true
	b.wantClaimed(b.claimRows(c), nil, refused)
}
