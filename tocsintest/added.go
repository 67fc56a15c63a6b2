package tocsintest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/outbox"
)

// RequireAdded fails the test unless a transaction that is not committed has added a task, which it has not cancelled again:
// RequireAdded(t, c, tx, OrderClose.Of(7)), or OrderClose.OfKey. It sees the tables of the tasks, if the transaction is on
// their server, and the cluster's outbox. So a test may roll back all that the tested function did. It returns the task, the
// last one if there are several; the JobID of a task in an outbox is 0. Its BizType's Decode reads the payload.
func RequireAdded(tb testing.TB, c *Cluster, tx tocsin.Tx, ref tocsin.Ref) tocsin.Info {
	tb.Helper()
	all, found := c.added(tb, tx, ref)
	if len(found) == 0 {
		tb.Fatalf("tocsintest: the transaction has not added a task of %s; it has added %s", nameOf(client.RefOf(ref)), list(all))
	}
	return found[len(found)-1]
}

// RequireNotAdded fails the test if RequireAdded would not.
func RequireNotAdded(tb testing.TB, c *Cluster, tx tocsin.Tx, ref tocsin.Ref) {
	tb.Helper()
	if _, found := c.added(tb, tx, ref); len(found) > 0 {
		tb.Fatalf("tocsintest: the transaction has added %s", list(found))
	}
}

// list names tasks.
func list(all []tocsin.Info) string {
	if len(all) == 0 {
		return "none"
	}
	var names []string
	for _, i := range all {
		names = append(names, nameOf(i.BizType, i.BizID, i.BizKey))
	}
	return strings.Join(names, ", ")
}

func nameOf(bizType string, bizID uint64, key string) string {
	if key != "" {
		return bizType + " " + key
	}
	return fmt.Sprint(bizType, " ", bizID)
}

// added returns what a transaction has added, and those of them that ref means.
func (c *Cluster) added(tb testing.TB, tx tocsin.Tx, ref tocsin.Ref) (all, found []tocsin.Info) {
	tb.Helper()
	bizType, bizID, key := client.RefOf(ref)
	if bizType == "" {
		tb.Fatalf("tocsintest: name the task by BizType.Of or BizType.OfKey")
	}
	ctx := tb.Context()
	var err error
	if c.Config.Outbox.Table == "" {
		all, err = news(ctx, tx, c.DB, c.tasksSQL())
	} else {
		all, err = news(ctx, tx, c.DB, outboxSQL(c.Config.Outbox))
	}
	if err != nil {
		tb.Fatalf("tocsintest: read what the transaction has added: %v", err)
	}
	for _, i := range all {
		if i.BizType == bizType && i.BizKey == key && (key != "" || i.BizID == bizID) {
			found = append(found, i)
		}
	}
	return all, found
}

// tasksSQL reads the pending tasks of all tables as rows of an outbox.
func (c *Cluster) tasksSQL() string {
	layout := c.Config.Layout
	var tables []string
	for table := range layout.Total() {
		tables = append(tables, fmt.Sprintf(`SELECT t.job_id AS id, t.job_id, 'add', b.name, t.biz_id, t.biz_key, t.due_time, NULL, t.dedup_key, t.headers, t.attribute, t.gmt_create
FROM %s t JOIN %s.biz_type b ON b.number = t.biz_type WHERE t.status = 0`, layout.Table(table), layout.Database(layout.DatabaseOf(table))))
	}
	return strings.Join(tables, "\nUNION ALL ") + "\nORDER BY id"
}

// outboxSQL reads the rows of an outbox. MySQL gives created, a TIMESTAMP, in the zone of the session.
func outboxSQL(o tocsin.Outbox) string {
	table, text, created := outbox.Quoted(o.Table), "CHAR", "'1970-01-01' + INTERVAL UNIX_TIMESTAMP(created) * 1000000 MICROSECOND"
	if o.PostgreSQL {
		table, text, created = outbox.QuotedPostgreSQL(o.Table), "TEXT", "created"
	}
	return "SELECT id, 0, op, biz_type, CAST(biz_id AS " + text + "), biz_key, due_time, delay_ms, dedup_key, headers, attribute, " + created + " FROM " + table + " ORDER BY id"
}

// queryer is a transaction or a pool.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// news returns the tasks that a transaction has added: those that others do not see.
func news(ctx context.Context, tx, others queryer, query string) ([]tocsin.Info, error) {
	before, err := rowsOf(ctx, others, query)
	if err != nil {
		return nil, err
	}
	now, err := rowsOf(ctx, tx, query)
	var added []tocsin.Info
	for _, r := range now {
		if slices.ContainsFunc(before, func(b row) bool { return b.id == r.id }) {
			continue
		}
		if r.op != outbox.Add { // a cancel, or a reschedule
			added = slices.DeleteFunc(added, func(i tocsin.Info) bool {
				return r.op == outbox.Cancel && i.BizType == r.BizType && i.BizID == r.BizID && i.BizKey == r.BizKey
			})
			continue
		}
		added = append(added, r.Info)
	}
	return added, err
}

// row is a row of an outbox.
type row struct {
	tocsin.Info
	id uint64
	op string
}

func rowsOf(ctx context.Context, from queryer, query string) (all []row, err error) {
	found, err := from.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var r row
		var job uint64
		var bizID string
		var due, created any
		var delay sql.NullInt64
		var key, dedup, headers []byte
		if err := found.Scan(&r.id, &job, &r.op, &r.BizType, &bizID, &key, &due, &delay, &dedup, &headers, &r.Payload, &created); err != nil {
			return nil, err
		}
		r.BizKey, r.DedupKey, r.Headers = string(key), string(dedup), tocsin.Headers(headers)
		r.JobID = tocsin.JobID(job)
		r.BizID, _ = strconv.ParseUint(bizID, 10, 64) // the column is a number
		r.Created, err = timeOf(created)
		r.DueTime = r.Created.Add(time.Duration(delay.Int64) * time.Millisecond)
		if due != nil {
			var errDue error
			r.DueTime, errDue = timeOf(due)
			err = errors.Join(err, errDue)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, found.Err()
}

// timeOf reads a time as a driver gives it: as it is, or as text.
func timeOf(value any) (time.Time, error) {
	switch v := value.(type) {
	case time.Time:
		return v.UTC(), nil
	case []byte:
		return time.Parse("2006-01-02 15:04:05.999999", string(v))
	}
	return time.Time{}, fmt.Errorf("%T is no time", value)
}
