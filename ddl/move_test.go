package ddl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// removal is a cluster whose database 1 moves to a server of its own.
type removal struct {
	t          *testing.T
	old, new   tocsin.Config
	from, dest *sql.DB
	name       string // of the database
}

func newRemoval(t *testing.T) *removal {
	t.Helper()
	return newRemovalTo(t, config(t, 2, 4), otherServer(t, "").DSN())
}

// newRemovalTo is newRemoval from the server of cfg to that of a DSN.
func newRemovalTo(t *testing.T, cfg tocsin.Config, dsn string) *removal {
	t.Helper()
	cfg.Cluster = cfg.Layout.Prefix
	applied(t, cfg, Options{})
	return removalOf(t, cfg, dsn)
}

// removalOf is newRemovalTo for tables that stand.
func removalOf(t *testing.T, cfg tocsin.Config, dsn string) *removal {
	t.Helper()
	must(biztype.Apply(t.Context(), cfg, []biztype.Policy{{Name: "order.close", Number: 1, Group: "orders"}}))
	r := &removal{t: t, old: cfg, new: cfg, name: cfg.Layout.Database(1)}
	r.new.Servers = []tocsin.Server{
		{Name: "db1", DSN: cfg.Servers[0].DSN, Databases: []int{0}}, {Name: "db2", DSN: dsn, Databases: []int{1}},
	}
	r.from, r.dest = r.open(cfg.Servers[0].DSN), r.open(dsn)
	return r
}

func (r *removal) open(dsn string) *sql.DB {
	r.t.Helper()
	db := must(sql.Open("mysql", dsn))
	r.t.Cleanup(func() { _ = db.Close() })
	return db
}

// step runs a step of a Move opened for it.
func (r *removal) step(do func(*Move, context.Context) error) error {
	r.t.Helper()
	m := must(OpenMove(r.old, r.new, MoveOptions{Wait: 3 * time.Second}))
	defer m.Close()
	return do(m, r.t.Context())
}

func (r *removal) must(do func(*Move, context.Context) error) {
	r.t.Helper()
	if err := r.step(do); err != nil {
		r.t.Fatal(err)
	}
}

// refused wants an error of one line that holds each part.
func (r *removal) refused(do func(*Move, context.Context) error, parts ...string) {
	r.t.Helper()
	err := r.step(do)
	if err == nil {
		r.t.Fatalf("not refused, want %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
			r.t.Errorf("got %q, want %q in one line", err, part)
		}
	}
}

func (r *removal) differences() []Finding {
	r.t.Helper()
	var found []Finding
	r.must(func(m *Move, ctx context.Context) (err error) { found, err = m.Compare(ctx); return err })
	return found
}

// copy copies the database to its new server.
func (r *removal) copy() {
	r.t.Helper()
	devtest.CopyDatabase(r.t, r.old.Servers[0].DSN, r.new.Servers[1].DSN, r.name)
}

func (r *removal) exec(db *sql.DB, statement string) {
	r.t.Helper()
	if _, err := db.Exec(strings.ReplaceAll(statement, "$", r.name)); err != nil {
		r.t.Fatalf("%s: %v", statement, err)
	}
}

// client opens a client of a config.
func (r *removal) client(cfg tocsin.Config) *tocsin.Client {
	r.t.Helper()
	c := must(tocsin.Open(r.t.Context(), cfg))
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

var orderClose = tocsin.Define[string]("order.close")

// bizIDs gives biz_ids whose tasks are in the database that moves.
func (r *removal) bizIDs(n int) (ids []uint64) {
	for id := uint64(1); len(ids) < n; id++ {
		if r.old.Layout.DatabaseOf(r.old.Layout.TableOf(id)) == 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

// add adds a task for each biz_id.
func (r *removal) add(c *tocsin.Client, bizIDs []uint64) (ids []tocsin.JobID) {
	r.t.Helper()
	for _, bizID := range bizIDs {
		ids = append(ids, must(c.Add(r.t.Context(), orderClose.New(bizID, "{}", tocsin.In(time.Hour)).Dedup("once"))).JobID)
	}
	return ids
}

func TestAMoveTakesEveryTaskAlongAndCanBeUndoneUntilTheNewCopyIsWritten(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	bizIDs := r.bizIDs(20)
	ids := r.add(r.client(r.old), bizIDs)
	r.refused((*Move).Activate, "is active: run `tocsin ddl move retire` first")
	r.must((*Move).Retire)
	r.must((*Move).Retire)
	r.refused((*Move).Activate, "there is no "+r.name+" on server db2: copy it from server db1")
	r.copy()
	if found := r.differences(); len(found) > 0 {
		t.Fatalf("differences after a copy: %v", found)
	}
	r.must((*Move).Activate)
	r.must((*Move).Activate)
	r.refused((*Move).Retire, r.name+" on server db2 is active")
	r.must((*Move).Undo)
	r.add(r.client(r.old), r.bizIDs(21)[20:])
	r.must((*Move).Retire)
	r.refused((*Move).Activate, "the copies differ", "holds")
	r.copy()
	r.must((*Move).Activate)
	verified(t, r.new)
	if ids := identities(t, r.new); ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("identities after the move: %q", ids)
	}
	after := r.client(r.new)
	for _, id := range ids {
		if info, err := after.Get(t.Context(), id); err != nil || info.Status != tocsin.Pending {
			t.Errorf("task %d after the move: %+v, %v", id, info, err)
		}
	}
	if ch, err := after.Cancel(t.Context(), tocsin.ByID(ids[0])); err != nil || ch.Changed != 1 {
		t.Fatalf("cancel in the new copy: %+v, %v", ch, err)
	}
	r.refused((*Move).Undo, r.name+" on server db2 has taken writes and stays in use", "the copies differ")
	for name, interrupted := range map[string]func(*Move, context.Context) error{
		"killed while it compares": undoKilled((*dbCopy).fence),
		"killed before it renames the tables": undoKilled(func(c *dbCopy, ctx context.Context, wait time.Duration, _ func(int)) error {
			return c.write(ctx, retireLayout, wait)
		}),
		"stopped while it compares": undoStopped,
	} {
		if err := r.step(interrupted); err != nil {
			t.Fatalf("an undo %s: %v", name, err)
		}
		r.refused((*Move).Undo, r.name+" on server db2 has taken writes and stays in use", "the copies differ")
	}
	r.must(undoKilled((*dbCopy).fence))
	r.must((*Move).Activate)
	if ch, err := after.Cancel(t.Context(), tocsin.ByID(ids[1])); err != nil || ch.Changed != 1 {
		t.Errorf("the new copy is not in use after a refused undo: %+v, %v", ch, err)
	}
}

// An undo may wait for long until it has retired the new copy. The old server may go away meanwhile.
func TestAnUndoThatLosesTheOldServerLeavesTheNewCopyInUse(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	r.add(r.client(r.old), r.bizIDs(3))
	r.must((*Move).Retire)
	r.copy()
	r.must((*Move).Activate)
	address := mysql.Address(r.old.Servers[0].DSN)
	way := devtest.NewRelay(t, address)
	r.old.Servers = []tocsin.Server{{Name: "db1", DSN: strings.Replace(r.old.Servers[0].DSN, address, way.Addr, 1)}}
	r.new.Servers[0].DSN = r.old.Servers[0].DSN
	r.refused(func(m *Move, ctx context.Context) error {
		m.opt.Progress = func(done, _ int) {
			if done == len(m.pairs[0].to.used()) {
				way.Cut()
			}
		}
		return m.Undo(ctx)
	}, r.name+" on server db2 stays in use: ")
	var state string
	if err := r.dest.QueryRow("SELECT state FROM " + r.name + ".layout").Scan(&state); err != nil || state != layoutrow.Active {
		t.Errorf("the new copy is %s, %v", state, err)
	}
	way.Mend(t)
	r.must((*Move).Undo)
}

// undoKilled is an undo that was killed after this much of it.
func undoKilled(retire func(*dbCopy, context.Context, time.Duration, func(int)) error) func(*Move, context.Context) error {
	return func(m *Move, ctx context.Context) error {
		if err := m.look(ctx); err != nil {
			return err
		}
		return retire(m.pairs[0].to, ctx, m.opt.Wait, m.count)
	}
}

// undoStopped is an undo whose context ends before it compares. It wants the new copy in use afterwards.
func undoStopped(m *Move, ctx context.Context) error {
	stopped, stop := context.WithCancel(ctx)
	defer stop()
	m.opt.Progress = func(done, _ int) {
		if done == len(m.pairs[0].to.used()) {
			stop()
		}
	}
	if err := m.Undo(stopped); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("it returned %v", err)
	}
	if err := m.look(ctx); err != nil {
		return err
	}
	if state := m.pairs[0].to.state; state != CopyActive {
		return fmt.Errorf("the new copy is %s", state)
	}
	return nil
}

// While the new copy is in use, nodes raise its mark, which is no write to a task.
func TestADatabaseWhoseMoveIsUndoneIsNoOlderCopy(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	r.exec(r.from, "UPDATE $.layout SET mark = 1000")
	r.must((*Move).Retire)
	r.copy()
	r.must((*Move).Activate)
	r.exec(r.dest, "UPDATE $.layout SET mark = 3600000")
	r.must((*Move).Undo)
	var state string
	var mark int64
	if err := r.from.QueryRow("SELECT state, mark FROM "+r.name+".layout").Scan(&state, &mark); err != nil || state != layoutrow.Active || mark <= 3600000 {
		t.Errorf("after the undo: state %s, mark %d, %v; want a mark above that of the new copy", state, mark, err)
	}
}

func TestARetiredDatabaseRefusesEveryWrite(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	client, ctx := r.client(r.old), t.Context()
	bizIDs := r.bizIDs(1)
	id := r.add(client, bizIDs)[0]
	db := must(store.Connect(ctx, r.old))
	defer db.Close()
	table, entry := id.Table(), duequeue.Entry{JobID: id, Type: 1, Due: 1}
	task := orderClose.New(bizIDs[0], "{}", tocsin.In(0))
	tx := must(r.from.BeginTx(ctx, nil))
	defer tx.Rollback()
	r.must((*Move).Retire)
	for name, write := range map[string]func() error{
		"add":        func() error { _, err := client.Add(ctx, task); return err },
		"add many":   func() error { _, err := client.AddMany(ctx, []tocsin.NewTask{task}); return err },
		"add tx":     func() error { _, err := client.AddTx(ctx, tx, task); return err },
		"cancel":     func() error { _, err := client.Cancel(ctx, tocsin.ByID(id)); return err },
		"cancel tx":  func() error { _, err := client.CancelTx(ctx, tx, tocsin.ByID(id)); return err },
		"reschedule": func() error { _, err := client.Reschedule(ctx, tocsin.ByID(id), tocsin.In(time.Minute)); return err },
		"redrive":    func() error { _, err := db.Redrive(ctx, id, false); return err },
		"bury":       func() error { _, err := db.Bury(ctx, id, "test"); return err },
		"prolong":    func() error { return db.Prolong(ctx, 0, []store.Prolonged{{JobID: id, Until: 1}}) },
		"recover":    func() error { _, err := db.Recover(ctx, 0, []int{table}, 1, nil); return err },
		"claim": func() error {
			_, err := db.Claim(ctx, store.Claim{Rows: []duequeue.Entry{entry}, By: "n", Hold: time.Minute})
			return err
		},
		"settle": func() error { _, err := db.Settle(ctx, 0, []store.Outcome{{JobID: id}}); return err },
		"purge": func() error {
			_, err := db.Purge(ctx, 0, tocsin.Done, time.Now().UnixMilli(), []duequeue.Entry{entry})
			return err
		},
		"purge bells": func() error { _, _, err := db.PurgeBells(ctx, 0, 1, 0, 1, 1); return err },
		"own":         func() error { return db.Own(ctx, "orders", "n", map[int]int64{table: 1}) },
		"ddl apply":   func() error { _, err := Apply(ctx, r.old, Options{}); return err },
		"plain SQL": func() error {
			_, err := r.from.Exec("DELETE FROM " + r.old.Layout.Table(table))
			return err
		},
	} {
		checkRefused(t, name, write())
	}
	verified(t, r.old, "server db1: "+r.name+`.layout has state "retired", want "active"`)
}

// checkRefused wants an error, and of those who use the client one that they can tell.
func checkRefused(t *testing.T, name string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s is not refused", name)
	}
	if ours := slices.Contains([]string{"add", "add many", "cancel", "reschedule"}, name); ours && !errors.Is(err, tocsin.ErrLayout) {
		t.Errorf("%s does not say that the database has moved: %v", name, err)
	}
}

func TestRetireWaitsForTransactionsUnderWay(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted} { // the one locks the layout row
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			retireWhile(t, level)
		})
	}
}

func retireWhile(t *testing.T, level sql.IsolationLevel) {
	r := newRemoval(t)
	client, bizIDs := r.client(r.old), r.bizIDs(2)
	tx := must(r.from.BeginTx(t.Context(), &sql.TxOptions{Isolation: level}))
	added := must(client.AddTx(t.Context(), tx, orderClose.New(bizIDs[0], "{}", tocsin.In(time.Hour))))
	r.refused((*Move).Retire, "an open transaction of somebody holds it: end it, then run this again")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.must((*Move).Retire)
	r.copy()
	r.must((*Move).Activate)
	if info, err := r.client(r.new).Get(t.Context(), added.JobID); err != nil || info.Status != tocsin.Pending {
		t.Errorf("the task of the transaction: %+v, %v", info, err)
	}
}

func TestCompareNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	id := r.add(r.client(r.old), r.bizIDs(8))[0]
	r.exec(r.from, insertSchedule)
	r.exec(r.from, insertRun)
	r.exec(r.from, "INSERT INTO $.relayed VALUES ('orders', 1, UTC_TIMESTAMP(6), 7, UTC_TIMESTAMP(3), NULL)")
	r.must((*Move).Retire)
	table := aside + r.old.Layout.TableName(id.Table())
	for name, c := range map[string]struct{ damage, want string }{
		"a row is missing":            {"DELETE FROM $." + table + " LIMIT 1", "holds "},
		"a payload differs":           {"UPDATE $." + table + " SET attribute = 'x' LIMIT 1", "holds as many tasks as on db1, but other ones"},
		"a table is missing":          {"DROP TABLE $." + table, "is missing"},
		"an index is missing":         {"ALTER TABLE $." + table + " DROP INDEX uk_biz", "index uk_biz is missing"},
		"a policy differs":            {"UPDATE $.biz_type SET policy = '{}'", "differs from that on db1"},
		"a schedule is missing":       {"DELETE FROM $." + aside + "schedule", ".schedule differs from that on db1"},
		"a schedule differs":          {"UPDATE $." + aside + "schedule SET made_until = made_until - INTERVAL 1 MINUTE", ".schedule differs from that on db1"},
		"a schedule has headers":      {"UPDATE $." + aside + "schedule SET headers = '{}'", ".schedule differs from that on db1"},
		"runs are missing":            {"DELETE FROM $." + aside + "run", ".run differs from that on db1"},
		"what was relayed is missing": {"DELETE FROM $." + aside + "relayed", ".relayed differs from that on db1"},
		"the identity differs":        {"UPDATE $.layout SET identity = 'other'", "Identity:other "},
		"the layout row differs":      {"UPDATE $.layout SET doorbell_horizon_ms = 1", "HorizonMS:1 "},
		"the owners are missing":      {"DROP TABLE $." + aside + "owner", "is missing"},
		"nothing differs, indeed":     {"DO 0", ""},
	} {
		r.copy()
		r.exec(r.dest, c.damage)
		found := r.differences()
		switch {
		case c.want == "" && len(found) == 0:
		case c.want == "" || len(found) == 0 || !strings.Contains(found[0].String(), c.want):
			t.Errorf("%s: found %v, want %q", name, found, c.want)
		default:
			r.refused((*Move).Activate, "the copies differ", c.want)
		}
	}
	r.exec(r.dest, "UPDATE $.layout SET cluster_id = 'another'")
	r.refused((*Move).Activate, "another")
}

func TestAMoveIsRefusedWithOneSentence(t *testing.T) {
	t.Parallel()
	one := tocsin.Config{Layout: tocsin.Layout{Databases: 2, Tables: 4}, Servers: []tocsin.Server{{Name: "db1", DSN: "a@tcp(h:1)/"}}}
	for name, c := range map[string]struct {
		change func(*tocsin.Config)
		opt    MoveOptions
		want   string
	}{
		"the same servers":    {func(*tocsin.Config) {}, MoveOptions{}, "nothing to move: both configs name the same servers"},
		"another layout":      {func(c *tocsin.Config) { c.Layout.Tables = 8 }, MoveOptions{}, "a move changes servers only"},
		"another prefix":      {func(c *tocsin.Config) { c.Layout.Prefix = "x" }, MoveOptions{}, "2x4 from x_0"},
		"another cluster":     {func(c *tocsin.Config) { c.Cluster = "x" }, MoveOptions{}, `is of cluster "", the new one of "x"`},
		"no such database":    {func(*tocsin.Config) {}, MoveOptions{Databases: []string{"toc_7"}}, "no database toc_7"},
		"too many at once":    {func(*tocsin.Config) {}, MoveOptions{Parallel: 65}, "use 1 to 64"},
		"a negative wait":     {func(*tocsin.Config) {}, MoveOptions{Wait: -1}, "wait -1ns: use 0 to"},
		"a config without it": {func(c *tocsin.Config) { c.Servers = nil }, MoveOptions{}, "no servers"},
	} {
		other := one
		other.Servers = slices.Clone(one.Servers)
		c.change(&other)
		if m, err := OpenMove(one, other, c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
			_ = m.Close()
		}
	}
	r := newRemoval(t)
	r.new.Servers[1].DSN = strings.Replace(r.old.Servers[0].DSN, "127.0.0.1", "localhost", 1)
	r.refused((*Move).Retire, "servers db1 and db2 are the same one")
}

// Rows of the tables that came with version 3.
const (
	insertSchedule = `INSERT INTO $.schedule (schedule_id, gmt_create, gmt_modified, name, table_no, biz_type, biz_id, cron, zone,
    start_within_ms, missed, missed_most, overlap, state, revision, anchor, made_until, attribute)
VALUES (1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 'report', 4, 1, 7, '0 4 * * *', 'UTC', 1000, 'once', 100, 'allow', 'active', 1,
    UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '')`

	insertRun = `INSERT INTO $.run (job_id, schedule_id, biz_type, version, attempt, node, started, lateness_ms, duration_ms, outcome)
VALUES (1, 1, 1, 0, 1, 'n', UTC_TIMESTAMP(3), 5, 7, 'completed')`
)

// TestRetireNeedsTheRightsOfItsRole gives a user the rights of the role move one after the other: without the last, the
// step is refused, names the right, and goes on where it stood once the user has it.
func TestRetireNeedsTheRightsOfItsRole(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	admin := r.old
	r.old = limited(t, admin) // SELECT and INSERT
	grant := func(rights, on string) {
		execute(t, admin, "GRANT "+rights+" ON $1."+on+" TO '"+admin.Layout.Prefix+"'@'%'")
	}
	r.refused((*Move).Retire, "UPDATE command denied", r.name+" on server db1")
	grant("UPDATE", "layout")
	for _, right := range []string{"DROP", "ALTER", "CREATE"} {
		r.refused((*Move).Retire, right, "denied", "rename owner of "+r.name)
		grant(right, "*")
	}
	r.must((*Move).Retire)
	r.must((*Move).Undo)
	verified(t, admin)
}

// A MySQL whose files were copied has the server_uuid of the original, until its auto.cnf is removed. MariaDB has none.
func TestAServerMadeFromACopyOfTheOthersFiles(t *testing.T) {
	t.Parallel()
	here, there := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	if err := otherServer(t, here).Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(there, os.DirFS(here)); err != nil {
		t.Fatal(err)
	}
	first, second := otherServer(t, here), otherServer(t, there)
	cfg := config(t, 2, 4)
	cfg.Servers[0].DSN = first.DSN()
	r := newRemovalTo(t, cfg, second.DSN())
	if first.IsMySQL() {
		r.refused((*Move).Retire, "servers db1 and db2 are the same one: nothing moves (both have server_uuid ", "remove its auto.cnf and restart it")
		if err := second.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(there, "data", "auto.cnf")); err != nil {
			t.Fatal(err)
		}
		r.new.Servers[1].DSN = otherServer(t, there).DSN()
	}
	r.must((*Move).Retire)
}
