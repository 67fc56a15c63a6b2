package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
)

// Outbox is a table in the database of the caller's transactions; see tocsin.Outbox.
type Outbox struct {
	Table      string
	Beside     string
	PostgreSQL bool
}

// Exec runs one statement in a transaction of the caller's.
type Exec func(ctx context.Context, statement string, args ...any) error

// outboxSQL writes rows into an outbox; a list of outboxRowSQL follows. It relies on nothing of the session.
const (
	outboxSQL = `INSERT /* tocsin outbox */ INTO {outbox} (op, biz_type, biz_id, biz_key, due_time, delay_ms, dedup_key, headers, attribute)
VALUES `

	// outboxRowSQL is one row. Parameters: op, name of the biz type, biz_id or 0, business key or "", time as text or NULL,
	// milliseconds or NULL, dedup_key or NULL, headers or NULL, attribute.
	outboxRowSQL = `(?, ?, ?, ` + bytesSQL + `, CAST(? AS DATETIME(3)), ?, CAST(? AS BINARY), ` + utf8OrNullSQL + `, ` + utf8SQL + `)`

	// pgOutboxRowSQL is one row in PostgreSQL, whose parameters have numbers. They are the same, biz_id and time as text.
	pgOutboxRowSQL = `(CAST($%d AS varchar), CAST($%d AS varchar), CAST($%d AS numeric), CAST($%d AS varchar), CAST($%d AS timestamptz), CAST($%d AS bigint), CAST($%d AS varchar), CAST($%d AS varchar), CAST($%d AS varchar))`
)

// Bounds of one statement that writes into an outbox. A caller's connection may have a small max_allowed_packet.
const (
	outboxRows  = 500
	outboxBytes = 1 << 18
)

// relays reports whether what is asked of a table in a caller's transaction goes through the outbox. It depends on the
// config alone: a statement that fails would end the transaction on some servers.
func (c *Client) relays(table int) bool {
	return c.outbox.Table != "" && c.homeOf(table).Name != c.outbox.Beside
}

// wish is a row for an outbox.
type wish struct {
	op      string
	bizType string
	bizID   uint64
	bizKey  string
	when    When // not set: none
	dedup   []byte
	payload []byte
	headers []byte
}

// wishFor is the add of a row, whose fate it notes. An outbox has no place for a unique key.
func (c *Client) wishFor(r *Row) (wish, error) {
	if r.unique.Asked {
		return wish{}, Refuse(ErrOtherServer, "a task with a unique key can't go through outbox %s: use Add, or Dedup", c.outbox.Table)
	}
	r.Out.Relayed = true
	return wish{outbox.Add, r.name, r.bizID, r.bizKey, r.when, r.dedup, r.payload, r.headers}, nil
}

// Relay adds rows through the outbox of a transaction.
func (c *Client) Relay(ctx context.Context, exec Exec, rows []Row) (err error) {
	wishes := make([]wish, len(rows))
	for i := range rows {
		if wishes[i], err = c.wishFor(&rows[i]); err != nil {
			return err
		}
	}
	return c.put(ctx, exec, wishes...)
}

// args are the parameters of outboxRowSQL.
func (w wish) args() []any {
	at, in := w.times(TimeForm)
	payload := w.payload
	if payload == nil { // of a cancel or reschedule
		payload = []byte{}
	}
	return []any{w.op, w.bizType, w.number(), []byte(w.bizKey), at, in, nullable(w.dedup), nullable(w.headers), payload}
}

// pgArgs are the parameters of pgOutboxRowSQL. The drivers of PostgreSQL take no number above 2^63.
func (w wish) pgArgs() []any {
	at, in := w.times(TimeForm + "Z07:00")
	var dedup, headers any
	if w.dedup != nil {
		dedup = string(w.dedup)
	}
	if w.headers != nil {
		headers = string(w.headers)
	}
	return []any{w.op, w.bizType, strconv.FormatUint(w.number(), 10), w.bizKey, at, in, dedup, headers, string(w.payload)}
}

// number is the biz_id that stands in the row: 0 beside a key, from which the relay knows it.
func (w wish) number() uint64 {
	if w.bizKey != "" {
		return 0
	}
	return w.bizID
}

// times are the time as text and the milliseconds of the delay; nil: it has none.
func (w wish) times(form string) (at, in any) {
	switch {
	case !w.when.set:
	case w.when.absolute():
		at = w.when.at.Format(form)
	default:
		in = w.when.in.Milliseconds()
	}
	return at, in
}

// pgProblem returns what PostgreSQL would refuse, which ends the transaction there; nil: nothing.
func (w wish) pgProblem() error {
	for what, text := range map[string]string{"payload": string(w.payload), "dedup_key": string(w.dedup), "biz_key": w.bizKey} {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return Refuse(ErrInvalid, "%s: an outbox in PostgreSQL takes UTF-8 without the character 0", what)
		}
	}
	return nil
}

func (w wish) size() int {
	return len(w.payload) + len(w.headers) + len(w.dedup) + len(w.bizKey) + 200
}

// execIn runs statements in a transaction of database/sql.
func execIn(tx Tx) Exec {
	return func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}
}

// put writes into the outbox of the caller's transaction. It sends nothing if a row is refused beforehand.
func (c *Client) put(ctx context.Context, exec Exec, wishes ...wish) error {
	if c.outbox.PostgreSQL {
		for _, w := range wishes {
			if err := w.pgProblem(); err != nil {
				return err
			}
		}
	}
	for len(wishes) > 0 {
		n, size := 0, 0
		for n < len(wishes) && n < outboxRows && (n == 0 || size+wishes[n].size() <= outboxBytes) {
			size += wishes[n].size()
			n++
		}
		query, args := c.outbox.insert(wishes[:n])
		if err := exec(ctx, query, args...); err != nil {
			return c.noOutbox(err)
		}
		wishes = wishes[n:]
	}
	return nil
}

// insert writes the statement that stores rows, and its parameters.
func (o Outbox) insert(wishes []wish) (query string, args []any) {
	rows := make([]string, len(wishes))
	for i, w := range wishes {
		if !o.PostgreSQL {
			rows[i], args = outboxRowSQL, append(args, w.args()...)
			continue
		}
		places := make([]any, 0, 9)
		for _, arg := range w.pgArgs() {
			args = append(args, arg)
			places = append(places, len(args))
		}
		rows[i] = fmt.Sprintf(pgOutboxRowSQL, places...)
	}
	table := outbox.Quoted(o.Table)
	if o.PostgreSQL {
		table = outbox.QuotedPostgreSQL(o.Table)
	}
	return strings.ReplaceAll(outboxSQL, "{outbox}", table) + strings.Join(rows, ",\n"), args
}

// noDatabase is MySQL's error number for a session without a database.
const noDatabase = 1046

// noOutbox words an error of the outbox.
func (c *Client) noOutbox(err error) error {
	state := sqlState(err)
	ofMySQL := mysql.Number(err)
	switch {
	case c.outbox.PostgreSQL && ofMySQL != 0:
		return Refuse(ErrOtherServer, "this transaction is on MySQL or MariaDB, and Config.Outbox says that outbox %s is in PostgreSQL (%s)", c.outbox.Table, err)
	case !c.outbox.PostgreSQL && state != "":
		return Refuse(ErrOtherServer, "this transaction is on PostgreSQL: set Config.Outbox.PostgreSQL for outbox %s (%s)", c.outbox.Table, err)
	case ofMySQL == noDatabase:
		return fmt.Errorf("write into outbox %s: %w: name its database in Config.Outbox, as shop.%s", c.outbox.Table, err, c.outbox.Table)
	case mysql.ClassOf(err) == mysql.Missing, mysql.ClassOf(err) == mysql.Denied, slices.Contains(pgMissing, state):
		return Refuse(ErrOtherServer, "outbox %s is not on this transaction's server, or this user may not insert there (%s): run `tocsin outbox apply`",
			c.outbox.Table, err)
	}
	return fmt.Errorf("write into outbox %s: %w", c.outbox.Table, err)
}

// pgMissing are PostgreSQL's codes for a table or schema that is not there, and for a right that the user lacks.
var pgMissing = []string{"42P01", "3F000", "42501"}

// sqlState returns the code that PostgreSQL gave an error, by whatever driver; "": it is no error of PostgreSQL.
func sqlState(err error) string {
	var said interface{ SQLState() string }
	if errors.As(err, &said) {
		return said.SQLState()
	}
	return ""
}

// RelayChange is Change through the outbox of a transaction. An outbox knows a task by its biz type and biz_id: it has no
// job_id before it is stored.
func (c *Client) RelayChange(ctx context.Context, exec Exec, op string, ref Ref, when When) (Change, error) {
	if op == outbox.Reschedule {
		if err := when.Valid(time.Now()); err != nil {
			return Change{}, err
		}
	}
	switch {
	case ref.Err != nil:
		return Change{}, ref.Err
	case ref.ID != 0:
		return Change{}, Refuse(ErrOtherServer, "%s task %d: its table is on another server, and outbox %s takes a biz type and biz_id: use BizType.Of",
			op, ref.ID, c.outbox.Table)
	case ref.BizID == 0:
		return Change{}, Refuse(ErrInvalid, "%s: no job_id and no biz_id", op)
	}
	if _, err := c.Types.number(ctx, ref.BizType); err != nil {
		return Change{}, err
	}
	err := c.put(ctx, exec, wish{op: op, bizType: ref.BizType, bizID: ref.BizID, bizKey: ref.BizKey, when: when})
	return Change{Relayed: err == nil}, err
}

// relaysRef reports whether a cancel or reschedule goes through the outbox.
func (c *Client) relaysRef(ref Ref) bool {
	switch {
	case ref.ID != 0:
		return ids.Table(ref.ID) < c.layout.Total() && c.relays(ids.Table(ref.ID))
	case ref.BizID != 0:
		return c.relays(c.layout.TableOf(ref.BizID))
	}
	return false
}
