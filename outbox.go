package tocsin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/outboxrow"
)

// Outbox is a table in the database of the caller's transactions. AddTx, AddManyTx, CancelTx and RescheduleTx write there
// what they are asked for if the task's table is on another server; a relay moves it to that table after the commit.
// `tocsin outbox apply` makes the table. Without a relay nothing of it is ever delivered: list the outbox in the config of
// `tocsin serve`, or in node.Config, or run `tocsin relay`.
type Outbox struct {
	Table string // database.table, or the table alone if it is in the transaction's own database; in PostgreSQL schema.table, or the table alone if its schema is in the search_path; "": there is none

	// Beside names the one of Servers on which the transactions are: tasks whose table is there are stored directly. "":
	// the transactions are on none of them, and every task goes through the outbox.
	Beside string

	// PostgreSQL says that the transactions are on a PostgreSQL server, of any driver for database/sql. Transactions of pgx
	// itself are for package tocsinpg.
	PostgreSQL bool
}

func (o Outbox) validate(servers []mysql.Spec) error {
	if o.Table == "" {
		if o.Beside != "" {
			return fmt.Errorf("outbox beside %s: name its table", o.Beside)
		}
		if o.PostgreSQL {
			return errors.New("outbox in PostgreSQL: name its table")
		}
		return nil
	}
	if o.Beside != "" && o.PostgreSQL {
		return fmt.Errorf("outbox %s is in PostgreSQL, and so beside no server of tasks: leave Beside out", o.Table)
	}
	if err := outboxrow.CheckTable(o.Table); err != nil {
		return err
	}
	if o.Beside != "" && !slices.ContainsFunc(servers, func(s mysql.Spec) bool { return s.Name == o.Beside }) {
		return fmt.Errorf("outbox %s beside %s: no server has that name", o.Table, o.Beside)
	}
	return nil
}

// outboxSQL writes rows into an outbox; a list of outboxRowSQL follows. It relies on nothing of the session.
const (
	outboxSQL = `INSERT /* tocsin outbox */ INTO {outbox} (op, biz_type, biz_id, biz_key, due_time, delay_ms, dedup_key, headers, attribute)
VALUES `

	// outboxRowSQL is one row. Parameters: op, name of the biz type, biz_id or 0, business key or "", time as text or NULL,
	// milliseconds or NULL, dedup_key or NULL, headers or NULL, attribute.
	outboxRowSQL = `(?, ?, ?, CAST(? AS BINARY), CAST(? AS DATETIME(3)), ?, CAST(? AS BINARY), ` + utf8SQL + `, ` + utf8SQL + `)`

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
	return c.outbox.Table != "" && c.home[c.layout.DatabaseOf(table)].Name != c.outbox.Beside
}

// wish is a row for an outbox.
type wish struct {
	op      string
	bizType string
	bizID   uint64
	bizKey  string
	when    When // not set: none
	dedup   string
	payload string
	headers []byte
}

// wishFor is the add of a task, of which r was made.
func wishFor(t NewTask, r row) wish {
	return wish{outboxrow.Add, t.bizType, t.bizID, t.bizKey, r.when, t.dedup, t.payload, r.headers}
}

// args are the parameters of outboxRowSQL.
func (w wish) args() []any {
	at, in := w.times(timeForm)
	var dedup any
	if w.dedup != "" {
		dedup = []byte(w.dedup)
	}
	return []any{w.op, w.bizType, w.number(), []byte(w.bizKey), at, in, dedup, nullable(w.headers), []byte(w.payload)}
}

// pgArgs are the parameters of pgOutboxRowSQL. The drivers of PostgreSQL take no number above 2^63.
func (w wish) pgArgs() []any {
	at, in := w.times(timeForm + "Z07:00")
	var dedup, headers any
	if w.dedup != "" {
		dedup = w.dedup
	}
	if w.headers != nil {
		headers = string(w.headers)
	}
	return []any{w.op, w.bizType, strconv.FormatUint(w.number(), 10), w.bizKey, at, in, dedup, headers, w.payload}
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
	for what, text := range map[string]string{"payload": w.payload, "dedup_key": w.dedup, "biz_key": w.bizKey} {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return refuse(ErrInvalid, "%s: an outbox in PostgreSQL takes UTF-8 without the character 0", what)
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
	table := outboxrow.Quoted(o.Table)
	if o.PostgreSQL {
		table = outboxrow.QuotedPostgreSQL(o.Table)
	}
	return strings.ReplaceAll(outboxSQL, "{outbox}", table) + strings.Join(rows, ",\n"), args
}

// noDatabase is MySQL's error number for a session without a database.
const noDatabase = 1046

// noOutbox words an error of the outbox.
func (c *Client) noOutbox(err error) error {
	state := sqlState(err)
	var ofMySQL *driver.MySQLError
	switch {
	case c.outbox.PostgreSQL && errors.As(err, &ofMySQL):
		return refuse(ErrOtherServer, "this transaction is on MySQL or MariaDB, and Config.Outbox says that outbox %s is in PostgreSQL (%s)", c.outbox.Table, err)
	case !c.outbox.PostgreSQL && state != "":
		return refuse(ErrOtherServer, "this transaction is on PostgreSQL: set Config.Outbox.PostgreSQL for outbox %s (%s)", c.outbox.Table, err)
	case errors.As(err, &ofMySQL) && ofMySQL.Number == noDatabase:
		return fmt.Errorf("write into outbox %s: %w: name its database in Config.Outbox, as shop.%s", c.outbox.Table, err, c.outbox.Table)
	case mysql.ClassOf(err) == mysql.Missing, mysql.ClassOf(err) == mysql.Denied, slices.Contains(pgMissing, state):
		return refuse(ErrOtherServer, "outbox %s is not on this transaction's server, or this user may not insert there (%s): run `tocsin outbox apply`",
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

// relayRef writes a cancel or reschedule into the outbox. An outbox knows a task by its biz type and biz_id: it has no
// job_id before it is stored.
func (c *Client) relayRef(ctx context.Context, exec Exec, ref Ref, w wish) (Change, error) {
	if ref.err != nil {
		return Change{}, ref.err
	}
	if ref.id != 0 {
		return Change{}, refuse(ErrOtherServer, "%s task %s: its table is on another server, and outbox %s takes a biz type and biz_id: use BizType.Of",
			w.op, ref.id, c.outbox.Table)
	}
	if _, err := c.types.number(ctx, ref.bizType); err != nil {
		return Change{}, err
	}
	w.bizType, w.bizID, w.bizKey = ref.bizType, ref.bizID, ref.bizKey
	err := c.put(ctx, exec, w)
	return Change{Relayed: err == nil}, err
}

// relaysRef reports whether a cancel or reschedule goes through the outbox.
func (c *Client) relaysRef(ref Ref) bool {
	switch {
	case ref.id != 0:
		return ref.id.Table() < c.layout.Total() && c.relays(ref.id.Table())
	case ref.bizID != 0:
		return c.relays(c.layout.TableOf(ref.bizID))
	}
	return false
}
