package store

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// ask sends a statement about tables, and returns how many rows it found or changed.
type ask func(context.Context) (n int, err error)

// statements are all statements that touch tasks of tables, or the tables beside them.
func (b *bench) statements(tables ...int) map[string]ask {
	all := b.reads(tables...)
	maps.Copy(all, b.writes(tables...))
	return all
}

// reads asks for the pending task 1, or the dead task 3, of each table.
func (b *bench) reads(tables ...int) map[string]ask {
	var pending, dead, absent []tocsin.JobID
	var from []Place
	var bizIDs []uint64
	seen := make(map[tocsin.JobID]Seen)
	for _, table := range tables {
		pending, dead, absent = append(pending, id(table, 1)), append(dead, id(table, 3)), append(absent, id(table, 99))
		from, bizIDs, seen[id(table, 1)] = append(from, Place{Table: table}), append(bizIDs, b.rightBizID(table)), Seen{Version: 1}
	}
	database := b.layout.DatabaseOf(tables[0])
	peek := func(sparse bool) ask {
		return func(ctx context.Context) (int, error) {
			page, err := b.Peek(ctx, PeekQuery{Tables: tables, Types: []uint64{1}, Until: maxMilli, Limit: 1, Sparse: sparse})
			return len(page.Entries), joined(page.Failed, err)
		}
	}
	all := b.figureReads(database, tables)
	maps.Copy(all, map[string]ask{
		"peek":           peek(false),
		"probe and peek": peek(true),
		"due": func(ctx context.Context) (int, error) {
			page, err := b.Due(ctx, DueQuery{Type: 1, From: from, Until: maxMilli, Limit: 1})
			return len(page.Rows), joined(page.Failed, err)
		},
		"due ids": func(ctx context.Context) (int, error) {
			page, err := b.DueIDs(ctx, DueQuery{Type: 1, From: from, Until: maxMilli, Limit: 1})
			return len(page.Entries), joined(page.Failed, err)
		},
		"load": func(ctx context.Context) (int, error) {
			loaded, err := b.Load(ctx, 0, pending)
			return len(loaded.Rows), joined(loaded.Failed, err)
		},
		"locked": func(ctx context.Context) (int, error) {
			locks, err := b.Locked(ctx, 0, pending)
			return len(pending) - len(locks.Rows) - len(locks.Tables), joined(locks.Tables, err)
		},
		"look": func(ctx context.Context) (int, error) { rows, err := b.Look(ctx, 0, pending); return len(rows), err },
		"dead": func(ctx context.Context) (int, error) {
			found, _, err := b.Dead(ctx, DeadQuery{Until: maxMilli}, dead)
			return len(found), err
		},
		"audit": func(ctx context.Context) (int, error) {
			page, err := b.Audit(ctx, AuditQuery{Tables: tables, Limit: 1})
			return page.Rows, joined(page.Failed, err)
		},
		"recheck": func(ctx context.Context) (int, error) {
			fates, err := b.Recheck(ctx, 0, seen)
			return len(fates), err
		},
		"lacking": func(ctx context.Context) (int, error) {
			found, failed, err := b.Lacking(ctx, 0, 1, bizIDs)
			return len(found), joined(failed, err)
		},
		"absent": func(ctx context.Context) (int, error) {
			found, failed, err := b.Absent(ctx, 0, absent)
			return len(found), joined(failed, err)
		},
	})
	return all
}

// figureReads asks for what is counted of the tables, for what is claimed there, and for the marks of outboxes in a database.
func (b *bench) figureReads(database int, tables []int) map[string]ask {
	return map[string]ask{
		"own claims": func(ctx context.Context) (int, error) {
			claims, err := b.OwnClaims(ctx, 0, tables, bySessions)
			return len(claims), err
		},
		"counts": func(ctx context.Context) (int, error) { all, err := b.Counts(ctx, 0, tables); return len(all), err },
		"overdue": func(ctx context.Context) (int, error) {
			all, failed, err := b.Overdue(ctx, 0, tables, maxMilli, 1)
			return len(all), joined(failed, err)
		},
		"deaths": func(ctx context.Context) (int, error) {
			all, err := b.Deaths(ctx, DeathsQuery{Tables: tables, Types: []uint64{1}, Until: maxMilli, Limit: 1})
			return len(all), err
		},
		"relayed": func(ctx context.Context) (int, error) {
			all, err := b.Relayed(ctx, database, RelayedKey{}, 1)
			return len(all), err
		},
		"noted": func(ctx context.Context) (int, error) {
			there, err := b.Noted(ctx, database, []RelayedKey{{Outbox: "a", ID: 1}})
			return len(there), err
		},
	}
}

// writes changes task 1 of the first table, or tasks of all of them.
func (b *bench) writes(tables ...int) map[string]ask {
	row := duequeue.Entry{JobID: id(tables[0], 1), Type: 1}
	var claimed, dead []tocsin.JobID
	for _, table := range tables {
		claimed, dead = append(claimed, id(table, 2)), append(dead, id(table, 3))
	}
	claim := func(known map[tocsin.JobID]*Row) ask {
		return func(ctx context.Context) (int, error) {
			rows, err := b.Claim(ctx, Claim{Rows: []duequeue.Entry{row}, By: "me", Hold: time.Second, Known: known})
			return len(rows), err
		}
	}
	return map[string]ask{
		"claim":               claim(nil),
		"claim what is known": claim(map[tocsin.JobID]*Row{row.JobID: {Info: tocsin.Info{JobID: row.JobID}}}),
		"claim rows": func(ctx context.Context) (int, error) {
			got, err := b.ClaimRows(ctx, RowsClaim{Rows: []duequeue.Entry{row}, Session: bySessions})
			return len(got.Rows), joined(got.Failed, err)
		},
		"release": func(ctx context.Context) (int, error) {
			by := make(map[tocsin.JobID]string)
			for _, id := range claimed {
				by[id] = ""
			}
			return b.ReleaseDoubtful(ctx, 0, by)
		},
		"settle": func(ctx context.Context) (int, error) {
			_, err := b.Settle(ctx, 0, []Outcome{{JobID: row.JobID, Verb: tocsin.Completed}})
			return 0, err
		},
		"prolong": func(ctx context.Context) (int, error) { return b.prolong(ctx, b.clock()-5500, "", claimed...) }, // it has run out by then, too
		"recover": func(ctx context.Context) (int, error) {
			got, err := b.Recover(ctx, 0, tables, 9, nil)
			return got.Back, err
		},
		"own": func(ctx context.Context) (int, error) { return 0, b.Own(ctx, "g", "me", map[int]int64{tables[0]: 1}) },
		"purge": func(ctx context.Context) (int, error) {
			_, err := b.Purge(ctx, 0, tocsin.Done, maxMilli, []duequeue.Entry{row})
			return 0, err
		},
		"purge bells": func(ctx context.Context) (int, error) {
			removed, _, err := b.PurgeBells(ctx, 0, b.layout.DatabaseOf(tables[0]), 0, maxMilli, 1)
			return removed, err
		},
		"redrive": func(ctx context.Context) (int, error) { _, err := b.Redrive(ctx, row.JobID, false); return 0, err },
		"redrive dead": func(ctx context.Context) (int, error) {
			return b.RedriveDead(ctx, DeadQuery{Until: maxMilli}, dead, false)
		},
		"bury": func(ctx context.Context) (int, error) { _, err := b.Bury(ctx, row.JobID, "why"); return 0, err },
		"act": func(ctx context.Context) (n int, err error) {
			var errs []error
			for _, is := range b.Act(ctx, Act{Deed: DeedReschedule, When: client.In(0), IDs: claimed}) {
				if errs = append(errs, is.Err); is.Done {
					n++
				}
			}
			return n, Join(errs...)
		},
	}
}

// A table that is gone, or locked, is named by whatever asks for it with others, and hides no other.
func TestASickTableHidesNoOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sicken func(*bench) (heal func())
		reads  []string
	}{
		"gone": {
			func(b *bench) func() { b.exec("DROP TABLE " + b.layout.Table(1)); return func() {} },
			[]string{"peek", "probe and peek", "due", "due ids", "load", "counts", "overdue", "deaths", "dead", "audit", "recheck", "lacking", "absent", "locked"},
		},
		"locked": {func(b *bench) func() { return b.lockedTable(1) }, []string{"peek", "load", "locked"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, small)
			old := b.clock() - 6000
			for table := range small.Total() {
				b.add(task{id: id(table, 1), action: old}, task{id: id(table, 2), action: old, status: tocsin.Claimed},
					task{id: id(table, 3), action: old, status: tocsin.Dead})
			}
			defer c.sicken(b)()
			want := func(what string, ask ask) {
				t.Helper()
				n, err := ask(t.Context())
				if n != 3 || err == nil {
					t.Errorf("%s: %d, %v", what, n, err)
					return
				}
				for table := range small.Total() {
					if strings.Contains(err.Error(), b.layout.Table(table)+" on db1") != (table == 1) {
						t.Errorf("%s: error %v", what, err)
					}
				}
			}
			for _, what := range c.reads {
				want(what, b.reads(b.TablesOf(0)...)[what])
			}
			if name == "locked" {
				return
			}
			want("find", func(ctx context.Context) (int, error) {
				found, err := b.Find(ctx, FindQuery{Status: tocsin.Dead, Until: maxMilli, Limit: 100})
				return len(found), err
			})
			if page, err := b.Audit(t.Context(), AuditQuery{Tables: b.TablesOf(0), Limit: 1}); err != nil || page.Statements != 5 {
				t.Errorf("an audit counts %d statements, %v", page.Statements, err)
			}
			for _, what := range []string{"prolong", "recover", "redrive dead", "act"} {
				want(what, b.writes(b.TablesOf(0)...)[what])
			}
		})
	}
}

func TestATableBeyondTheLayoutIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	asks := b.writes(4)
	asks["load"] = func(ctx context.Context) (int, error) {
		loaded, err := b.Load(ctx, 0, []tocsin.JobID{id(4, 1)})
		return 0, joined(loaded.Failed, err)
	}
	asks["runs"] = func(ctx context.Context) (int, error) {
		_, err := b.Runs(ctx, RunsQuery{JobID: id(4, 1), Limit: 1})
		return 0, err
	}
	asks["record"] = func(ctx context.Context) (int, error) {
		_, err := b.RecordRuns(ctx, 0, []*Run{run(id(4, 1), nil)})
		return 0, err
	}
	for _, what := range []string{"claim", "claim what is known", "claim rows", "settle", "own", "purge", "redrive", "bury", "load", "runs", "record"} {
		if _, err := asks[what](t.Context()); err == nil || !strings.Contains(err.Error(), "table 4") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
