package tocsin

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/outboxrow"
)

// Outbox is a table in the database of the caller's transactions. AddTx, AddManyTx, CancelTx and RescheduleTx write there
// what they are asked for if the task's table is on another server; a relay moves it to that table after the commit.
// `tocsin outbox apply` makes the table. Without a relay nothing of it is ever delivered: list the outbox in the config of
// `tocsin serve`, or in node.Config, or run `tocsin relay`.
type Outbox struct {
	Table string // database.table, or the table alone if it is in the transaction's own database; "": there is none

	// Beside names the one of Servers on which the transactions are: tasks whose table is there are stored directly. "":
	// the transactions are on none of them, and every task goes through the outbox.
	Beside string
}

func (o Outbox) validate(servers []mysql.Spec) error {
	if o.Table == "" {
		if o.Beside != "" {
			return fmt.Errorf("outbox beside %s: name its table", o.Beside)
		}
		return nil
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
	outboxSQL = `INSERT /* tocsin outbox */ INTO {outbox} (op, biz_type, biz_id, due_time, delay_ms, dedup_key, attribute)
VALUES `

	// outboxRowSQL is one row. Parameters: op, name of the biz type, biz_id, time as text or NULL, milliseconds or NULL,
	// key or NULL, attribute.
	outboxRowSQL = `(?, ?, ?, CAST(? AS DATETIME(3)), ?, CAST(? AS BINARY), CONVERT(CAST(? AS BINARY) USING utf8mb4))`
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
	op        string
	bizType   string
	bizID     uint64
	when      When // not set: none
	dedup     string
	attribute string
}

func wishFor(t NewTask) wish {
	return wish{outboxrow.Add, t.bizType, t.bizID, t.when, t.dedup, t.attribute}
}

// args are the parameters of outboxRowSQL.
func (w wish) args() []any {
	var at, in, dedup any
	switch {
	case !w.when.set:
	case w.when.absolute():
		at = w.when.at.Format(timeForm)
	default:
		in = w.when.in.Milliseconds()
	}
	if w.dedup != "" {
		dedup = []byte(w.dedup)
	}
	return []any{w.op, w.bizType, w.bizID, at, in, dedup, []byte(w.attribute)}
}

func (w wish) size() int { return len(w.attribute) + len(w.dedup) + 200 }

// putTx writes into the outbox of the caller's transaction.
func (c *Client) putTx(ctx context.Context, tx *sql.Tx, wishes ...wish) error {
	for len(wishes) > 0 {
		n, size := 0, 0
		for n < len(wishes) && n < outboxRows && (n == 0 || size+wishes[n].size() <= outboxBytes) {
			size += wishes[n].size()
			n++
		}
		var args []any
		for _, w := range wishes[:n] {
			args = append(args, w.args()...)
		}
		query := strings.ReplaceAll(outboxSQL, "{outbox}", outboxrow.Quoted(c.outbox.Table)) +
			strings.TrimSuffix(strings.Repeat(outboxRowSQL+",\n", n), ",\n")
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return c.noOutbox(err)
		}
		wishes = wishes[n:]
	}
	return nil
}

// noOutbox words an error of the outbox.
func (c *Client) noOutbox(err error) error {
	switch mysql.ClassOf(err) {
	case mysql.Missing, mysql.Denied:
		return refuse(ErrOtherServer, "outbox %s is not on this transaction's server, or this user may not insert there (%s): run `tocsin outbox apply`",
			c.outbox.Table, err)
	}
	return fmt.Errorf("write into outbox %s: %w", c.outbox.Table, err)
}

// relayRef writes a cancel or reschedule into the outbox. An outbox knows a task by its biz type and biz_id: it has no
// job_id before it is stored.
func (c *Client) relayRef(ctx context.Context, tx *sql.Tx, ref Ref, w wish) (Change, error) {
	if ref.id != 0 {
		return Change{}, refuse(ErrOtherServer, "%s task %s: its table is on another server, and outbox %s takes a biz type and biz_id: use BizType.Of",
			w.op, ref.id, c.outbox.Table)
	}
	if _, err := c.types.number(ctx, ref.bizType); err != nil {
		return Change{}, err
	}
	w.bizType, w.bizID = ref.bizType, ref.bizID
	err := c.putTx(ctx, tx, w)
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
