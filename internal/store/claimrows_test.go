package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// bySessions are the sessions of a process by database.
var bySessions = map[int]string{0: "aaaaaaaaaaaa", 1: "bbbbbbbbbbbb"}

// openClaims is open for a cluster whose claims end with their sessions, with those of one process.
func openClaims(tb testing.TB, change ...func(*tocsin.Config)) *bench {
	tb.Helper()
	b := open(tb, small, change...)
	for database := range bySessions {
		b.exec("UPDATE " + b.layout.Database(database) + ".layout SET ownership = 'rows'")
	}
	for database, id := range bySessions {
		b.session(database, id)
	}
	return b
}

// rowsClaim is a claim of rows as they are now.
func (b *bench) rowsClaim(ids ...tocsin.JobID) RowsClaim {
	c := RowsClaim{Session: bySessions, Number: 1}
	for _, id := range ids {
		c.Rows = append(c.Rows, b.entry(id))
	}
	return c
}

// claimRows claims rows, of which no table may fail.
func (b *bench) claimRows(c RowsClaim) ClaimedRows {
	b.tb.Helper()
	got, err := b.ClaimRows(b.tb.Context(), c)
	if err != nil || got.Failed != nil {
		b.tb.Fatalf("%v, %v", err, got.Failed)
	}
	return got
}

// wantClaimed checks which rows a claim has got, and which it has refused.
func (b *bench) wantClaimed(got ClaimedRows, claimed, refused []tocsin.JobID) {
	b.tb.Helper()
	if !slices.Equal(sortIDs(idsOfRows(got.Rows)), claimed) || !slices.Equal(sortIDs(idsOfRows(got.Refused)), refused) {
		b.tb.Errorf("claimed %v and refused %v, want %v and %v", idsOfRows(got.Rows), idsOfRows(got.Refused), claimed, refused)
	}
}

// What a claim says of a row.
const (
	claimsIt = iota
	refusesIt
	leavesOut // it is neither pending nor claimed
)

func special(c *RowsClaim)     { c.Special = true }
func ahead(c *RowsClaim)       { c.Ahead = time.Minute }
func leased(c *RowsClaim)      { c.Lease, c.Hold = NewLease(1_700_000_000_000), time.Hour }
func withoutOne(c *RowsClaim)  { c.Session = map[int]string{1: bySessions[1]} }
func withAnother(c *RowsClaim) { c.Session = map[int]string{0: bySessions[1], 1: bySessions[1]} }

// Each condition of a claim: how the row is changed after it was read, and what the claim asks for.
var rowCases = map[string]struct {
	due    int64 // ms from now
	change string
	ask    func(*RowsClaim)
	want   int
}{
	"due":                              {due: -10, want: claimsIt},
	"under no session":                 {due: -10, ask: withoutOne, want: refusesIt},
	"under another database's session": {due: -10, ask: withAnother, want: refusesIt},
	"due later":                        {due: 30_000, want: refusesIt},
	"due within a minute":              {due: 30_000, ask: ahead, want: claimsIt},
	"not due within a minute":          {due: 90_000, ask: ahead, want: refusesIt},
	"crashed before":                   {due: -10, change: "crashes = 1", want: refusesIt},
	"crashed before, special":          {due: -10, change: "crashes = 1", ask: special, want: claimsIt},
	"with a key":                       {due: -10, change: "dedup_key = CONCAT('k', job_id)", want: claimsIt},
	"with a key of one low byte":       {due: -10, change: "dedup_key = CONCAT(0x01, job_id)", want: claimsIt},
	"a run":                            {due: -10, change: "dedup_key = CONCAT(0x00, job_id)", want: refusesIt},
	"a run, special":                   {due: -10, change: "dedup_key = CONCAT(0x00, job_id)", ask: special, want: claimsIt},
	"cancelled":                        {due: -10, change: "status = 3", want: leavesOut},
	"done":                             {due: -10, change: "status = 2", want: leavesOut},
	"claimed by another":               {due: -10, change: "status = 1, claimed_by = 'aaaaaaaaaaaazzzzzzzzzzzz'", want: leavesOut},
	"done, with the mark of its claim": {due: -10, change: "status = 2, claimed_by = '{token}'", want: leavesOut},
	"put off":                          {due: -10, change: "action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR", want: refusesIt},
	"changed and due":                  {due: -10, change: "version = 3, attempts = 2, action_time = action_time - INTERVAL 1 SECOND", want: claimsIt},
	"leased":                           {due: -10, ask: leased, want: claimsIt},
	"leased under no session":          {due: -10, ask: func(c *RowsClaim) { leased(c); withoutOne(c) }, want: refusesIt},
	"leased, crashed before":           {due: -10, change: "crashes = 1", ask: leased, want: refusesIt},
	"leased, changed and due":          {due: -10, change: "action_time = action_time - INTERVAL 1 SECOND", ask: leased, want: refusesIt},
	"leased, due later":                {due: 30_000, ask: leased, want: refusesIt},
}

// A claim is made under each condition, however it meets locks and keys.
func TestAClaimsConditions(t *testing.T) {
	t.Parallel()
	b, seq := openClaims(t), 0
	for name, c := range rowCases {
		for how, ask := range map[string]func(*RowsClaim){
			"": func(*RowsClaim) {}, ", without waiting": func(c *RowsClaim) { c.NoWait = true }, ", in turn": func(c *RowsClaim) { c.PerKey = 1000 },
		} {
			seq++
			job, beside := id(0, seq), id(2, seq)
			b.add(task{id: job, action: b.clock() + c.due, payload: "{}"}, task{id: beside, action: b.clock() - 10})
			asked := b.rowsClaim(job, beside)
			asked.Number = uint64(seq)
			ask(&asked)
			if c.ask != nil {
				c.ask(&asked)
			}
			if c.change != "" {
				b.exec("UPDATE " + b.layout.Table(0) + " SET " + replaceToken(c.change, asked) + " WHERE job_id = " + job.String())
			}
			b.checkClaim(name+how, asked, job, c.want)
			if r := b.row(beside); r.ClaimedBy != asked.Claimer(1) {
				t.Errorf("%s%s: the row beside is %+v", name, how, r)
			}
		}
	}
}

// checkClaim claims, and compares all columns of one row with what is wanted of it.
func (b *bench) checkClaim(name string, asked RowsClaim, job tocsin.JobID, want int) {
	b.tb.Helper()
	before, at := b.row(job), b.clock()
	got := b.claimRows(asked)
	after := b.row(job)
	is := leavesOut
	for i, rows := range [][]Row{got.Rows, got.Refused} {
		for _, row := range rows {
			if row.JobID != job {
				continue
			}
			if is = i; row != after {
				b.tb.Errorf("%s: returned %+v\nstored %+v", name, row, after)
			}
		}
	}
	if is != want || got.Now < at || got.Now > b.clock() || got.Crowded != nil {
		b.tb.Errorf("%s: %d, want %d, at %d of %d, crowded %v", name, is, want, got.Now, at, got.Crowded)
	}
	if want == claimsIt {
		before.Status, before.ClaimedBy, before.Modified = tocsin.Claimed, asked.Claimer(0), after.Modified
		if asked.Lease != "" {
			if end := after.Action - asked.Hold.Milliseconds(); end < at || end > got.Now {
				b.tb.Errorf("%s: the lease ends at %d", name, after.Action)
			}
			before.Action, before.ActionTime = after.Action, after.ActionTime
		}
	}
	if after != before {
		b.tb.Errorf("%s:\n got %+v\nwant %+v", name, after, before)
	}
}

// Number and session tell claims apart, and a token begins with its session.
func TestTokensOfClaims(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, session := range bySessions {
		for _, n := range []uint64{0, 1, 31, 32, 1 << 40, 1<<60 - 1} {
			token := Token(session, n)
			if seen[token] || !IsToken(token) || token[:SessionSize] != session {
				t.Errorf("%d of %s: %s", n, session, token)
			}
			seen[token] = true
		}
	}
	if IsToken(NewLease(1)) || IsToken("") || IsToken("node-a") {
		t.Error("that is no token")
	}
}

// A connection keeps what it knew of a session. A later claim looks again, in each packet.
func TestNoBlindClaim(t *testing.T) {
	t.Parallel()
	b := openClaims(t, func(cfg *tocsin.Config) { cfg.Servers[0].MaxConns = 1 })
	b.add(task{id: id(0, 1)}, task{id: id(0, 2)}, task{id: id(0, 3)}, task{id: id(2, 1)})
	b.wantClaimed(b.claimRows(b.rowsClaim(id(0, 1))), []tocsin.JobID{id(0, 1)}, nil)
	if err := b.CloseSession(t.Context(), 0, bySessions[0]); err != nil {
		t.Fatal(err)
	}
	b.wantClaimed(b.claimRows(b.rowsClaim(id(0, 2), id(2, 1))), []tocsin.JobID{id(2, 1)}, []tocsin.JobID{id(0, 2)})
	b.exec("DROP TABLE " + b.layout.Database(0) + ".session")
	got, err := b.ClaimRows(t.Context(), b.rowsClaim(id(0, 3)))
	if err != nil || len(got.Rows) > 0 || mysql.ClassOf(got.Failed[0]) != mysql.Missing {
		t.Errorf("without the table: %+v, %v", got, err)
	}
}

// Claims of more rows than one packet takes, in any order and some twice.
func TestAClaimOfManyRows(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	var tasks []task
	c := RowsClaim{Session: bySessions, Number: 1}
	for i := range maxIDs + 200 {
		tasks = append(tasks, task{id: id(i%4, i)})
		c.Rows = append(c.Rows, duequeue.Entry{JobID: id((maxIDs+199-i)%4, maxIDs+199-i)})
	}
	b.add(tasks...)
	c.Rows = append(c.Rows, c.Rows[7], duequeue.Entry{JobID: id(0, 5000)})
	got := b.claimRows(c)
	if ids := sortIDs(idsOfRows(got.Rows)); len(got.Rows) != len(tasks) || len(ids) != len(tasks) || len(got.Refused) > 0 || b.roundTrips("claim") != 2 {
		t.Errorf("claimed %d, refused %d, by %d packets", len(got.Rows), len(got.Refused), b.roundTrips("claim"))
	}
}

// Processes that claim the same rows get each row once.
func TestProcessesShareRows(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	var tasks []task
	for i := range 200 {
		tasks = append(tasks, task{id: id(i%4, i)})
	}
	b.add(tasks...)
	var mu sync.Mutex
	by := make(map[tocsin.JobID]string)
	var all sync.WaitGroup
	for i := range 4 {
		sessions := map[int]string{0: fmt.Sprintf("cccccccccc%02d", i), 1: fmt.Sprintf("dddddddddd%02d", i)}
		for database, id := range sessions {
			b.session(database, id)
		}
		c := RowsClaim{Session: sessions, Number: 1, NoWait: i%2 == 0}
		for _, x := range tasks {
			c.Rows = append(c.Rows, duequeue.Entry{JobID: x.id, Type: 1, Due: x.action})
		}
		all.Go(func() {
			for left := true; left; {
				got, err := b.ClaimRows(t.Context(), c)
				if err != nil || got.Failed != nil {
					t.Errorf("%v, %v", err, got.Failed)
					return
				}
				mu.Lock()
				for _, row := range got.Rows {
					if other := by[row.JobID]; other != "" || row.ClaimedBy != c.Claimer(row.JobID.Table()/2) {
						t.Errorf("%s is claimed by %q, and was by %q", row.JobID, row.ClaimedBy, other)
					}
					by[row.JobID] = row.ClaimedBy
				}
				mu.Unlock()
				c.Number++
				left = len(got.Refused) > 0
			}
		})
	}
	all.Wait()
	for _, x := range tasks {
		if r := b.row(x.id); r.Status != tocsin.Claimed || r.ClaimedBy != by[x.id] {
			t.Errorf("%+v, claimed by %s", r, by[x.id])
		}
	}
}

// A claim waits for no beat of a session, nor for its end.
func TestAClaimWaitsForNoLockedSession(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("UPDATE " + b.layout.Database(0) + ".session SET beat = beat + 1"); err != nil {
		t.Fatal(err)
	}
	b.add(task{id: id(0, 1)}, task{id: id(0, 2), status: tocsin.Claimed, by: "eeeeeeeeeeee000000000001"})
	b.wantClaimed(b.claimRows(b.rowsClaim(id(0, 1))), []tocsin.JobID{id(0, 1)}, nil)
	if got, err := b.Recover(t.Context(), 0, []int{0}, 10, nil); err != nil || got != (Recovered{Back: 1}) || b.roundTrips("claim") != 1 {
		t.Errorf("%+v, %v, after %d claims", got, err, b.roundTrips("claim"))
	}
}

// Rows that another transaction holds are refused; all others are claimed, and a claim that has met one waits for no other.
func TestAClaimGoesAroundLockedRows(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	ids := []tocsin.JobID{id(0, 1), id(0, 2), id(2, 1), id(2, 2)}
	for _, noWait := range []bool{false, true} {
		for _, id := range ids {
			b.exec("DELETE FROM " + b.layout.Table(id.Table()))
		}
		b.add(task{id: ids[0]}, task{id: ids[1]}, task{id: ids[2]}, task{id: ids[3]})
		before, packets := b.roundTrips("claim"), 2
		c := b.rowsClaim(ids...)
		if c.NoWait = noWait; noWait {
			packets = 1
		}
		unlock := b.locked(ids[0], ids[3])
		b.wantClaimed(b.claimRows(c), ids[1:3], []tocsin.JobID{ids[0], ids[3]})
		unlock()
		if n := b.roundTrips("claim") - before; n != packets {
			t.Errorf("without waiting %t: %d packets", noWait, n)
		}
		c.Number++
		b.wantClaimed(b.claimRows(c), []tocsin.JobID{ids[0], ids[3]}, nil)
	}
}

// A table that is gone, locked as a whole, or refuses the rows, is named and hides no other.
func TestAClaimGoesAroundSickTables(t *testing.T) {
	t.Parallel()
	for name, sicken := range map[string]func(*bench) (heal func()){
		"gone":   func(b *bench) func() { b.exec("DROP TABLE " + b.layout.Table(1)); return func() {} },
		"locked": func(b *bench) func() { return b.lockedTable(1) },
		"refuses": func(b *bench) func() {
			b.exec("CREATE TRIGGER " + b.layout.Database(0) + ".refuse BEFORE UPDATE ON " + b.layout.Table(1) +
				" FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'")
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openClaims(t)
			ids := []tocsin.JobID{id(0, 1), id(1, 1), id(2, 1), id(3, 1)}
			b.add(task{id: ids[0]}, task{id: ids[1]}, task{id: ids[2]}, task{id: ids[3]})
			c := b.rowsClaim(ids...)
			c.Rows = append(c.Rows, duequeue.Entry{JobID: id(4, 1)}) // beyond the layout
			heal := sicken(b)
			got, err := b.ClaimRows(t.Context(), c)
			heal()
			if err != nil || !slices.Equal(slices.Sorted(maps.Keys(got.Failed)), []int{1, 4}) {
				t.Errorf("%v, %v", err, got.Failed)
			}
			b.wantClaimed(got, []tocsin.JobID{ids[0], ids[2], ids[3]}, nil)
		})
	}
}

// A database that must not be used, and one without a session table, hide no other.
func TestAClaimLeavesOutARefusedDatabase(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	b.Store.cluster = "test"
	b.add(task{id: id(0, 1)}, task{id: id(2, 1)}, task{id: id(3, 1)})
	c := b.rowsClaim(id(0, 1), id(2, 1), id(3, 1))
	b.inSecond(makeForeign)
	if _, err := b.Survey(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	got, err := b.ClaimRows(t.Context(), c)
	if err != nil || !errors.Is(got.Failed[2], tocsin.ErrLayout) || !errors.Is(got.Failed[3], tocsin.ErrLayout) || len(got.Failed) != 2 {
		t.Errorf("%v, %v", err, got.Failed)
	}
	b.wantClaimed(got, []tocsin.JobID{id(0, 1)}, nil)
}

// replaceToken puts a claim's token of the first database into a text.
func replaceToken(text string, c RowsClaim) string {
	return strings.ReplaceAll(text, "{token}", c.Claimer(0))
}
