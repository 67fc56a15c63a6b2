package bench

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestRowsAreWhereTheirIDsSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := tocsin.Layout{Databases: rapid.IntRange(1, 8).Draw(t, "databases"), Tables: rapid.IntRange(1, 1024).Draw(t, "tables")}
		r := newRows(l)
		last := make([]tocsin.JobID, l.Total())
		total, bizIDs := 0, map[uint64]bool{}
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 1500), 1, 4).Draw(t, "rows") {
			total += n
			for table, rows := range r.next(n) {
				for _, row := range rows {
					if row.id.Table() != table || l.TableOf(row.bizID) != table || row.id <= last[table] {
						t.Fatalf("%+v in table %d after %s", row, table, last[table])
					}
					if age := time.Since(row.id.Time()); age < time.Hour {
						t.Fatalf("%s is of %s ago: it may meet an id of the client's", row.id, age)
					}
					last[table], bizIDs[row.bizID] = row.id, true
				}
			}
		}
		if len(bizIDs) != total {
			t.Fatalf("%d biz_ids for %d rows", len(bizIDs), total)
		}
	})
}

func TestPacketsHoldEveryRowOnceAndNotTooMany(t *testing.T) {
	t.Parallel()
	l := tocsin.Layout{Databases: 4, Tables: 8}
	servers := devcluster.Spread([]tocsin.Server{{Name: "a", DSN: "root@tcp(127.0.0.1:1)/"}, {Name: "b", DSN: "root@tcp(127.0.0.1:2)/"}}, l.Databases)
	db, err := store.Open(tocsin.Config{Layout: l, Servers: servers}) // connects to nobody
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	rapid.Check(t, func(t *rapid.T) {
		s := &site{store: db, config: tocsin.Config{Layout: l}, pools: nil}
		s.pools = append(s.pools, nil, nil)
		n := rapid.IntRange(0, 20_000).Draw(t, "rows")
		got := map[tocsin.JobID]bool{}
		for _, p := range s.packets(newRows(l).next(n), packetRows) {
			rows := 0
			for _, part := range p.parts {
				rows += len(part.rows)
				for _, r := range part.rows {
					got[r.id] = true
					if r.id.Table() != part.table || db.ServerOf(part.table) != p.server {
						t.Fatalf("%s in table %d of server %d", r.id, part.table, p.server)
					}
				}
			}
			if rows != p.rows || rows == 0 || rows > packetRows {
				t.Fatalf("a packet of %d rows says %d", rows, p.rows)
			}
		}
		if len(got) != n {
			t.Fatalf("%d rows of %d", len(got), n)
		}
	})
}

func TestDatabasesAreDealtToTheServersInTurn(t *testing.T) {
	t.Parallel()
	got := devcluster.Spread([]tocsin.Server{{Name: "a", Databases: []int{7}}, {Name: "b"}, {Name: "c"}}, 2)
	if len(got) != 2 || len(got[0].Databases) != 1 || got[0].Databases[0] != 0 || got[1].Databases[0] != 1 {
		t.Errorf("%+v", got)
	}
}
