package store

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// A sparse peek finds what a plain one finds, whatever the rows.
func TestASparsePeekFindsTheSame(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	rapid.Check(t, func(rt *rapid.T) {
		for _, table := range b.TablesOf(0) {
			b.exec("DELETE FROM " + b.layout.Table(table))
		}
		const at = 1_800_000_000_000
		for i := range rapid.IntRange(0, 12).Draw(rt, "rows") {
			b.add(task{
				id: id(rapid.IntRange(0, 3).Draw(rt, "table"), i), kind: rapid.Uint64Range(1, 3).Draw(rt, "type"),
				status: rapid.SampledFrom([]tocsin.Status{tocsin.Pending, tocsin.Pending, tocsin.Claimed, tocsin.Done}).Draw(rt, "status"),
				action: at + rapid.Int64Range(0, 9).Draw(rt, "due"),
			})
		}
		q := PeekQuery{
			Tables: rapid.SampledFrom([][]int{{0, 1, 2, 3}, {0, 2}, {1, 2, 3}, {3}}).Draw(rt, "tables"), Types: []uint64{1, 2}, Limit: 2,
			From: rapid.SampledFrom([]int64{0, at, at + 5, at + 20}).Draw(rt, "from"), Until: at + rapid.Int64Range(-1, 9).Draw(rt, "until"),
		}
		plain, err := b.Peek(t.Context(), q)
		if err != nil {
			rt.Fatal(err)
		}
		q.Sparse = true
		sparse, err := b.Peek(t.Context(), q)
		if err != nil || !slices.Equal(sparse.Entries, plain.Entries) || !slices.Equal(sparse.Full, plain.Full) {
			rt.Fatalf("%v: found %v, full %v\nwant %v, full %v", err, sparse.Entries, sparse.Full, plain.Entries, plain.Full)
		}
	})
}

// probed is a store with one row in each of its tables, which were probed once.
func probed(t *testing.T) (*bench, PeekQuery) {
	b := open(t, small)
	for table := range small.Total() {
		b.add(task{id: id(table, 1)})
	}
	q := PeekQuery{Tables: b.TablesOf(0), Types: []uint64{1}, Until: b.clock(), Limit: 10, Sparse: true}
	b.peeks(q, 0, 1, 2, 3)
	return b, q
}

// peeks wants a row of each of the tables.
func (b *bench) peeks(q PeekQuery, tables ...int) Page {
	b.tb.Helper()
	page, err := b.Peek(b.tb.Context(), q)
	if err != nil {
		b.tb.Fatal(err)
	}
	var found []int
	for _, e := range page.Entries {
		found = append(found, e.JobID.Table())
	}
	if !slices.Equal(found, tables) {
		b.tb.Errorf("rows of tables %v, want %v", found, tables)
	}
	return page
}

func TestASparsePeekGoesOnWithoutItsProbe(t *testing.T) {
	t.Parallel()
	t.Run("a table that went is named, and the others are read", func(t *testing.T) {
		t.Parallel()
		b, q := probed(t)
		b.exec("RENAME TABLE " + b.layout.Table(1) + " TO " + b.layout.Table(1) + "_away")
		if page := b.peeks(q, 0, 2, 3); page.Failed[1] == nil || len(page.Failed) != 1 {
			t.Errorf("failed %v", page.Failed)
		}
		b.exec("RENAME TABLE " + b.layout.Table(1) + "_away TO " + b.layout.Table(1))
		b.peeks(q, 0, 1, 2, 3)
	})
	t.Run("its connection was killed", func(t *testing.T) {
		t.Parallel()
		b, q := probed(t)
		var thread string
		if err := b.servers[0].prober.conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&thread); err != nil {
			t.Fatal(err)
		}
		b.exec("KILL " + thread)
		b.peeks(q, 0, 1, 2, 3)
		b.peeks(q, 0, 1, 2, 3)
		if len(b.servers[0].prober.ready) != 1 {
			t.Error("it is not prepared again")
		}
	})
	t.Run("another probe waits for a lock", func(t *testing.T) {
		t.Parallel()
		b, q := probed(t)
		b.servers[0].prober.turn <- struct{}{}
		b.peeks(q, 0, 1, 2, 3)
	})
}

// A database that is not the config's may have nothing due: its tables must not be taken for empty.
func TestAProbeReachesNoForeignDatabase(t *testing.T) {
	t.Parallel()
	b, q := probed(t)
	b.Store.cluster = "test"
	b.inSecond("DELETE FROM {db}.task_0000")
	b.inSecond(makeForeign)
	fresh := openConfig(t, tocsin.Config{Layout: b.layout, Cluster: "test", Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}})
	q.Tables = []int{2}
	if page := fresh.peeks(q); !errors.Is(page.Failed[2], tocsin.ErrLayout) || fresh.roundTrips("probe") != 1 {
		t.Errorf("failed %v", page.Failed)
	}
}

func TestProbesAreKeptPreparedForAsLongAsTheyAreUsed(t *testing.T) {
	t.Parallel()
	b, q := probed(t)
	p := &b.servers[0].prober
	first := p.ready[0].stmt
	b.peeks(q, 0, 1, 2, 3)
	if p.ready[0].stmt != first {
		t.Error("prepared twice")
	}
	q.Tables = []int{0, 2}
	b.peeks(q, 0, 2)
	if len(p.ready) != 1 || !slices.Equal(p.ready[0].tables, q.Tables) {
		t.Errorf("kept %v", p.ready)
	}
	q.Tables = []int{1, 3}
	b.peeks(q, 1, 3)
	p.ready[0].used = time.Now().Add(-probeUnused - time.Second)
	p.forget(time.Now().Add(probeUnused))
	if len(p.ready) != 0 {
		t.Errorf("an unused one and one for longer than that: %d are left", len(p.ready))
	}
	stmt, err := p.conn.PrepareContext(t.Context(), "SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	for first := range maxProbes {
		p.ready[first] = &prepared{stmt: stmt, used: time.Now()}
	}
	p.forget(time.Now())
	if len(p.ready) != 0 {
		t.Errorf("%d are kept", len(p.ready))
	}
}

// A probe must read one end of the index, however many rows are pending: it is
// answered before there is a plan.
func (b *bench) probePlans(t *testing.T) {
	now := b.clock()
	for name, q := range map[string]PeekQuery{
		"from the beginning": {Until: now},
		"from a floor":       {From: now - 3_600_000, Until: now},
		"nothing there":      {From: now + 1, Until: now + 5},
	} {
		text := b.probeText([]int{0, 1, 2, 3}, q)()
		for _, arg := range probeArgs(4, q) {
			text = strings.Replace(text, "?", "'"+arg.(string)+"'", 1)
		}
		b.wantPlans(t, map[string]string{name: text}, func(p plan) bool { return strings.HasPrefix(p.table, "<union") || p.rows == "" })
	}
}
