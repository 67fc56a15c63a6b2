package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// small is enough for most tests: two databases of two tables.
var small = tocsin.Layout{Databases: 2, Tables: 2}

// bench is a store on databases of its own, with a pool beside it.
type bench struct {
	*Store
	tb testing.TB
	db *sqlx.DB
}

// open makes the tables of a config, which is changed first, and opens it.
func open(tb testing.TB, layout tocsin.Layout, change ...func(*tocsin.Config)) *bench {
	tb.Helper()
	layout.Prefix = devtest.Prefix(tb)
	cfg := tocsin.Config{Layout: layout, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}}}
	for _, one := range change {
		one(&cfg)
	}
	if _, err := ddl.Apply(tb.Context(), cfg, ddl.Options{Cluster: "test"}); err != nil {
		tb.Fatal(err)
	}
	return openConfig(tb, cfg)
}

func openConfig(tb testing.TB, cfg tocsin.Config) *bench {
	tb.Helper()
	s, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &bench{Store: s, tb: tb, db: s.servers[0].DB}
}

// id makes a job_id of a table.
func id(table, seq int) tocsin.JobID { return tocsin.JobID(seq+1)<<22 | tocsin.JobID(table)<<9 }

// task is a row as a test wants it; zero fields are ordinary.
type task struct {
	id       tocsin.JobID
	kind     uint64 // biz type; 0: 1
	status   tocsin.Status
	action   int64 // Unix ms; 0: a second ago
	attempts int
	crashes  int
	version  uint32
	by       string
	payload  string
}

// add inserts the tasks, each as pending a second ago unless it says otherwise.
func (b *bench) add(tasks ...task) {
	b.tb.Helper()
	past := b.clock() - 1000
	for table := range slices.Values(b.TablesOf(0)) {
		var rows []string
		for i, t := range tasks {
			if t.id.Table() != table {
				continue
			}
			if t.action == 0 {
				tasks[i].action = past
			}
			rows = append(rows, b.values(&tasks[i]))
		}
		for part := range slices.Chunk(rows, 1000) {
			b.exec("INSERT INTO " + b.layout.Table(table) + ` (job_id, gmt_create, gmt_modified, biz_id, biz_type, status,
				action_time, due_time, attempts, crashes, version, claimed_by, attribute) VALUES ` + strings.Join(part, ","))
		}
	}
}

func (b *bench) values(t *task) string {
	at := string(appendTime(nil, t.action))
	return fmt.Sprintf("(%d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 7, %d, %d, %s, %s, %d, %d, %d, '%s', '%s')",
		t.id, max(t.kind, 1), t.status, at, at, t.attempts, t.crashes, t.version, t.by, t.payload)
}

func (b *bench) exec(query string, args ...any) {
	b.tb.Helper()
	if _, err := b.db.Exec(query, args...); err != nil {
		b.tb.Fatalf("%s: %v", query, err)
	}
}

// scalar reads a single value.
func scalar[T any](b *bench, query string, args ...any) (value T) {
	b.tb.Helper()
	if err := b.db.Get(&value, query, args...); err != nil {
		b.tb.Fatalf("%s: %v", query, err)
	}
	return value
}

// clock is the server's, in Unix ms.
func (b *bench) clock() int64 { return scalar[time.Time](b, "SELECT UTC_TIMESTAMP(3)").UnixMilli() }

// row reads a row whatever its status.
func (b *bench) row(id tocsin.JobID) Row {
	b.tb.Helper()
	rows, err := b.db.Query("SELECT "+rowColumns+" FROM "+b.layout.Table(id.Table())+" WHERE job_id = ?", id)
	if err != nil {
		b.tb.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() {
		b.tb.Fatalf("job_id %s is gone", id)
	}
	var r Row
	if err := b.scan(&r, rows); err != nil {
		b.tb.Fatal(err)
	}
	return r
}

// entry is the row as a peek finds it.
func (b *bench) entry(id tocsin.JobID) duequeue.Entry {
	r := b.row(id)
	return duequeue.Entry{JobID: id, Type: r.Type, Due: r.Action}
}

// outcome is that of an attempt that has loaded the row as it is now.
func (b *bench) outcome(id tocsin.JobID, verb tocsin.Verb) Outcome {
	r := b.row(id)
	return Outcome{JobID: id, Verb: verb, Version: r.Version, Attempts: r.Attempts, Action: r.Action,
		Claimed: r.Status == tocsin.Claimed, Next: r.Action + 60000, Reason: "no route"}
}

func (b *bench) settleOne(o Outcome) Fate {
	b.tb.Helper()
	fates, err := b.Settle(b.tb.Context(), 0, []Outcome{o})
	if err != nil {
		b.tb.Fatal(err)
	}
	return fates[0]
}

// prolong prolongs claims, and returns how many of them have the new deadline.
func (b *bench) prolong(ctx context.Context, until int64, by string, ids ...tocsin.JobID) (n int, err error) {
	var claims []Prolonged
	for _, id := range ids {
		claims = append(claims, Prolonged{JobID: id, By: by, Until: until})
	}
	err = b.Prolong(ctx, 0, claims)
	for _, id := range ids {
		var hit int
		_ = b.db.Get(&hit, "SELECT COUNT(*) FROM "+b.layout.Table(id.Table())+" WHERE job_id = ? AND action_time = "+string(appendTime(nil, until)), id) // a table may be gone
		n += hit
	}
	return n, err
}

// roundTrips returns the number of round trips of a statement so far.
func (b *bench) roundTrips(statement string) int {
	b.tb.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(b.metrics.seconds)
	families, err := reg.Gather()
	if err != nil {
		b.tb.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == statement {
			return int(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

// locked holds one row locked in another transaction until the returned
// function is called.
func (b *bench) locked(ids ...tocsin.JobID) (unlock func()) {
	b.tb.Helper()
	tx, err := b.db.BeginTx(context.Background(), nil)
	if err != nil {
		b.tb.Fatal(err)
	}
	for _, id := range ids {
		if _, err := tx.Exec("SELECT job_id FROM "+b.layout.Table(id.Table())+" WHERE job_id = ? FOR UPDATE", id); err != nil {
			b.tb.Fatal(err)
		}
	}
	return func() { _ = tx.Rollback() }
}

// lockedTable locks whole tables.
func (b *bench) lockedTable(tables ...int) (unlock func()) {
	b.tb.Helper()
	conn, err := b.db.Conn(context.Background())
	if err != nil {
		b.tb.Fatal(err)
	}
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = b.layout.Table(table) + " WRITE"
	}
	if _, err := conn.ExecContext(context.Background(), "LOCK TABLES "+strings.Join(names, ", ")); err != nil {
		b.tb.Fatal(err)
	}
	return func() {
		_, _ = conn.ExecContext(context.Background(), "UNLOCK TABLES")
		_ = conn.Close()
	}
}
