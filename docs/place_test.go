package docs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
)

// What the document's examples are about.
const (
	order      = 120881
	orderTable = 3589
	orderType  = 7 // order.close
	horizon    = 10_000
)

// place is a cluster of the document's layout, 8 x 1024, of which the tables of some orders alone exist.
type place struct {
	layout tocsin.Layout
	db     *sqlx.DB // UTC
	rename *strings.Replacer
	outbox outbox.Config
}

func newPlace(t *testing.T, orders ...uint64) *place {
	t.Helper()
	prefix := devtest.Prefix(t)
	server, err := mysql.Open(mysql.Spec{DSN: devtest.DSN(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.DB.Close() })
	p := &place{
		layout: tocsin.Layout{Databases: 8, Tables: 1024, Prefix: prefix},
		db:     server.DB,
		rename: strings.NewReplacer("toc_", prefix+"_", "shop.", prefix+"_shop."),
	}
	for number := range p.layout.Databases {
		p.createDatabase(t, number)
	}
	p.makeOutbox(t)
	for _, bizID := range orders {
		n := p.layout.TableOf(bizID)
		p.create(t, "task", p.layout.Database(p.layout.DatabaseOf(n)), p.layout.TableName(n))
	}
	return p
}

// createDatabase makes everything but the task tables.
func (p *place) createDatabase(t *testing.T, number int) {
	t.Helper()
	name := p.layout.Database(number)
	p.exec(t, "CREATE DATABASE "+name)
	for _, file := range []string{"layout", "biz_type", "doorbell", "owner", "relayed", "schedule"} {
		p.create(t, file, name, "")
	}
	p.exec(t, `INSERT INTO `+name+`.layout (id, cluster_id, database_no, databases_total, tables_per_database, hash, doorbell_horizon_ms,
    schema_version, works_with, state, gmt_create, identity)
VALUES (1, 'docs', ?, 8, 1024, 'crc32', ?, 3, 3, 'active', UTC_TIMESTAMP(3), 'docs-identity')`,
		number, horizon)
	p.exec(t, `INSERT INTO `+name+`.biz_type (number, name, group_name, policy, revision, gmt_modified) VALUES (?, 'order.close', 'shop', '{}', 1, UTC_TIMESTAMP(3))`, orderType)
}

// create runs one file of the real schema.
func (p *place) create(t *testing.T, file, database, table string) {
	t.Helper()
	text := read(t, "../ddl/sql/"+file+".sql")
	p.exec(t, strings.NewReplacer("{database}", database, "{table}", table).Replace(text))
}

func (p *place) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := p.db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// task is what the test looks at in a row.
type task struct {
	JobID      tocsin.JobID  `db:"job_id"`
	BizID      uint64        `db:"biz_id"`
	BizType    uint64        `db:"biz_type"`
	Status     tocsin.Status `db:"status"`
	ActionTime time.Time     `db:"action_time"`
	DueTime    time.Time     `db:"due_time"`
	Attempts   int           `db:"attempts"`
	Version    int           `db:"version"`
	DedupKey   *string       `db:"dedup_key"`
	Payload    string        `db:"attribute"`
}

// tasks reads the rows of an order from the table that the Go side says.
func (p *place) tasks(t *testing.T, bizID uint64) []task {
	t.Helper()
	var rows []task
	err := p.db.SelectContext(t.Context(), &rows, `SELECT job_id, biz_id, biz_type, status, action_time, due_time,
		attempts, version, dedup_key, attribute FROM `+p.layout.Table(p.layout.TableOf(bizID))+` ORDER BY attribute DESC, dedup_key, job_id`) // ids of one millisecond have no order, and a cancel takes the key away
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.BizID != bizID || row.BizType != orderType || row.JobID.Table() != p.layout.TableOf(bizID) {
			t.Errorf("row %+v is not one of order %d, or its job_id names table %d", row, bizID, row.JobID.Table())
		}
		p.near(t, "time of the job_id", row.JobID.Time(), 0)
	}
	return rows
}

// bell is a row of the doorbell.
type bell struct {
	TableNo    int          `db:"table_no"`
	JobID      tocsin.JobID `db:"job_id"`
	BizType    uint64       `db:"biz_type"`
	ActionTime time.Time    `db:"action_time"`
}

// bells reads the doorbell of the order's database.
func (p *place) bells(t *testing.T, bizID uint64) []bell {
	t.Helper()
	var rows []bell
	database := p.layout.Database(p.layout.DatabaseOf(p.layout.TableOf(bizID)))
	err := p.db.SelectContext(t.Context(), &rows,
		`SELECT table_no, job_id, biz_type, action_time FROM `+database+`.doorbell ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// near wants got to be the server's now + in, give or take what a slow machine needs: far less than a time zone.
func (p *place) near(t *testing.T, what string, got time.Time, in time.Duration) {
	t.Helper()
	var now time.Time
	if err := p.db.GetContext(t.Context(), &now, "SELECT UTC_TIMESTAMP(3)"); err != nil {
		t.Fatal(err)
	}
	if off := got.Sub(now.Add(in)).Abs(); off > time.Minute {
		t.Errorf("%s is %s, which is %s away from %s after now", what, got, off, in)
	}
}
