package store

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

func TestRecoverEndsClaimsThatRanOut(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	gone := now - 6000
	b.add(
		task{id: id(0, 1), status: tocsin.Claimed, action: gone, crashes: 3, by: "node-a", attempts: 2, version: 1},
		task{id: id(0, 2), status: tocsin.Claimed, action: gone, crashes: 4, by: "node-a"},
		task{id: id(1, 3), status: tocsin.Claimed, action: now + 60_000, crashes: 1}, // not run out
		task{id: id(1, 4), status: tocsin.Claimed, action: now - 1000, crashes: 1},   // its claimer may still settle
		task{id: id(1, 5), action: gone}, task{id: id(1, 6), status: tocsin.Done, action: gone},
	)
	b.add(task{id: id(3, 7), status: tocsin.Claimed, action: gone})
	got, err := b.Recover(t.Context(), 0, []int{0, 1, 2, 3}, 100, nil)
	if err != nil || got != (Recovered{Back: 2, Buried: 1}) {
		t.Fatalf("%+v, %v", got, err)
	}
	back, buried := b.row(id(0, 1)), b.row(id(0, 2))
	if back.Status != tocsin.Pending || back.Crashes != 4 || back.Action < now || back.Attempts != 2 || back.Version != 1 {
		t.Errorf("given back as %+v", back)
	}
	if buried.Status != tocsin.Dead || buried.Crashes != 5 || buried.LastError != "crashed 5 times, last on node-a" {
		t.Errorf("buried as %+v", buried)
	}
	for _, still := range []tocsin.JobID{id(1, 3), id(1, 4)} {
		if r := b.row(still); r.Status != tocsin.Claimed || r.Crashes != 1 {
			t.Errorf("touched %+v", r)
		}
	}
}

// Between the finding and the write a claimer may settle, or claim anew.
func TestRecoverChecksAgainWhenItWrites(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	b.add(task{id: id(0, 1), status: tocsin.Claimed, action: now + 60_000}, task{id: id(0, 2), action: now - 9000},
		task{id: id(0, 3), status: tocsin.Claimed, action: now + 60_000, crashes: 4}, task{id: id(0, 4), status: tocsin.Done, action: now - 9000, crashes: 4})
	in := slots{"ids": []tocsin.JobID{id(0, 1), id(0, 2), id(0, 3), id(0, 4)}, "crashes": MaxCrashes - 1}
	for _, text := range []string{b.union(recoverBury, in, 0), b.union(recoverBack, in, 0)} {
		res, err := b.db.Exec(text)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := res.RowsAffected(); n != 0 {
			t.Errorf("%d rows by %s", n, text)
		}
	}
}

func TestRecoverKeepsItsLimit(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	gone := b.clock() - 6000
	for i := range 7 {
		b.add(task{id: id(i%4, i), status: tocsin.Claimed, action: gone})
	}
	for _, want := range []int{3, 3, 1, 0} {
		got, err := b.Recover(t.Context(), 0, []int{0, 1, 2, 3}, 3, nil)
		if err != nil || got.Back != want {
			t.Errorf("%+v, %v, want %d", got, err, want)
		}
	}
}

func TestRedriveMakesADeadTaskPendingAndRings(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(3, 1), status: tocsin.Dead, attempts: 16, crashes: 2, version: 3, kind: 4}, task{id: id(3, 2), status: tocsin.Done})
	for _, want := range []bool{true, false} {
		if hit, err := b.Redrive(t.Context(), id(3, 1), false); hit != want || err != nil {
			t.Errorf("%t, %v, want %t", hit, err, want)
		}
	}
	for _, not := range []tocsin.JobID{id(3, 2), id(3, 9)} {
		if hit, err := b.Redrive(t.Context(), not, false); hit || err != nil {
			t.Errorf("%s: %t, %v", not, hit, err)
		}
	}
	rung, err := b.Bells(t.Context(), 0, nil, 10)
	if err != nil || len(rung) != 1 || len(rung[1]) != 1 || rung[1][0].Entry != b.entry(id(3, 1)) {
		t.Errorf("bells %v, %v", rung, err)
	}
}

func TestBellsGoOnBehindTheLastOne(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	if last, err := b.LastBell(t.Context(), 0); err != nil || !maps.Equal(last, map[int]uint64{0: 0, 1: 0}) {
		t.Fatalf("%v, %v", last, err)
	}
	for i := range 5 {
		b.exec("INSERT INTO "+b.layout.Database(1)+".doorbell (table_no, job_id, biz_type, action_time) VALUES (3, ?, 2, '2026-11-01 00:00:00.125')", id(3, i))
	}
	rung, err := b.Bells(t.Context(), 0, map[int]Unheard{1: {After: 2}}, 2)
	if err != nil || len(rung[0]) != 0 || len(rung[1]) != 2 || rung[1][0].ID != 3 || rung[1][1].ID != 4 {
		t.Fatalf("%v, %v", rung, err)
	}
	want := time.Date(2026, 11, 1, 0, 0, 0, 125e6, time.UTC).UnixMilli()
	if e := rung[1][0].Entry; e.JobID != id(3, 2) || e.Type != 2 || e.Due != want {
		t.Errorf("entry %+v", e)
	}
	rung, err = b.Bells(t.Context(), 0, map[int]Unheard{1: {After: 4, Missing: []Span{{1, 1}, {3, 3}}}}, 2)
	if err != nil || len(rung[1]) != 3 || rung[1][0].ID != 1 || rung[1][1].ID != 3 || rung[1][2].ID != 5 {
		t.Errorf("with missing ones: %v, %v", rung, err)
	}
	rung, err = b.Bells(t.Context(), 0, map[int]Unheard{1: {After: 5, Missing: []Span{{1, 4}}}}, 2)
	if err != nil || len(rung[1]) != 2 || rung[1][0].ID != 1 || rung[1][1].ID != 2 {
		t.Errorf("a page of the missing: %v, %v", rung, err)
	}
	b.exec("DROP TABLE " + b.layout.Database(0) + ".doorbell")
	last, err := b.LastBell(t.Context(), 0)
	if last[1] != 5 || err == nil || !strings.Contains(err.Error(), b.layout.Database(0)) {
		t.Errorf("with one doorbell missing: %v, %v", last, err)
	}
	last, err = b.LastBell(t.Context(), 0) // it is asked for only once in deafFor, not in each poll
	if err != nil || !maps.Equal(last, map[int]uint64{1: 5}) {
		t.Errorf("the second time: %v, %v", last, err)
	}
	if rung, err = b.Bells(t.Context(), 0, nil, 1); err != nil || len(rung) != 1 {
		t.Errorf("bells of the other: %v, %v", rung, err)
	}
}

func TestOwnKeepsTheLaterRevision(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	steps := []struct {
		node      string
		revisions map[int]int64
		want      map[int]string
		late      map[int]int64
	}{
		{"a", map[int]int64{0: 5, 1: 5, 2: 5}, map[int]string{0: "a", 1: "a", 2: "a"}, nil},
		{"b", map[int]int64{1: 6, 3: 6}, map[int]string{0: "a", 1: "b", 2: "a", 3: "b"}, nil},
		{"b", map[int]int64{1: 5, 3: 6}, map[int]string{0: "a", 1: "b", 2: "a", 3: "b"}, nil}, // repeated, and its own earlier one
		{"c", map[int]int64{0: 5, 1: 4, 2: 7}, map[int]string{0: "a", 1: "b", 2: "c", 3: "b"}, map[int]int64{0: 5, 1: 6}},
		{"e", map[int]int64{1: 5}, map[int]string{0: "a", 1: "b", 2: "c", 3: "b"}, map[int]int64{1: 6}}, // c's older revision has not put b's back
		{"d", nil, map[int]string{0: "a", 1: "b", 2: "c", 3: "b"}, nil},
	}
	for _, step := range steps {
		err := b.Own(t.Context(), "g", step.node, step.revisions)
		var not *Unowned
		if !errors.As(err, &not) {
			not = &Unowned{}
		}
		if len(not.Failed) > 0 || !maps.Equal(not.Overtaken, step.late) {
			t.Errorf("%s is late for %v, want %v, %v", step.node, not.Overtaken, step.late, err)
		}
		if got, err := b.Owners(t.Context(), 0, "g"); err != nil || !maps.Equal(got, step.want) {
			t.Errorf("after %s: %v, %v", step.node, got, err)
		}
	}
	if got, err := b.Owners(t.Context(), 0, "h"); err != nil || len(got) != 0 {
		t.Errorf("another group: %v, %v", got, err)
	}
	if got, err := b.OwnerRevisions(t.Context(), "g"); err != nil || got != (OwnerRevisions{Taken: 7, Databases: 2}) {
		t.Errorf("revisions %+v, %v", got, err)
	}
	if got, err := b.OwnerRevisions(t.Context(), "h"); err != nil || got != (OwnerRevisions{Databases: 2}) {
		t.Errorf("revisions of another group %+v, %v", got, err)
	}
}

// openOnTwo opens small with each database on a server of its own.
func openOnTwo(t *testing.T) *bench {
	return open(t, small, func(cfg *tocsin.Config) {
		dsn := devtest.DSN(t)
		cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn, Databases: []int{0}}, {Name: "db2", DSN: dsn, Databases: []int{1}}}
	})
}

func TestReserveHasOneWinner(t *testing.T) {
	t.Parallel()
	b := openOnTwo(t)
	long := strings.Repeat("g", 64)
	for _, step := range []struct {
		group    string
		revision int64
		want     bool
	}{{"g", 5, true}, {"g", 5, false}, {"g", 4, false}, {"h", 4, true}, {"g", 6, true}, {long, 1, true}} {
		if ok, err := b.Reserve(t.Context(), step.group, "n", step.revision); err != nil || ok != step.want {
			t.Errorf("%+v: %t, %v", step, ok, err)
		}
	}
	for revision := range int64(20) {
		won := make(chan bool, 8)
		for range cap(won) {
			go func() {
				ok, err := b.Reserve(t.Context(), "g", "n", 7+revision)
				if err != nil {
					t.Error(err)
				}
				won <- ok
			}()
		}
		winners := 0
		for range cap(won) {
			if <-won {
				winners++
			}
		}
		if winners != 1 {
			t.Errorf("%d reserved revision %d", winners, 7+revision)
		}
	}
	if err := b.Own(t.Context(), "g", "a", map[int]int64{0: 3}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.OwnerRevisions(t.Context(), "g"); err != nil || got != (OwnerRevisions{Taken: 3, Reserved: 26, Databases: 2}) {
		t.Errorf("revisions %+v, %v", got, err)
	}
	if got, err := b.Owners(t.Context(), 0, "g"); err != nil || len(got) != 1 {
		t.Errorf("what is reserved is no owner: %v, %v", got, err)
	}
	b.exec("DROP TABLE " + b.layout.Database(0) + ".owner")
	if ok, err := b.Reserve(t.Context(), "g", "n", 27); err != nil || !ok {
		t.Errorf("with one table missing: %t, %v", ok, err)
	}
	if got, err := b.OwnerRevisions(t.Context(), "g"); err == nil || got != (OwnerRevisions{Reserved: 27, Databases: 1}) {
		t.Errorf("with one table missing: %+v, %v", got, err)
	}
	b.exec("DROP TABLE " + b.layout.Database(1) + ".owner")
	if ok, err := b.Reserve(t.Context(), "g", "n", 28); err == nil || ok {
		t.Errorf("with both missing: %t, %v", ok, err)
	}
}

func TestCountsByTableTypeAndStatus(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	oldest := b.clock() - 9000
	b.add(task{id: id(1, 1)}, task{id: id(1, 2), action: oldest}, task{id: id(1, 3), status: tocsin.Claimed},
		task{id: id(1, 4), kind: 2, status: tocsin.Done}, task{id: id(1, 5), kind: 2, status: tocsin.Cancelled}, task{id: id(1, 6), kind: 2, status: tocsin.Dead},
		task{id: id(2, 1)})
	got, err := b.Counts(t.Context(), 0, []int{0, 1})
	want := []Count{{Table: 1, Type: 1, Pending: 2, Claimed: 1, Oldest: oldest}, {Table: 1, Type: 2, Done: 1, Cancelled: 1, Dead: 1}}
	slices.SortFunc(got, func(a, b Count) int { return int(a.Type) - int(b.Type) })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got, _, err = b.LiveCounts(t.Context(), 0, []int{0, 1})
	want[1] = Count{Table: 1, Type: 2, Dead: 1}
	slices.SortFunc(got, func(a, b Count) int { return int(a.Type) - int(b.Type) })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("live: %+v, %v", got, err)
	}
	got, more, err := b.CountsUpTo(t.Context(), 0, []int{0, 1}, 2, tocsin.Pending, tocsin.Dead)
	want = []Count{{Table: 1, Type: 1, Pending: 2, Oldest: oldest}, {Table: 1, Type: 2, Dead: 1}}
	if err != nil || !slices.Equal(got, want) || !slices.Equal(more, []tocsin.Status{tocsin.Pending}) {
		t.Errorf("up to 2: %+v, more %v, %v", got, more, err)
	}
	got, more, err = b.CountsUpTo(t.Context(), 0, []int{0, 1}, 1, tocsin.Pending, tocsin.Claimed)
	want = []Count{{Table: 1, Type: 1, Pending: 1, Oldest: oldest}, {Table: 1, Type: 1, Claimed: 1}}
	if err != nil || !slices.Equal(got, want) || !slices.Equal(more, []tocsin.Status{tocsin.Pending, tocsin.Claimed}) {
		t.Errorf("up to 1: %+v, more %v, %v", got, more, err)
	}
}

func TestCheckNamesBothSidesWhereTheConfigHasMoreDatabases(t *testing.T) {
	t.Parallel()
	stored := open(t, small)
	wrong := stored.layout
	wrong.Databases = 4
	b := openConfig(t, tocsin.Config{Layout: wrong, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}})
	want := "layout of the config is 4x2, that of " + wrong.Database(0) + " on db1 is 2x2"
	if err := b.Check(t.Context(), 0); !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v\nwant %s", err, want)
	}
}

// One server of two is away: what needs any server works, what needs both says
// which.
func TestOneServerAway(t *testing.T) {
	t.Parallel()
	up := open(t, small)
	b := openConfig(t, tocsin.Config{Layout: up.layout, Servers: []tocsin.Server{
		{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}},
		{Name: "db2", DSN: "tocsin:secret@tcp(127.0.0.1:1)/", Databases: []int{1}},
	}})
	if !slices.Equal(b.Servers(), []string{"db1", "db2"}) || b.ServerOf(1) != 0 || b.ServerOf(2) != 1 || b.ServerOf(4) != -1 ||
		!slices.Equal(b.TablesOf(1), []int{2, 3}) {
		t.Errorf("servers %v, tables of db2 %v", b.Servers(), b.TablesOf(1))
	}
	if _, err := b.Measure(t.Context(), 0); err != nil || b.Horizon() != 10*time.Second {
		t.Errorf("horizon %v, %v", b.Horizon(), err)
	}
	err := b.Own(t.Context(), "g", "me", map[int]int64{0: 1, 3: 1})
	if err == nil || !strings.Contains(err.Error(), "on db2") || strings.Contains(err.Error(), "db1") || strings.Contains(err.Error(), "secret") {
		t.Errorf("own: %v", err)
	}
	if owners, err := b.Owners(t.Context(), 0, "g"); err != nil || owners[0] != "me" {
		t.Errorf("owners %v, %v", owners, err)
	}
	if err := b.Check(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "db2") {
		t.Errorf("check: %v", err)
	}
	if _, err := b.Load(t.Context(), 0, []tocsin.JobID{id(2, 1)}); err != nil {
		t.Errorf("load: %v", err)
	}
}

func TestFactsOfTheTestServer(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	f, err := b.Facts(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if f.Version == "" || f.Hostname == "" || f.ServerID == "" || f.ReadOnly != "" || f.Proxy != "" || f.FlushLogAtCommit < 0 || f.SyncBinlog < 0 ||
		f.TableOpenCache < 1 || f.TableDefCache < 1 || f.OpenFilesLimit < 1 || f.MaxConnections < 1 || f.MaxAllowedPacket < 1024 {
		t.Errorf("%+v", f)
	}
	if f.Clock.RoundTrip <= 0 || f.Clock.Ahead.Abs() > time.Minute {
		t.Errorf("clock %+v", f.Clock)
	}
}

func TestProxyIsSeenByItsTraces(t *testing.T) {
	t.Parallel()
	same := []answer{{7, "a"}, {7, "a"}}
	cases := map[string]struct {
		facts   Facts
		answers []answer
		want    string
	}{
		"a server":                    {Facts{Version: "8.0.36", VersionComment: "MySQL Community Server"}, same, ""},
		"a proxy by its name":         {Facts{Version: "8.0.30", VersionComment: "(ProxySQL)"}, same, "the server calls itself ProxySQL"},
		"another":                     {Facts{Version: "10.6.1-maxscale"}, same, "the server calls itself MaxScale"},
		"a proxy that spreads":        {Facts{}, []answer{{7, "a"}, {9, "a"}}, "one connection was answered by connection 7 of a and by 9 of a"},
		"a proxy over two like hosts": {Facts{}, []answer{{7, "a"}, {7, "b"}}, "one connection was answered by connection 7 of a and by 7 of b"},
	}
	for name, c := range cases {
		if got := proxied(c.facts, c.answers); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A statement that waits for a lock is slow, and fails: both are counted for its server. One that fails is counted by itself too.
func TestMetricsNameTheSlowAndFailedStatementsOfAServer(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	reg := prometheus.NewRegistry()
	if err := b.RegisterMetrics(reg); err != nil {
		t.Fatal(err)
	}
	b.add(task{id: id(0, 1)})
	unlock := b.locked(id(0, 1))
	_, err := b.Claim(t.Context(), Claim{By: "node-a", Hold: time.Minute, Rows: []duequeue.Entry{b.entry(id(0, 1))}})
	unlock()
	if err == nil {
		t.Fatal("claimed a locked row")
	}
	b.exec("DROP TABLE " + b.layout.Table(1))
	if _, err := b.Load(t.Context(), 0, []tocsin.JobID{id(1, 1)}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "tocsin_store_")
			for _, l := range m.GetLabel() { // by name
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue()
		}
	}
	if got["server_errors_total contended db1 claimable"] != 1 || got["slow_total db1 claimable"] != 1 || got["slow_seconds_total db1 claimable"] < 1 || got["errors_total missing load"] != 1 {
		t.Errorf("got %v", got)
	}
	for query, want := range map[string]string{"SELECT /* tocsin load */ a": "load", "(SELECT /* tocsin peek */ a /* tocsin x */": "peek", "COMMIT": "other", "/* tocsin ": "other"} {
		if got := senderIn(query); got != want {
			t.Errorf("%q is sent by %q, want %q", query, got, want)
		}
	}
}
