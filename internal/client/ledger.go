package client

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
)

// origin is the row of an outbox that a task comes from.
type origin struct {
	key   outbox.Key
	until time.Time // it must not be moved later, by the server's clock
}

// ledger notes what was moved from one outbox, in the database of the task.
type ledger struct {
	client   *Client
	identity string
}

// ledgerSQL notes rows; a list of them follows. A row that stands there already is a duplicate. If one comes too late, the
// first has no gmt_create, and all are refused: so a relay that hung between the read and this does nothing.
const (
	ledgerSQL = `INSERT /* tocsin relayed */ INTO {database}.relayed (outbox, id, created, job_id, gmt_create)
VALUES `

	ledgerUntilSQL = `IF(UTC_TIMESTAMP(3) < '{until}', UTC_TIMESTAMP(3), NULL)`
)

// ledgerAddedSQL notes that a row added no task, as one with its dedup_key was there; a list of keys follows. Primary key.
const ledgerAddedSQL = `UPDATE /* tocsin relayed existing */ {database}.relayed
SET job_id = 0
WHERE outbox = '{outbox}'
    AND id IN ({ids})
    AND (id, created) IN (`

// ledgerReadSQL finds rows of a list that were moved; a list of ids follows. Primary key.
const ledgerReadSQL = `SELECT /* tocsin relayed read */
    id,
    CAST(created AS CHAR)
FROM {database}.relayed FORCE INDEX (PRIMARY)
WHERE outbox = ?
    AND id IN (`

// values writes the ledger's rows of tasks, which are of one database.
func (l *ledger) values(rows []*Row) []byte {
	b := make([]byte, 0, 256+128*len(rows))
	b = append(b, l.client.layout.Render(ledgerSQL, rows[0].table)...)
	until := rows[0].origin.until
	for _, r := range rows {
		if r.origin.until.Before(until) {
			until = r.origin.until
		}
	}
	for i, r := range rows {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(append(append(b, "('"...), l.identity...), "', "...)
		b = append(strconv.AppendUint(b, r.origin.key.ID, 10), ", '"...)
		b = append(r.origin.key.Created.AppendFormat(b, microForm), "', "...)
		b = append(strconv.AppendUint(b, r.id, 10), ", "...)
		if i == 0 {
			b = append(b, strings.Replace(ledgerUntilSQL, "{until}", until.UTC().Format(TimeForm), 1)...)
		} else {
			b = append(b, "UTC_TIMESTAMP(3)"...)
		}
		b = append(b, ')')
	}
	return b
}

// existing writes the update for rows that added nothing.
func (l *ledger) existing(rows []*Row) string {
	keys := make([]outbox.Key, len(rows))
	for i, r := range rows {
		keys[i] = r.origin.key
	}
	return l.ofKeys(ledgerAddedSQL, keys, l.client.layout.DatabaseOf(rows[0].table))
}

// ofKeys fills in the ids and ends the statement with the keys: MariaDB finds no rows by a list of keys alone.
func (l *ledger) ofKeys(statement string, keys []outbox.Key, database int) string {
	ids, pairs := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		ids[i] = strconv.FormatUint(k.ID, 10)
		pairs[i] = fmt.Sprintf("(%d, '%s')", k.ID, k.Created.Format(microForm))
	}
	query := strings.NewReplacer("{outbox}", l.identity, "{ids}", strings.Join(ids, ", ")).Replace(statement)
	return l.client.layout.Render(query, database*l.client.layout.Tables) + strings.Join(pairs, ", ") + ")"
}

// errMovedBefore says that a row stands in the ledger.
var errMovedBefore = errors.New("it was moved before")

// insert notes one row.
func (l *ledger) insert(ctx context.Context, conn *sql.Conn, r *Row) error {
	_, err := conn.ExecContext(ctx, string(l.values([]*Row{r})))
	return l.meaning(err)
}

// ledgerRemoveSQL takes a row back, in the transaction that inserted it. Parameters: identity, id, created. Primary key.
const ledgerRemoveSQL = `DELETE /* tocsin relayed remove */ FROM {database}.relayed
WHERE outbox = ?
    AND id = ?
    AND created = ?`

// remove takes a row back that insert has noted.
func (l *ledger) remove(ctx context.Context, conn *sql.Conn, r *Row) error {
	_, err := conn.ExecContext(ctx, l.client.layout.Render(ledgerRemoveSQL, r.table), l.identity, r.origin.key.ID, r.origin.key.Created.Format(microForm))
	return err
}

// meaning translates an error of the ledger's insert.
func (l *ledger) meaning(err error) error {
	switch {
	case mysql.ClassOf(err) == mysql.Duplicate:
		return errMovedBefore
	case mysql.NullRefused(err):
		return errStale
	}
	return err
}

// unmoved leaves out rows that stand in the ledger, all of one database, and notes their fate.
func (l *ledger) unmoved(ctx context.Context, conn *sql.Conn, rows []*Row) (rest []*Row, err error) {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = fmt.Sprint(r.origin.key.ID)
	}
	query := l.client.layout.Render(ledgerReadSQL, rows[0].table) + strings.Join(ids, ", ") + ")"
	found, err := conn.QueryContext(ctx, query, l.identity)
	moved := map[string]bool{}
	err = scanEach(found, err, func(scan func(...any) error) error {
		var id uint64
		var created string
		err := scan(&id, &created)
		moved[fmt.Sprint(id, created)] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if moved[fmt.Sprint(r.origin.key.ID, r.origin.key.Created.Format(microForm))] {
			r.Out = Added{Existing: true}
		} else {
			rest = append(rest, r)
		}
	}
	return rest, nil
}

// Bounds of the ledger's upkeep.
const (
	ledgerPage = 1000
	// ledgerKept is how long a row of the ledger stays after its row was seen to be gone from the outbox. It is far more than
	// freshFor: no relay holds a copy of the row any more.
	ledgerKept = 10 * time.Minute
)

// ledgerOpenSQL reads the rows of an outbox that were moved a minute ago, or longer, and are not known to be gone from it.
// Parameters: identity; an id, for rows above it; limit. Index idx_gone, which holds the primary key too.
const ledgerOpenSQL = `SELECT /* tocsin relayed open */
    id,
    CAST(created AS CHAR)
FROM {database}.relayed FORCE INDEX (idx_gone)
WHERE gone IS NULL
    AND outbox = ?
    AND id > ?
    AND gmt_create < UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE
ORDER BY id
LIMIT ?`

// ledgerGoneSQL notes rows that are gone from their outbox; a list of keys follows. Primary key.
const ledgerGoneSQL = `UPDATE /* tocsin relayed gone */ {database}.relayed FORCE INDEX (PRIMARY)
SET gone = UTC_TIMESTAMP(3)
WHERE outbox = '{outbox}'
    AND id IN ({ids})
    AND gone IS NULL
    AND (id, created) IN (`

// ledgerForgetSQL deletes rows that have been gone for long, of any outbox. Parameters: seconds; limit. Index idx_gone.
const ledgerForgetSQL = `DELETE /* tocsin relayed forget */ FROM {database}.relayed
WHERE gone < UTC_TIMESTAMP(3) - INTERVAL ? SECOND
ORDER BY gone
LIMIT ?`

// Upkeep keeps the ledger of one outbox small, in one database: rows whose outbox row is gone are noted, and forgotten
// ten minutes later. present returns which rows the outbox still has.
func (c *Client) Upkeep(ctx context.Context, identity string, database int, present func(context.Context, []outbox.Key) (map[outbox.Key]bool, error)) error {
	l := &ledger{client: c, identity: identity}
	for after, more := uint64(0), true; more; {
		keys, err := l.open(ctx, database, after)
		if err != nil || len(keys) == 0 {
			return errors.Join(err, l.forget(ctx, database))
		}
		after, more = keys[len(keys)-1].ID, len(keys) == ledgerPage
		there, err := present(ctx, keys)
		if err != nil {
			return err
		}
		keys = slices.DeleteFunc(keys, func(k outbox.Key) bool { return there[k] })
		if len(keys) == 0 {
			continue
		}
		if _, err := c.home[database].exec(ctx, database, l.ofKeys(ledgerGoneSQL, keys, database)); err != nil {
			return err
		}
	}
	return l.forget(ctx, database)
}

func (l *ledger) open(ctx context.Context, database int, after uint64) (keys []outbox.Key, err error) {
	args := []any{l.identity, after, ledgerPage}
	err = l.client.Read(ctx, database*l.client.layout.Tables, ledgerOpenSQL, args, func(scan func(...any) error) error {
		var key outbox.Key
		var created string
		err := scan(&key.ID, &created)
		if err == nil {
			key.Created, err = time.Parse(microForm, created)
		}
		keys = append(keys, key)
		return err
	})
	return keys, err
}

func (l *ledger) forget(ctx context.Context, database int) error {
	query := l.client.layout.Render(ledgerForgetSQL, database*l.client.layout.Tables)
	for {
		n, err := l.client.home[database].exec(ctx, database, query, int(ledgerKept.Seconds()), ledgerPage)
		if err != nil || n < ledgerPage {
			return err
		}
	}
}
