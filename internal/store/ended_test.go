package store

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// recoverAll recovers in all tables, without an error.
func (b *bench) recoverAll(limit int, nodes map[string]string) Recovered {
	b.tb.Helper()
	got, err := b.Recover(b.tb.Context(), 0, b.TablesOf(0), limit, nodes)
	if err != nil {
		b.tb.Fatal(err)
	}
	return got
}

const goneSession, unknownSession = "eeeeeeeeeeee", "ffffffffffff"

// A claim ends with its session, whatever its action_time; a lease by its end; a claim by nobody at once.
func TestRecoverEndsClaimsWithoutASession(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	now := b.clock()
	live := []tocsin.JobID{id(0, 1), id(2, 2), id(1, 3), id(3, 4), id(0, 5), id(0, 6)}
	b.add(
		task{id: live[0], status: tocsin.Claimed, action: now - 3_600_000, by: Token(bySessions[0], 1)}, // its session lives, and its time is long past
		task{id: live[1], status: tocsin.Claimed, action: now - 9000, by: Token(bySessions[1], 1)},
		task{id: live[2], status: tocsin.Claimed, action: now - 1000, by: NewLease(now)}, // its worker may still settle
		task{id: live[3], status: tocsin.Claimed, action: now + 9000, by: NewLease(now)},
		task{id: live[4], status: tocsin.Done, action: now - 9000, by: Token(goneSession, 1)},
		task{id: live[5], action: now - 9000, by: Token(goneSession, 1)},

		task{id: id(0, 11), status: tocsin.Claimed, action: now - 9000, crashes: 4, attempts: 2, version: 1, by: Token(goneSession, 1)},
		task{id: id(0, 12), status: tocsin.Claimed, action: now + 19_000, by: Token(goneSession, 2)},
		task{id: id(2, 13), status: tocsin.Claimed, action: now - 9000, by: Token(unknownSession, 1)},
		task{id: id(2, 14), status: tocsin.Claimed, action: now - 9000, by: Token(bySessions[0], 1)}, // a session of another database
		task{id: id(3, 15), status: tocsin.Claimed, action: now - 9000},
		task{id: id(1, 16), status: tocsin.Claimed, action: now - 9000, crashes: 5, attempts: 2, by: Token(goneSession, 3)},
		task{id: id(1, 17), status: tocsin.Claimed, action: now - 9000, crashes: 5, attempts: 2, by: NewLease(now - 99_000)},
	)
	before := make(map[tocsin.JobID]Row)
	for _, x := range append([]tocsin.JobID{id(0, 11), id(0, 12), id(2, 13), id(2, 14), id(3, 15), id(1, 16), id(1, 17)}, live...) {
		before[x] = b.row(x)
	}
	if got := b.recoverAll(100, map[string]string{goneSession: "node-a"}); got != (Recovered{Back: 5, Buried: 1, Leases: 1}) {
		t.Errorf("%+v", got)
	}
	for _, x := range live {
		if after := b.row(x); after != before[x] {
			t.Errorf("touched %+v to %+v", before[x], after)
		}
	}
	for x, why := range map[tocsin.JobID]string{
		id(0, 11): "its process ended: node-a", id(0, 12): "its process ended: node-a", id(2, 13): "its process ended: " + Token(unknownSession, 1),
		id(2, 14): "its process ended: " + Token(bySessions[0], 1), id(3, 15): "its process ended: nobody knows which",
	} {
		want, after := before[x], b.row(x)
		want.Status, want.Crashes, want.ClaimedBy, want.LastError, want.Modified = tocsin.Pending, want.Crashes+1, "", why, after.Modified
		if after != want {
			t.Errorf("got %+v\nwant %+v", after, want)
		}
	}
	want, after := before[id(1, 16)], b.row(id(1, 16))
	want.Status, want.Crashes, want.ClaimedBy, want.LastError, want.Modified = tocsin.Dead, 6, "", "crashed 6 times, last on node-a", after.Modified
	want.Action, want.ActionTime = after.Action, after.ActionTime
	if after != want || after.Action < now {
		t.Errorf("got %+v\nwant %+v", after, want)
	}
	if r := b.row(id(1, 17)); r.Status != tocsin.Pending || r.Attempts != 3 || r.Crashes != 5 || r.Action < now || r.ClaimedBy != "" {
		t.Errorf("a lease: %+v", r)
	}
	b.wantRung(id(0, 11), id(1, 17), id(2, 13), id(2, 14), id(3, 15))
	if got := b.recoverAll(100, nil); got != (Recovered{}) {
		t.Errorf("again: %+v", got)
	}
}

// wantRung checks for which rows the doorbells rang.
func (b *bench) wantRung(ids ...tocsin.JobID) {
	b.tb.Helper()
	rung, err := b.Bells(b.tb.Context(), 0, nil, 100)
	var got []tocsin.JobID
	for _, bells := range rung {
		for _, bell := range bells {
			got = append(got, bell.Entry.JobID)
		}
	}
	if err != nil || !slices.Equal(sortIDs(got), sortIDs(ids)) {
		b.tb.Errorf("rang for %v, want %v: %v", sortIDs(got), sortIDs(ids), err)
	}
}

// Where others own tables, sessions mean nothing; and a store learns by itself how its databases are used, each by its own row.
func TestEachDatabaseRecoversByItsOwnership(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.inSecond("UPDATE {db}.layout SET ownership = 'rows'")
	now := b.clock()
	for _, table := range []int{0, 2} {
		b.add(task{id: id(table, 1), status: tocsin.Claimed, action: now - 9000, by: Token(goneSession, 1)},
			task{id: id(table, 2), status: tocsin.Claimed, action: now + 60_000, by: Token(goneSession, 1)},
			task{id: id(table, 3), status: tocsin.Claimed, action: now - 9000, crashes: 4, by: Token(goneSession, 1)})
	}
	if got := b.recoverAll(100, nil); got != (Recovered{Back: 4, Buried: 1}) {
		t.Errorf("%+v", got)
	}
	if first, second := b.row(id(0, 2)), b.row(id(2, 2)); first.Status != tocsin.Claimed || second.Status != tocsin.Pending {
		t.Errorf("%+v, %+v", first, second)
	}
	if r := b.row(id(0, 3)); r.Status != tocsin.Dead {
		t.Errorf("%+v", r)
	}
}

func TestOnlyLeasesRunOutWhereClaimsEndWithSessions(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	now := b.clock()
	b.add(task{id: id(0, 1), status: tocsin.Claimed, action: now - 60_000, by: Token(bySessions[0], 1)}, task{id: id(2, 1), status: tocsin.Claimed, action: now - 60_000})
	if in, some, err := b.NextRunOut(t.Context(), 0, b.TablesOf(0)); some || err != nil {
		t.Errorf("%s, %t, %v", in, some, err)
	}
	b.add(task{id: id(0, 2), status: tocsin.Claimed, action: now + 600_000, by: NewLease(now)})
	if in, some, err := b.NextRunOut(t.Context(), 0, b.TablesOf(0)); !some || err != nil || in < 9*time.Minute {
		t.Errorf("%s, %t, %v", in, some, err)
	}
}

// Rows that are claimed by a text of another kind are named, and hide no other, however many they are. They come back when what would be their
// deadline has passed: an owner has claimed them, before the ownership was changed.
func TestAClaimOfAnUnknownKindIsNamed(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	past := b.clock() - 60_000
	for i := range 5 {
		b.add(task{id: id(0, i), status: tocsin.Claimed, action: b.clock() + 600_000, by: "node-a"})
	}
	for i := range 3 {
		b.add(task{id: id(0, 10+i), status: tocsin.Claimed, action: b.clock() + 700_000, by: Token(goneSession, uint64(i))})
	}
	got, err := b.Recover(t.Context(), 0, b.TablesOf(0), 3, nil)
	if got != (Recovered{Back: 3}) || err == nil || !strings.Contains(err.Error(), `"node-a"`) || !strings.Contains(err.Error(), b.layout.Table(0)+" on db1") {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range 5 {
		if r := b.row(id(0, i)); r.ClaimedBy != "node-a" || r.Status != tocsin.Claimed {
			t.Errorf("%+v", r)
		}
	}
	b.add(task{id: id(0, 20), status: tocsin.Claimed, action: past, by: "node-b"})
	if got, _ := b.Recover(t.Context(), 0, b.TablesOf(0), 3, nil); got.Back != 1 || b.row(id(0, 20)).Status != tocsin.Pending {
		t.Errorf("%+v, %+v", got, b.row(id(0, 20)))
	}
}

func TestRecoverBySessionsKeepsItsLimit(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	for i := range 7 {
		b.add(task{id: id(i%4, i), status: tocsin.Claimed, by: Token(goneSession, uint64(i/2))})
	}
	for _, want := range []int{3, 3, 1, 0} {
		if got := b.recoverAll(3, nil); got.All() != want || got.Held {
			t.Errorf("%+v, want %d", got, want)
		}
	}
}

// Locked rows are passed by, and said to be; all others are recovered.
func TestRecoverBySessionsGoesAroundLockedRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lock func(*bench) (unlock func())
		back int
	}{
		"a row":   {func(b *bench) func() { return b.locked(id(0, 1)) }, 3},
		"a table": {func(b *bench) func() { return b.lockedTable(0) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openClaims(t)
			for _, x := range []tocsin.JobID{id(0, 1), id(0, 2), id(1, 1), id(2, 1)} {
				b.add(task{id: x, status: tocsin.Claimed, by: Token(goneSession, 1)})
			}
			unlock := c.lock(b)
			got, err := b.Recover(t.Context(), 0, b.TablesOf(0), 100, nil)
			unlock()
			if got.Back != c.back || name == "a row" && !got.Held || !errors.Is(err, mysql.ErrLocked) && mysql.ClassOf(err) != mysql.Contended {
				t.Errorf("%+v, %v", got, err)
			}
			if got := b.recoverAll(100, nil); got.Back != 4-c.back || got.Held {
				t.Errorf("then %+v", got)
			}
		})
	}
}

// Between the finding and the write, the row may be settled, recovered or claimed by another; and its session was never ended.
func TestRecoverBySessionsChecksAgainWhenItWrites(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	gone := Token(goneSession, 1)
	b.add(
		task{id: id(0, 1), by: gone}, task{id: id(0, 2), status: tocsin.Done, by: gone}, task{id: id(0, 3), status: tocsin.Claimed, by: Token(goneSession, 2)},
		task{id: id(1, 1), status: tocsin.Claimed, by: Token(bySessions[0], 1)},
	)
	for table, token := range []string{gone, Token(bySessions[0], 1)} {
		for _, st := range []statement{endedBack, endedBury} {
			text := b.union(st, slots{"ids": []tocsin.JobID{id(table, 1), id(table, 2), id(table, 3)}}, table)
			res, err := b.db.Exec(text, "node-a", token, token[:SessionSize])
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := res.RowsAffected(); n != 0 {
				t.Errorf("%d rows by %s", n, text)
			}
		}
	}
}

// A claim looked for its session before that was ended, and commits after it.
func TestAClaimThatCommitsAfterItsSessionsEndIsFound(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	b.add(task{id: id(0, 1)})
	c := b.rowsClaim(id(0, 1))
	p := claimPacket{store: b.Store, server: b.servers[0], RowsClaim: c, groups: entriesByTable(c.Rows)}
	text, _, _ := p.text([]int{0})
	until, _, _ := strings.Cut(string(text), beforeCommit)
	conn, err := b.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	if ended, err := b.EndSession(t.Context(), 0, bySessions[0], 0); !ended || err != nil {
		t.Fatal(err)
	}
	if got := b.recoverAll(10, nil); got.All() != 0 {
		t.Errorf("before the commit: %+v", got)
	}
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if got := b.recoverAll(10, nil); got != (Recovered{Back: 1}) {
		t.Errorf("after the commit: %+v", got)
	}
}

// A process reads which rows its sessions have claimed, to compare them with what it holds.
func TestOwnClaims(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	one, two, other := Token(bySessions[0], 1), Token(bySessions[0], 2), Token(bySessions[1], 1)
	b.add(
		task{id: id(0, 1), status: tocsin.Claimed, by: one}, task{id: id(1, 1), status: tocsin.Claimed, by: two}, task{id: id(2, 1), status: tocsin.Claimed, by: other},
		task{id: id(0, 2), status: tocsin.Done, by: one}, task{id: id(0, 3), by: one}, task{id: id(0, 4), status: tocsin.Claimed, by: Token(goneSession, 1)},
		task{id: id(0, 5), status: tocsin.Claimed}, task{id: id(2, 6), status: tocsin.Claimed, by: one}, task{id: id(0, 7), status: tocsin.Claimed, by: NewLease(1)},
		task{id: id(3, 8), status: tocsin.Claimed, by: other},
	)
	for _, c := range []struct {
		sessions map[int]string
		tables   []int
		want     map[tocsin.JobID]string
	}{
		{bySessions, []int{0, 1, 2}, map[tocsin.JobID]string{id(0, 1): one, id(1, 1): two, id(2, 1): other}},
		{map[int]string{1: bySessions[1]}, b.TablesOf(0), map[tocsin.JobID]string{id(2, 1): other, id(3, 8): other}},
		{nil, b.TablesOf(0), nil},
	} {
		if got, err := b.OwnClaims(t.Context(), 0, c.tables, c.sessions); err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%v: %v, %v", c.tables, got, err)
		}
	}
	b.exec("DROP TABLE " + b.layout.Table(1))
	got, err := b.OwnClaims(t.Context(), 0, b.TablesOf(0), bySessions)
	if len(got) != 3 || err == nil || !strings.Contains(err.Error(), b.layout.Table(1)+" on db1") {
		t.Errorf("%v, %v", got, err)
	}
}
