package model

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// boundOutbox is the bound of one search, in states.
const boundOutbox = 12_000_000

const (
	bizA = 'A'
	bizB = 'B'
)

// outboxWorlds are the searches of the outbox, the quick ones first.
func outboxWorlds() []outboxWorld {
	another := wish{biz: bizB, op: add}
	added, cancelled, moved := wish{biz: bizA, op: add}, wish{biz: bizA, op: cancel}, wish{biz: bizA, op: reschedule}
	unknown := wish{biz: bizA, op: add, unknown: true}
	all := []outboxWorld{
		{name: "add, cancel", dedup: true, wishes: []wish{added, cancelled}},
		{name: "unknown add, cancel", dedup: true, wishes: []wish{unknown, cancelled}},
		{name: "unknown add that is dropped, cancel", dedup: true, drops: true, lacks: true, wishes: []wish{unknown, cancelled}},
		{name: "add, add", wishes: []wish{added, added}},
		{name: "add, add with one dedup_key", dedup: true, wishes: []wish{added, added}},
		{name: "add, cancel, another's add", dedup: true, calm: true, wishes: []wish{added, cancelled, another}},
		{name: "unknown add, cancel, another's add", dedup: true, calm: true, wishes: []wish{unknown, cancelled, another}},
		{name: "add, another's add, ids begin anew", restarts: true, wishes: []wish{added, another}},
		{name: "notes, a statement in its middle", before: 1, dedup: true, calm: true, notes: true, halves: true, wishes: []wish{added, cancelled}},
		{name: "notes, ids begin anew", before: 1, dedup: true, calm: true, notes: true, falls: true, wishes: []wish{added, cancelled}},
		{name: "late notes, ids begin anew", before: 1, dedup: true, calm: true, notes: true, lates: true, falls: true, wishes: []wish{added, cancelled}},
		{name: "late notes, ids begin anew in a turn", calm: true, notes: true, lates: true, restarts: true, wishes: []wish{added, another}},
		{name: "notes, a statement in its middle, a relay sees that ids begin anew", before: 1, dedup: true, calm: true, notes: true, falls: true, seen: true, halves: true,
			wishes: []wish{added, cancelled}},
		{name: "add, reschedule, cancel", dedup: true, wishes: []wish{added, moved, cancelled}},
		{name: "unknown add, cancel, add", dedup: true, wishes: []wish{unknown, cancelled, added}},
		{name: "add, cancel, add", dedup: true, wishes: []wish{added, cancelled, added}},
	}
	if os.Getenv("TOCSIN_MODEL") == "wide" { // five minutes and 5 GB more
		three := []wish{another, added, cancelled}
		all = append(all,
			outboxWorld{name: "notes, three rows, a statement in its middle", dedup: true, calm: true, notes: true, halves: true, wishes: three},
			outboxWorld{name: "notes, three rows, ids begin anew", dedup: true, calm: true, notes: true, falls: true, wishes: three},
			outboxWorld{name: "notes, three rows, a statement in its middle, a relay sees that ids begin anew", dedup: true, calm: true, notes: true,
				falls: true, seen: true, halves: true, wishes: three},
			outboxWorld{name: "add, cancel, add, another's add", dedup: true, calm: true, wishes: []wish{added, cancelled, added, another}},
			outboxWorld{name: "add, cancel, another's add, as time passes", dedup: true, wishes: []wish{added, cancelled, another}})
	}
	return all
}

func TestAnOutboxIsMovedInEveryHistory(t *testing.T) {
	t.Parallel()
	var plays []play
	for _, w := range inTime(outboxWorlds(), 5) {
		plays = append(plays, playOf(&w))
	}
	mustHold(t, plays, boundOutbox)
}

// mustBreak shows a history that is known to break a promise.
func mustBreak(t *testing.T, w outboxWorld, promise string) {
	t.Helper()
	got, err := walk(&w, boundOutbox)
	if err != nil || got.Finding == nil || !breaks(got.Finding.Promise, promise) {
		t.Fatalf("%v: found %v, want %s: if a history that is known to break it does no more, say so in the docs", err, got.Finding, promise)
	}
	t.Logf("%d states\n%s", got.States, got.Finding)
}

// TestWhatTruncateCanDo shows why docs/sql.md forbids it while programs write: until a relay has read all ids again, a row
// under a higher id passes one under an id that the relay knows. Nothing is lost for good.
func TestWhatTruncateCanDo(t *testing.T) {
	t.Parallel()
	mustBreak(t, outboxWorld{
		name: "ids begin anew while rows are written", dedup: true, calm: true, restarts: true,
		wishes: []wish{{biz: bizB, op: add}, {biz: bizA, op: add}, {biz: bizA, op: cancel}},
	}, disorder)
}

// TestWhatAStatementInItsMiddleCanDo shows what docs/architecture.md says of notes. MySQL does not tell which statements have
// taken an id and not inserted their rows yet. Ids below a note are given again before a relay sees the lower next id, and a
// turn begins in the middle of such a statement. Nothing is lost for good.
func TestWhatAStatementInItsMiddleCanDo(t *testing.T) {
	t.Parallel()
	mustBreak(t, outboxWorld{
		name: "ids begin anew, which no relay sees, and a statement is in its middle", before: 1, dedup: true, calm: true, notes: true, falls: true,
		halves: true, wishes: []wish{{biz: bizA, op: add}, {biz: bizA, op: cancel}},
	}, disorder)
}

// TestWhatADropCanDo shows why docs/operations.md says to drop a row before its cause is mended, or a minute after: a
// second relay may have read the row before the first one set it aside.
func TestWhatADropCanDo(t *testing.T) {
	t.Parallel()
	mustBreak(t, outboxWorld{
		name: "a row is dropped whose biz type was applied", dedup: true, drops: true,
		wishes: []wish{{biz: bizA, op: add, unknown: true}},
	}, unwanted)
}

// TestEveryStepOfTheOutboxIsTaken: a step that occurs in no history would not be checked.
func TestEveryStepOfTheOutboxIsTaken(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	for _, w := range outboxWorlds() {
		maps.Copy(taken, stepsOf(&w, 20_000))
	}
	all := slices.Collect(maps.Keys(taken))
	for _, what := range []string{
		"a transaction inserts A's add", "a transaction commits", "a transaction rolls back", "an operator applies the biz type",
		"an operator retries A's add", "an operator drops A's add", "a node delivers A's add", "the delivery ends well",
		"the delivery fails, and is tried again", "purge deletes the task of A's add", "time passes", "the ledger notes that A's add is gone",
		"the ledger forgets A's add", "polls", "polls, and takes the first row", "moves A's add", "moves A's cancel",
		"moves A's add, but does not hear of it", "fails to move", "meets a delivery with A's cancel", "finds A's add in the ledger",
		"has read A's add too long ago", "can't move A's add, whose biz type is unknown", "sets aside what was refused",
		"reads again what is aside", "reads all ids, finds one that it knows", "closes gaps",
		"a transaction takes an id for A's add", "can't read the notes", "reads a note", "reads the other note", "finds no note",
		"finds that the next id is not below the note", "finds that the next id is below the note; voids the notes",
		"finds that the next id is below the note; voids the note of database 1", "finds that the next id is below the note; can't void",
		"asks what is below the note", "notes in database 1 that rows below 2", "notes in database 2 that rows below 3",
		"sends database 2 the note", "a note arrives late in database 2", "the server restarts, with a lower next id",
		"the empty outbox begins its ids anew", "deletes what it has moved", "crashes",
	} {
		if !slices.ContainsFunc(all, func(step string) bool { return strings.HasPrefix(step, what) }) {
			t.Errorf("nobody ever %s", what)
		}
	}
}

// faulty are relays with a mistake, each in a play in which it breaks a promise.
var faulty = []struct {
	name string
	off  []OutboxGuard
	play string
	only string // the promise
}{
	{"without the ledger, add, cancel and add end cancelled", []OutboxGuard{Ledger}, "add, cancel, add", lost},
	{"without the ledger, a task that was purged comes to life", []OutboxGuard{Ledger}, "add, add with one dedup_key", twice + ": A's add was done and purged"},
	{"without the ledger, a task is stored twice", []OutboxGuard{Ledger}, "add, add", twice},
	{"a ledger that forgets what is in the outbox", []OutboxGuard{LedgerLooks}, "add, add", twice},
	{"a ledger that forgets at once", []OutboxGuard{LedgerStays}, "add, add", twice},
	{"a ledger of ids alone", []OutboxGuard{LedgerKey}, "add, another's add, ids begin anew", lost},
	{"rows that were read long ago are moved", []OutboxGuard{Fresh}, "add, add", twice},
	{"only the row that was read long ago is read again", []OutboxGuard{FreshAll}, "add, cancel", disorder},
	{"polls read what is not committed", []OutboxGuard{CommittedOnly}, "add, cancel", ghost},
	{"a poll of several statements", []OutboxGuard{Snapshot}, "add, cancel", disorder},
	{"gaps are taken for gone", []OutboxGuard{Gaps, Whole}, "add, cancel, another's add", stranded},
	{"polls leave gaps out", []OutboxGuard{Gaps}, "add, cancel, another's add", disorder},
	{"gaps with a row of an open transaction are closed", []OutboxGuard{GapsLocked}, "add, cancel, another's add", disorder},
	{"young gaps are closed", []OutboxGuard{GapsOld}, "add, cancel, another's add", disorder},
	{"known ids are never read again", []OutboxGuard{Whole}, "add, another's add, ids begin anew", stranded},
	{"a business that writes the outbox first", []OutboxGuard{RowFirst}, "add, cancel", disorder},
	{"a delete by a range", []OutboxGuard{DeleteList}, "add, cancel, another's add", lost},
	{"a delete by ids alone", []OutboxGuard{DeleteKey}, "add, another's add, ids begin anew", lost},
	{"nothing waits behind a row that was set aside", []OutboxGuard{Aside}, "unknown add, cancel", disorder},
	{"a note that ends behind a gap", []OutboxGuard{NoteClosed}, "notes, a statement in its middle", disorder},
	{"a turn does not ask for the next id", []OutboxGuard{NoteNext}, "notes, ids begin anew", disorder},
	{"a turn does not ask for open transactions", []OutboxGuard{NoteOpen}, "notes, ids begin anew", disorder},
	{"a turn does not ask for rows", []OutboxGuard{NoteRows}, "notes, ids begin anew", disorder},
	{"a turn begins at the highest note", []OutboxGuard{NoteLowest}, "notes, a statement in its middle, a relay sees that ids begin anew", disorder},
	{"notes stay although ids are given again", []OutboxGuard{NoteVoid}, "notes, a statement in its middle, a relay sees that ids begin anew", disorder},
	{"a cancel that meets a delivery is done", []OutboxGuard{AfterDelivery}, "add, cancel", unwanted},
}

func TestEveryFaultyRelayIsFound(t *testing.T) {
	t.Parallel()
	tried := map[OutboxGuard]bool{}
	for _, f := range faulty {
		for _, g := range f.off {
			tried[g] = true
		}
		if f.only == stranded && (underRace || testing.Short()) {
			continue // that nothing leads out is known only after the whole search
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			worlds := outboxWorlds()
			w := worlds[slices.IndexFunc(worlds, func(w outboxWorld) bool { return w.name == f.play })]
			w.only = f.only
			for _, g := range f.off {
				w.off[g] = true
			}
			mustBreak(t, w, f.only)
		})
	}
	for g, name := range outboxGuardNames {
		if !tried[OutboxGuard(g)] {
			t.Errorf("no relay is tried without: %s", name)
		}
	}
}
