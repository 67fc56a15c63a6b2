package store

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// plan is one line of EXPLAIN.
type plan struct{ table, access, key, rows, extra string }

func (b *bench) explain(text string) []plan {
	b.tb.Helper()
	text, _, _ = strings.Cut(text, ";") // the first of several
	rows, err := b.db.Query("EXPLAIN FORMAT=TRADITIONAL " + strings.ReplaceAll(text, "?", "'x'"))
	if err != nil {
		b.tb.Fatalf("EXPLAIN %s: %v", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		b.tb.Fatal(err)
	}
	var plans []plan
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			b.tb.Fatal(err)
		}
		named := make(map[string]string)
		for i, c := range columns {
			named[strings.ToLower(c)] = values[i].String
		}
		plans = append(plans, plan{named["table"], named["type"], named["key"], named["rows"], named["extra"]})
	}
	return plans
}

// wantRange checks that every part of a statement reads a range of the index, and returns the plans of these; extra is what
// they say more.
func (b *bench) wantRange(name, text, key, extra string) (read []plan) {
	b.tb.Helper()
	for _, p := range b.explain(text) {
		if p.table == "" || strings.HasPrefix(p.table, "<derived") { // "": MySQL knows beforehand that a part finds nothing
			continue
		}
		read = append(read, p)
		if p.access != "range" || p.key != key || !strings.Contains(p.extra, extra) {
			b.tb.Errorf("%s: %+v", name, p)
		}
	}
	if len(read) == 0 {
		b.tb.Errorf("%s: no plan", name)
	}
	return read
}

// wantPlans checks each line of the plans of statements.
func (b *bench) wantPlans(t *testing.T, texts map[string]string, right func(plan) bool) {
	t.Helper()
	for name, text := range texts {
		for _, p := range b.explain(text) {
			if !right(p) {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

// union is a statement over tables.
func (b *bench) union(st statement, in slots, tables ...int) string {
	var text []byte
	for i, table := range tables {
		if i > 0 {
			text = append(text, unionAll...)
		}
		text = st.render(text, b.ofTable(table, in))
	}
	return string(text)
}

// filled gives a store whose tables hold so many rows each, half of them
// settled, analysed.
func filled(t *testing.T, rows int) *bench {
	b := fresh(t, rows)
	for table := range small.Total() {
		b.exec("ANALYZE TABLE " + b.layout.Table(table))
	}
	return b
}

// fresh is like filled, with the statistics of empty tables: they stay as they
// are where nobody asks for an ANALYZE.
func fresh(t *testing.T, rows int) *bench {
	b := open(t, small)
	var tasks []task
	for table := range small.Total() {
		for i := range rows {
			tasks = append(tasks, task{id: id(table, i), kind: uint64(i%3 + 1), status: tocsin.Status(i % 2 * 2)})
		}
	}
	b.add(tasks...)
	return b
}

func TestPlansOfStatements(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() *bench{
		"few rows":             func() *bench { return filled(t, 600) },
		"more rows":            func() *bench { return filled(t, 6000) },
		"few, never analysed":  func() *bench { return fresh(t, 600) },
		"more, never analysed": func() *bench { return fresh(t, 6000) },
	} {
		b := open()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("peek is answered from idx_due, unsorted", b.peekPlans)
			t.Run("whole due rows are read by idx_due, unsorted", b.duePlans)
			t.Run("turns are read by uk_biz", b.turnPlans)
			t.Run("claims under sessions take ranges of the primary key, and are found by idx_due", b.claimPlans)
			t.Run("load, claim and settle take a range of the primary key", b.keyPlans)
			t.Run("a purge takes a range of the primary key", b.purgePlans)
			t.Run("a probe reads one end of the index", b.probePlans)
			t.Run("operators find rows by idx_due, unsorted", b.findPlans)
			t.Run("an audit reads its page from the index", b.auditPlans)
			t.Run("metrics and alarms read ranges of one index, unsorted", b.figurePlans)
		})
	}
}

func (b *bench) peekPlans(t *testing.T) {
	q := PeekQuery{Types: []uint64{1, 3}, From: 1, Until: b.clock(), Limit: 100}
	behind := q
	behind.After = b.entry(id(0, 4))
	settled := PeekQuery{Any: true, Status: tocsin.Done, Until: b.clock(), Limit: 100}
	settledBehind := settled
	settledBehind.After = behind.After
	b.wantPlans(t, map[string]string{
		"of any type":      b.union(peek, peekSlots(settled), 0, 1),
		"any type, behind": b.union(peek, peekSlots(settledBehind), 0),
		"alone":            b.union(peek, peekSlots(q), 0),
		"in a union":       b.union(peek, peekSlots(q), 0, 1, 2, 3),
		"behind":           b.union(peek, peekSlots(behind), 0),
		"behind, in union": b.union(peek, peekSlots(behind), 0, 1),
	}, func(p plan) bool { // a line of a union would be of a temporary table that holds it
		return p.access == "range" && p.key == "idx_due" && strings.Contains(p.extra, "Using index") && !strings.Contains(p.extra, "filesort")
	})
}

func (b *bench) duePlans(t *testing.T) {
	q := DueQuery{Type: 1, Until: b.clock(), Limit: 100}
	b.wantPlans(t, map[string]string{
		"alone":      string(b.dueText(q, []Place{{Table: 0}})),
		"in a union": string(b.dueText(q, []Place{{Table: 0}, {Table: 1}, {Table: 2, Due: 1, JobID: id(2, 1)}})),
		"far behind": string(b.dueText(q, []Place{{Table: 0, Due: q.Until - 1, JobID: id(0, 4)}})),
	}, func(p plan) bool {
		return p.access == "range" && p.key == "idx_due" && !strings.Contains(p.extra, "filesort")
	})
}

func (b *bench) turnPlans(t *testing.T) {
	q := TurnQuery{Type: 1, PerKey: 3, Until: b.clock()}
	b.wantPlans(t, map[string]string{"turn": string(b.turnText(q, []Key{{0, 7}, {1, 8}}))}, func(p plan) bool {
		return p.table == "" || strings.HasPrefix(p.table, "<union") || p.key == "uk_biz" && p.access == "ref"
	})
	claiming := &claiming{store: b.Store, Claim: Claim{PerKey: 1}, skip: true}
	text := string(claiming.entriesText(nil, claimable, []duequeue.Entry{{JobID: id(0, 2), Due: 1}, {JobID: id(0, 4), Due: 1}}))
	b.wantPlans(t, map[string]string{"claimable in turn": text}, func(p plan) bool {
		return p.table == "k" && p.key == "uk_biz" && p.access == "ref" || p.table == "t" && p.key == "PRIMARY" && p.access == "range"
	})
}

func (b *bench) claimPlans(t *testing.T) {
	c := RowsClaim{Session: bySessions, Number: 1, Ahead: time.Second, PerKey: 1, Lease: NewLease(1), Hold: time.Second}
	for i := range 100 {
		c.Rows = append(c.Rows, duequeue.Entry{JobID: id(0, i*2), Due: 1})
	}
	p := claimPacket{store: b.Store, RowsClaim: c}
	one := func(st statement) string { return strings.ReplaceAll(string(p.one(nil, st, c.Rows)), "@s0", "1") }
	in := slots{"ids": idsOfEntries(c.Rows), "limit": 100, "kind": knownKinds, "session": bySessions[0]}
	texts := map[string]string{
		"claim": one(claimRows), "claim what is free": one(claimFree), "claimed": one(rowsClaimed), "crowded": one(crowdedRows),
		"in turn": strings.ReplaceAll(one(inTurn), "INTO @turn", ""), "release": b.union(releaseDoubtful, in, 0),
		"back": b.union(endedBack, in, 0), "bury": b.union(endedBury, in, 0),
		"settle": string(b.changeText(nil, retry, &Outcome{JobID: id(0, 1), Token: true})), "give back": string(b.changeText(nil, release, &Outcome{JobID: id(0, 1), Token: true})),
	}
	b.wantPlans(t, texts, func(p plan) bool {
		switch p.table {
		case "k":
			return p.key == "uk_biz" && p.access == "ref"
		case "t", "task_0000":
			return p.key == "PRIMARY" && p.access == "range"
		case "r":
			return p.key == "PRIMARY" && p.access == "eq_ref"
		}
		return p.key == "PRIMARY" || strings.HasPrefix(p.table, "<derived") || p.table == ""
	})
	in["kind"] = leases
	next := b.union(nextRunOut, in, 0)
	in["kind"] = ""
	b.wantPlans(t, map[string]string{"ended": b.union(ended, in, 0), "own": b.union(ownClaims, in, 0), "next": next}, func(p plan) bool {
		return p.table != "task_0000" || p.key == "idx_due" && p.access == "ref" && !strings.Contains(p.extra, "filesort")
	})
}

func (b *bench) keyPlans(t *testing.T) {
	ids := []tocsin.JobID{}
	for i := range 300 {
		ids = append(ids, id(0, i*2))
	}
	parts := byTable(ids)
	entries := make([]duequeue.Entry, len(ids))
	for i := range ids {
		entries[i] = duequeue.Entry{JobID: ids[i], Due: 1}
	}
	known := map[tocsin.JobID]*Row{ids[0]: {}}
	seizing := func(sure int64) *seizure {
		return &seizure{claiming: &claiming{store: b.Store, Claim: Claim{Known: known}}, sure: sure, latest: maxMilli}
	}
	outcomes := []Outcome{{JobID: ids[0]}, {JobID: ids[1]}, {JobID: ids[2]}}
	loading, _ := b.loadText(parts)
	completing, _ := b.settleText(outcomes, groupOutcomes(outcomes))
	which, _ := (&DeadQuery{Until: b.clock()}).which()
	in := slots{"ids": ids, "crashes": MaxCrashes - 1, "which": which, "key": sameKey}
	texts := map[string][]byte{
		"load":      loading,
		"claimable": (&claiming{store: b.Store}).entriesText(nil, claimable, entries),
		"pending":   (&claiming{store: b.Store}).entriesText(nil, stillPending, entries),
		"claim":     b.heldText(nil, claim, parts[0], 1),
		"seize":     seizing(1).one(nil, seize, entries),
		"as read":   seizing(0).one(nil, seize, entries),
		"claimed":   b.heldText(nil, claimed, parts[0], 1),
		"complete":  completing,
		"retry":     b.changeText(nil, retry, &Outcome{JobID: ids[0]}),
		"snooze":    b.changeText(nil, snooze, &Outcome{JobID: ids[0]}),
		"bury":      b.changeText(nil, bury, &Outcome{JobID: ids[0]}),
		"skip":      b.changeText(nil, skip, &Outcome{JobID: ids[0]}),
		"recover":   []byte(b.union(recoverBury, in, 0) + b.union(recoverBack, in, 0)),
		"prolong":   prolong.render(nil, b.ofTable(0, slots{"until": instant(1), "version": 0, "job_id": ids[0]})),
		"fate":      fate.render(nil, b.fill(parts[0])),
		"dead":      dead.render(nil, b.ofTable(0, in)),
		"redrive":   redrive.render(nil, b.ofTable(0, in)),
		"look":      look.render(nil, b.fill(parts[0])),
		"look bare": lookBare.render(nil, b.fill(parts[0])),
		"by hand":   buryByHand.render(nil, b.ofTable(0, slots{"ids": ids[:1]})),
		"acting":    acting.render(nil, b.ofTable(0, in)),
		"buried":    buryLocked.render(nil, b.ofTable(0, in)),
		"cancelled": cancelLocked.render(nil, b.ofTable(0, in)),
		"moved":     rescheduleLocked.render(nil, b.ofTable(0, in)),
		"purged":    purgeBells.render(nil, b.ofDatabase(0, slots{"ids": []uint64{3, 9}, "before": instant(1)})),
		"acts":      someActs.render(nil, b.ofDatabase(0, slots{"from": uint64(1), "before": uint64(1) << 62, "limit": 500})),
		"old acts":  purgeActs.render(nil, b.ofDatabase(0, slots{"before": uint64(1) << 62, "limit": 500})),
		"bells":     b.bellsText(nil, 0, 1000, Span{3, 9}, Span{12, 12}, Span{40, 99}),
	}
	for name, text := range texts {
		for _, p := range b.explain(string(text)) {
			one := p.access == "const" && name == "fate" || p.access == "eq_ref" && p.table == "b" // a policy
			if p.key != "PRIMARY" || p.access != "range" && !one {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

// A burst of one action_time is read page by page; the last page must not cost
// more than the first.
func TestAPageDeepInABurstReadsItselfOnly(t *testing.T) {
	t.Parallel()
	b := open(t, tocsin.Layout{Databases: 1, Tables: 1})
	due := b.clock() - 5000
	tasks := make([]task, 3000)
	for i := range tasks {
		tasks[i] = task{id: id(0, i), kind: uint64(i%2 + 1), action: due}
	}
	b.add(tasks...)
	b.exec("ANALYZE TABLE " + b.layout.Table(0))
	conn, err := b.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	late, early := duequeue.Entry{JobID: id(0, 2001), Type: 2, Due: due}, duequeue.Entry{JobID: id(0, 1000), Type: 1, Due: due}
	q := PeekQuery{Types: []uint64{1, 2}, Until: due, Limit: 100, After: late}
	first, last := search{FindQuery: FindQuery{Until: maxMilli, After: &late, Limit: 100}}, search{FindQuery: FindQuery{Until: maxMilli, Latest: true, After: &early, Limit: 100}}
	for name, text := range map[string]string{
		"peek": b.union(peek, peekSlots(q), 0), "find the earliest": b.union(find, first.slots(100), 0), "find the latest": b.union(find, last.slots(100), 0),
	} {
		before := devtest.Reads(t, conn, "SESSION")
		if _, err := conn.ExecContext(t.Context(), "DO (SELECT COUNT(*) FROM ("+text+") page)"); err != nil {
			t.Fatal(err)
		}
		if n := devtest.Reads(t, conn, "SESSION") - before; n < 99 || n > 150 {
			t.Errorf("%s: read %d index entries for a page of 100", name, n)
		}
	}
}
