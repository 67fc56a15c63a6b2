package store

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestFindGivesTheEarliestOrTheLatestOfAllTables(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	for i := range 20 {
		b.add(task{id: id(i%4, i), kind: uint64(i%2 + 1), status: tocsin.Dead, action: now - int64(1000*i)})
	}
	b.add(task{id: id(0, 77), action: 1}, task{id: id(0, 78), status: tocsin.Done, action: 1})
	for name, c := range map[string]struct {
		q     FindQuery
		first int64 // its action time before now, in seconds
		n     int
	}{
		"the latest":             {FindQuery{Latest: true, Limit: 6}, 0, 6},
		"the earliest":           {FindQuery{Limit: 6}, 19, 6},
		"all":                    {FindQuery{Limit: 100}, 19, 20},
		"the latest of a type":   {FindQuery{Latest: true, Types: []uint64{2}, Limit: 100}, 1, 10},
		"the latest of a time":   {FindQuery{Latest: true, From: now - 8000, Until: now - 3000, Limit: 100}, 3, 6},
		"the earliest of a time": {FindQuery{From: now - 8000, Until: now - 3000, Limit: 4}, 8, 4},
		"none of no time":        {FindQuery{From: now - 3000, Until: now - 8000, Limit: 100}, 0, 0},
		"none of no types":       {FindQuery{Types: []uint64{}, Limit: 100}, 0, 0},
		"none of an absent type": {FindQuery{Types: []uint64{9}, Limit: 100}, 0, 0},
	} {
		c.q.Status, c.q.Until = tocsin.Dead, cmp.Or(c.q.Until, maxMilli)
		found, err := b.Find(t.Context(), c.q)
		if err != nil || len(found) != c.n || c.n > 0 && found[0].Due != now-1000*c.first {
			t.Errorf("%s: %d entries, %v, %v", name, len(found), found, err)
		}
	}
	b.exec("DROP TABLE " + b.layout.Table(1))
	found, err := b.Find(t.Context(), FindQuery{Status: tocsin.Dead, Until: maxMilli, Limit: 100})
	if len(found) != 15 || err == nil || !strings.Contains(err.Error(), b.layout.Table(1)) {
		t.Errorf("with a table missing: %d entries, %v", len(found), err)
	}
}

// Entries with the same time and type are told apart by their id.
func TestFindGoesOnAfterThePageBefore(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	for i := range 20 {
		b.add(task{id: id(i%4, i), kind: uint64(i%2 + 1), status: tocsin.Dead, action: now - int64(1000*(i/8))})
	}
	for _, latest := range []bool{false, true} {
		q := FindQuery{Status: tocsin.Dead, Until: maxMilli, Latest: latest, Limit: 100}
		all, err := b.Find(t.Context(), q)
		if err != nil || len(all) != 20 {
			t.Fatalf("%d entries, %v", len(all), err)
		}
		q.Limit = 3
		for at := 0; at < len(all); at += 3 {
			page, err := b.Find(t.Context(), q)
			if want := all[at:min(at+3, len(all))]; err != nil || !slices.Equal(page, want) {
				t.Fatalf("latest %t, from %d: %v, want %v, %v", latest, at, page, want, err)
			}
			q.After = &page[len(page)-1]
		}
		if page, err := b.Find(t.Context(), q); len(page) > 0 || err != nil {
			t.Errorf("after the last: %v, %v", page, err)
		}
	}
}

// crowded is a store of 70 tables, two groups of a find, with its entries of dead rows in order. A few tables have most rows, and
// many rows have one action time. All statements go over one connection.
func crowded(t *testing.T) (b *bench, all []duequeue.Entry) {
	t.Helper()
	const tables = 70
	b = open(t, tocsin.Layout{Databases: 1, Tables: tables}, func(cfg *tocsin.Config) { cfg.Servers[0].MaxConns = 1 })
	random, now := rand.New(rand.NewPCG(1, 2)), b.clock()
	var tasks []task
	for table := range tables {
		rows := 40
		switch {
		case table%13 == 5:
			rows = 400
		case table%13 == 6:
			rows = random.IntN(2)
		}
		for i := range rows {
			e := duequeue.Entry{JobID: id(table, i), Type: uint64(random.IntN(3) + 1), Due: now - int64(random.IntN(1_000_000))}
			if i%4 == 0 {
				e.Due = now - 500_000
			}
			all = append(all, e)
			tasks = append(tasks, task{id: e.JobID, kind: e.Type, status: tocsin.Dead, action: e.Due})
		}
	}
	b.add(tasks...)
	slices.SortFunc(all, FindQuery{}.Compare)
	return b, all
}

// plainly is what Find has to return.
func (q FindQuery) plainly(all []duequeue.Entry) (found []duequeue.Entry) {
	for _, e := range all {
		if (q.Types == nil || slices.Contains(q.Types, e.Type)) && e.Due >= q.From && e.Due <= q.Until {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, q.Compare)
	if q.After != nil {
		found = slices.DeleteFunc(found, func(e duequeue.Entry) bool { return q.Compare(e, *q.After) <= 0 })
	}
	return found[:min(len(found), q.Limit)]
}

// A find reads about as many index entries as it returns, and two or three of each table, and finds what it would if it read
// as many as it returns of each.
func TestFindReadsFewOfEachTableAndMissesNone(t *testing.T) {
	t.Parallel()
	b, all := crowded(t)
	tables := len(b.TablesOf(0))
	if _, err := b.Find(t.Context(), FindQuery{Until: maxMilli, Limit: 1}); err != nil { // which reads the layout rows, too
		t.Fatal(err)
	}
	for _, limit := range []int{1, 50, 1000} {
		for _, latest := range []bool{false, true} {
			q := FindQuery{Status: tocsin.Dead, Latest: latest, Until: maxMilli, Limit: limit}
			before := b.entriesRead()
			found, err := b.Find(t.Context(), q)
			read := b.entriesRead() - before
			if err != nil || !slices.Equal(found, q.plainly(all)) {
				t.Errorf("%+v: %d entries, %v", q, len(found), err)
			}
			f := search{FindQuery: q}
			for group := range slices.Chunk(b.TablesOf(0), maxTables) {
				b.exec("DO (SELECT COUNT(*) FROM (" + b.union(find, f.slots(limit), group...) + ") AS page)")
			}
			each := b.entriesRead() - before - read
			t.Logf("limit %d, latest %t: %d entries were read, %d with the limit for each table", limit, latest, read, each)
			if read > 3*(limit+tables) { // few tables have most of the first entries; MySQL counts two where one is read
				t.Errorf("%+v: %d entries were read of %d tables", q, read, tables)
			}
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		q := FindQuery{Status: tocsin.Dead, Latest: random.IntN(2) == 0, Until: maxMilli, Limit: 1 + random.IntN(300)}
		if random.IntN(3) == 0 {
			q.Types = []uint64{2, 3}
		}
		if random.IntN(2) == 0 {
			q.From = all[random.IntN(len(all))].Due
		}
		if random.IntN(2) == 0 {
			q.Until = all[random.IntN(len(all))].Due
		}
		if random.IntN(2) == 0 {
			q.After = &all[random.IntN(len(all))]
		}
		if found, err := b.Find(t.Context(), q); err != nil || !slices.Equal(found, q.plainly(all)) {
			t.Errorf("%+v: %d entries, want %d, %v", q, len(found), len(q.plainly(all)), err)
		}
	}
}

// entriesRead is how many index entries the only connection has read.
func (b *bench) entriesRead() int {
	b.tb.Helper()
	conn, err := b.db.Conn(b.tb.Context())
	if err != nil {
		b.tb.Fatal(err)
	}
	defer conn.Close()
	return devtest.Reads(b.tb, conn, "SESSION")
}

// A statement that takes too long is ended by the server, and no table is asked again by itself.
func TestASlowStatementIsEndedByItsServer(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(0, 1)}, task{id: id(1, 1)})
	begin := time.Now()
	_, failed, err := across(t.Context(), b.Store, b.servers[0], b.TablesOf(0), question[peeked]{
		verb: "find", within: 100 * time.Millisecond, scan: scanPeeked,
		statement: prepare("(SELECT /* tocsin asleep */ {table_no}, job_id, biz_type, action_time FROM {table} WHERE SLEEP(9) = 0 LIMIT 1)"),
	})
	if !errors.Is(err, mysql.ErrTimeUp) || !strings.Contains(err.Error(), "ended the query after 100ms") || len(failed) > 0 || b.roundTrips("asleep") != 1 {
		t.Errorf("%v, %v, in %d round trips", err, failed, b.roundTrips("asleep"))
	}
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("took %s", took)
	}
	if found, err := b.Find(t.Context(), FindQuery{Until: maxMilli, Limit: 9}); err != nil || len(found) != 2 {
		t.Errorf("the connection afterwards: %v, %v", found, err)
	}
}

func (b *bench) findPlans(t *testing.T) {
	after := &duequeue.Entry{Due: b.clock(), Type: 1, JobID: id(0, 1)}
	for _, q := range []FindQuery{
		{}, {Latest: true}, {Latest: true, Types: []uint64{1, 2}}, {After: after}, {After: after, Latest: true}, {From: after.Due - 1000},
		{From: after.Due - 1000, After: after, Types: []uint64{1, 2}, Latest: true},
	} {
		q.Status, q.Until, q.Limit = tocsin.Done, maxMilli, 100
		f := search{FindQuery: q}
		b.wantPlans(t, map[string]string{fmt.Sprintf("%+v", q): b.union(find, f.slots(100), 0, 1)}, func(p plan) bool {
			return p.access == "range" && p.key == "idx_due" && strings.Contains(p.extra, "Using index") && !strings.Contains(p.extra, "filesort")
		})
	}
}

func TestLookReadsRowsOfAnyStatus(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var ids []tocsin.JobID
	for i := range 5 {
		b.add(task{id: id(i%4, i), status: tocsin.Status(i), payload: "p"})
		ids = append(ids, id(i%4, i))
	}
	rows, err := b.Look(t.Context(), 0, append(ids, id(0, 99), id(8000, 1)))
	if err != nil || len(rows) != 5 || rows[0].Payload != "p" || rows[0].Table == "" {
		t.Errorf("%+v, %v", rows, err)
	}
	if rows, err := b.Look(t.Context(), 0, nil); rows != nil || err != nil {
		t.Errorf("%v, %v", rows, err)
	}
	bare, err := b.LookBare(t.Context(), 0, ids)
	for i := range rows {
		rows[i].Payload = ""
	}
	if err != nil || !reflect.DeepEqual(bare, rows) {
		t.Errorf("%+v, %v, want %+v", bare, err, rows)
	}
}

func TestRedriveDeadTakesWhatIsDeadAsAskedForAndRings(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	var ids []tocsin.JobID
	for i := range 9 {
		ids = append(ids, id(i%4, i))
		b.add(task{id: ids[i], status: tocsin.Dead, action: now - 9000 + int64(i)*1000, attempts: 16, crashes: 5, version: 2})
	}
	b.add(task{id: id(0, 20), status: tocsin.Dead, action: now + 60_000}, task{id: id(0, 21), status: tocsin.Done})
	b.exec("UPDATE "+b.layout.Table(1)+" SET last_error = CONCAT(?, 'yesterday; No route')", layoutrow.RestoredError) // 1, 5
	b.exec("UPDATE " + b.layout.Table(2) + " SET last_error = 'no route? 100%'")                                      // 2, 6
	all := append(ids, id(0, 20), id(0, 21), id(0, 22), id(9000, 1))
	for name, c := range map[string]struct {
		q    DeadQuery
		want []int // of ids
		left int
	}{
		"all":              {DeadQuery{}, []int{0, 4, 8, 2, 6, 3, 7}, 2},
		"restored":         {DeadQuery{Restored: true}, []int{1, 5}, 0},
		"of a time":        {DeadQuery{Since: now - 8000, Until: now - 5000}, []int{4, 2, 3}, 1},
		"with an error":    {DeadQuery{Error: "o route? 100%"}, []int{2, 6}, 0},
		"in another case":  {DeadQuery{Error: "No route"}, nil, 2},
		"restored, of it":  {DeadQuery{Error: "No route", Restored: true}, []int{1, 5}, 0},
		"with a wild card": {DeadQuery{Error: "no%"}, nil, 0},
	} {
		if c.q.Until == 0 {
			c.q.Until = now
		}
		var want []tocsin.JobID
		for _, i := range c.want {
			want = append(want, ids[i])
		}
		found, left, err := b.Dead(t.Context(), c.q, all)
		if !slices.Equal(sortIDs(found), sortIDs(want)) || left != c.left || err != nil {
			t.Errorf("%s: %v, %d left, %v, want %v", name, found, left, err, want)
		}
	}
	if n, err := b.RedriveDead(t.Context(), DeadQuery{Until: now}, all, false); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if r := b.row(ids[0]); r.Status != tocsin.Pending || r.Attempts != 0 || r.Crashes != 0 || r.Version != 3 || r.Action < now {
		t.Errorf("redriven as %+v", r)
	}
	for _, not := range []tocsin.JobID{ids[1], ids[5], id(0, 20), id(0, 21)} {
		if r := b.row(not); r.Status == tocsin.Pending {
			t.Errorf("redrove %+v", r)
		}
	}
	rung, err := b.Bells(t.Context(), 0, nil, 10)
	if err != nil || len(rung[0])+len(rung[1]) != 7 {
		t.Errorf("bells %v, %v", rung, err)
	}
	if n, err := b.RedriveDead(t.Context(), DeadQuery{Until: now, Restored: true}, all, false); n != 2 || err != nil {
		t.Errorf("restored: %d, %v", n, err)
	}
}

// Between the finding and the write a task may complete, be redriven, purged, or die again of something else.
func TestRedriveDeadChecksAgainWhenItWrites(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	b.add(task{id: id(0, 1)}, task{id: id(0, 2), status: tocsin.Done}, task{id: id(0, 3), status: tocsin.Dead, action: now + 60_000},
		task{id: id(0, 5), status: tocsin.Dead, action: now - 60_000}, task{id: id(0, 6), status: tocsin.Dead})
	q := DeadQuery{Since: now - 30_000, Until: now, Error: "no route"}
	if n, err := b.RedriveDead(t.Context(), q, []tocsin.JobID{id(0, 1), id(0, 2), id(0, 3), id(0, 4), id(0, 5), id(0, 6)}, false); n != 0 || err != nil {
		t.Errorf("redrove %d rows that are not dead, or not as asked for, %v", n, err)
	}
}

// A redrive with the same key keeps the version, so action_time is what fences the attempts before: it may have come in the
// millisecond of the death.
func TestARedriveWithTheSameKeyIsFencedAgainstFormerAttempts(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	ahead := b.clock() + 3_600_000 // as if the clock stood still since
	b.add(task{id: id(0, 1), version: 2, action: ahead}, task{id: id(1, 1), version: 2})
	late, done := b.outcome(id(0, 1), tocsin.Retried), b.outcome(id(1, 1), tocsin.Completed)
	b.exec("UPDATE " + b.layout.Table(0) + " SET status = 4, due_time = action_time")
	b.exec("UPDATE " + b.layout.Table(1) + " SET status = 4")
	for _, id := range []tocsin.JobID{id(0, 1), id(1, 1)} {
		if hit, err := b.Redrive(t.Context(), id, true); !hit || err != nil {
			t.Fatal(hit, err)
		}
	}
	r := b.row(id(0, 1))
	if r.Status != tocsin.Pending || r.Version != 2 || r.Action != ahead+1 || r.DueTime.UnixMilli() > b.clock() {
		t.Errorf("redriven as %+v", r)
	}
	if fate := b.settleOne(late); fate == Stored {
		t.Error("a retry of the attempt before the death is stored")
	}
	if fate := b.settleOne(done); fate != Stored { // the receiver has this key
		t.Errorf("a success of the attempt before the death: %s", fate)
	}
}

func TestBuryMakesAPendingTaskDeadWithAReason(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(3, 1), attempts: 2, version: 1}, task{id: id(3, 3), status: tocsin.Done})
	loaded := b.outcome(id(3, 1), tocsin.Retried)
	before := b.clock()
	for _, want := range []bool{true, false} {
		if hit, err := b.Bury(t.Context(), id(3, 1), "poison: "+strings.Repeat("ä", 300)); hit != want || err != nil {
			t.Errorf("%t, %v, want %t", hit, err, want)
		}
	}
	r := b.row(id(3, 1))
	if r.Status != tocsin.Dead || r.Attempts != 2 || r.Version != 1 || r.Action < before || !strings.HasPrefix(r.LastError, "poison: ää") {
		t.Errorf("buried as %+v", r)
	}
	if fate := b.settleOne(loaded); fate != Settled {
		t.Errorf("a retry of the attempt that was under way: %s", fate)
	}
	if fate := b.settleOne(Outcome{JobID: id(3, 1), Version: 1}); fate != Stored {
		t.Errorf("its success: %s", fate)
	}
	for _, not := range []tocsin.JobID{id(3, 3), id(3, 9)} {
		if hit, err := b.Bury(t.Context(), not, "x"); hit || err != nil {
			t.Errorf("%s: %t, %v", not, hit, err)
		}
	}
}
