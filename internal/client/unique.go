package client

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// uniqueOnce stores a row with a unique key over one connection, in a transaction of its own. maybe: an earlier try may
// have stored it.
func (c *Client) uniqueOnce(ctx context.Context, s *server, r *Row, maybe bool) (added Added, sent bool, err error) {
	err = mysql.Retry(ctx, func() error {
		return mysql.InTx(ctx, s.DB, func(conn *sql.Conn) (err error) {
			if err := s.admit(ctx, conn, c.layout.DatabaseOf(r.table)); err != nil {
				return err
			}
			sent = true
			if maybe {
				found, err := c.readBack(ctx, conn, []*Row{r})
				if err != nil {
					return err
				}
				if found.has(r) {
					added = Added{JobID: r.id}
					return nil
				}
			}
			added, err = c.addUnique(ctx, conn, r, maybe)
			return err
		})
	})
	if errors.Is(err, errElsewhere) {
		err = Refuse(ErrLayout, "%s takes no tasks: its database is retired, held or not that of cluster %q", c.Where(r.table), c.want.Cluster)
	}
	return added, sent, err
}

// uniqueTx is uniqueOnce in a caller's transaction.
func (c *Client) uniqueTx(ctx context.Context, tx Tx, r *Row) (Added, error) {
	added, err := c.addUnique(ctx, tx, r, false)
	switch {
	case err == nil:
		return added, nil
	case errors.Is(err, errElsewhere):
		return Added{}, c.elsewhere(ctx, r.table)
	case errors.Is(err, ErrKeyCollision), errors.Is(err, errCollision):
		return Added{}, err
	}
	return Added{}, c.inTx(ctx, tx, "add task to", r.table, err)
}

// addUnique stores a row with a unique key in a transaction, or does what it says on a conflict. The insert locks a task
// that is in its way exclusively, so that transactions which meet there wait for each other. What it reports is not
// enough to know what it did, as a caller's session may count found rows; but if it counts none, it stored nothing: the
// database may not be ours, and a holder with r's id is another client's. maybe: an earlier try may have stored r.
func (c *Client) addUnique(ctx context.Context, in Tx, r *Row, maybe bool) (Added, error) {
	query, ours := c.ours(addUniqueSQL, r.table)
	text, micros := r.when.Args()
	for range maxCollisions {
		n, err := Execute(ctx, in, query, r.addArgs(append([]any{text, micros, text, micros}, ours...)...)...)
		if err == nil && n == 0 {
			err = c.takesTasks(ctx, in, r.table)
		}
		if err != nil {
			return Added{}, err
		}
		holder, err := c.holder(ctx, in, r)
		switch {
		case err != nil:
			return Added{}, err
		case holder == nil: // the id is taken
			r.id = c.IDs.Next(time.Now(), r.table)
			continue
		case holder.id == r.id && (n > 0 || maybe):
			return Added{JobID: r.id}, c.ring(ctx, in, r.when, r.table, r.id)
		}
		if added, met, err := c.meetHolder(ctx, in, r, holder); met || err != nil {
			return added, err
		}
	}
	return Added{}, errCollision
}

// takesTasks returns errElsewhere if the database of a table takes no tasks.
func (c *Client) takesTasks(ctx context.Context, in Tx, table int) error {
	query, args := c.ours(activeSQL, table)
	var active int
	err := QueryRow(ctx, in, query, args...)(&active)
	if err == nil && active == 0 {
		return errElsewhere
	}
	return err
}

// ring rings the doorbell for a task if it is near.
func (c *Client) ring(ctx context.Context, in Tx, when When, table int, id uint64) error {
	if !c.near(when) {
		return nil
	}
	_, err := Execute(ctx, in, c.layout.Render(ringSQL, table), table, id)
	return err
}

// holder locks the task that has r's key; nil: there is none.
func (c *Client) holder(ctx context.Context, in Tx, r *Row) (*stored, error) {
	s := &stored{bizID: r.bizID, bizType: r.bizType, dedup: r.dedup}
	query := c.layout.Render(holderSQL, r.table)
	err := QueryRow(ctx, in, query, r.bizID, r.bizType, r.dedup)(&s.id, &s.status, &s.bizKey, &s.strict)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

// meetHolder does what has to be done with the task that has r's key, which is locked. met: r must not be stored any more.
func (c *Client) meetHolder(ctx context.Context, in Tx, r *Row, s *stored) (added Added, met bool, err error) {
	added, err = r.existing(s)
	debounced := r.unique.Conflict == reschedule && (s.status == pending || s.status == claimed)
	switch {
	case err != nil:
		return Added{}, true, err
	case debounced && !s.strict:
		added.Rescheduled, added.Status = true, pending
		return added, true, c.postpone(ctx, in, r, s.id)
	case r.unique.While.has(s.status) && !debounced:
		return added, true, nil
	}
	_, err = Execute(ctx, in, c.layout.Render(freeSQL, r.table), s.id)
	return Added{}, false, err
}

// postpone gives a task, which is locked and not final, r's action time.
func (c *Client) postpone(ctx context.Context, in Tx, r *Row, id uint64) error {
	text, micros := r.when.Args()
	query := strings.ReplaceAll(RescheduleSQL+ofIDSQL+openSQL, "{index}", "PRIMARY")
	if _, err := Execute(ctx, in, c.layout.Render(query, r.table), text, micros, text, micros, id); err != nil {
		return err
	}
	return c.ring(ctx, in, r.when, r.table, id)
}

// splitUnique divides rows into those with a unique key and the others.
func splitUnique(rows []*Row) (unique, others []*Row) {
	if !slices.ContainsFunc(rows, func(r *Row) bool { return r.unique.Asked }) {
		return nil, rows
	}
	for _, r := range rows {
		if r.unique.Asked {
			unique = append(unique, r)
		} else {
			others = append(others, r)
		}
	}
	return unique, others
}

// addEach stores rows with unique keys, which are of one server, some at a time. Those of one key come one after the other,
// in the order of the call: the last of them has the last word. Once the server can't be reached, no more are tried.
func (c *Client) addEach(ctx context.Context, s *server, rows []*Row) {
	var gone atomic.Bool
	atOnce(chunksATime, byUniqueKey(rows), func(same []*Row) {
		for _, r := range same {
			r.Out = c.addUnless(ctx, &gone, s, r)
		}
	})
}

// addUnless stores a row of AddMany, unless its server is gone.
func (c *Client) addUnless(ctx context.Context, gone *atomic.Bool, s *server, r *Row) Added {
	if gone.Load() {
		return Added{Err: fmt.Errorf("server %s is %w: an earlier task of the call could not be stored there", s.Name, ErrUnreachable)}
	}
	added, err := c.addRow(ctx, s, r)
	if mysql.ClassOf(err).OfServer() {
		gone.Store(true)
	}
	added.Err = err
	return added
}

// byUniqueKey groups rows by their unique keys and keeps their order.
func byUniqueKey(rows []*Row) (groups [][]*Row) {
	type key struct {
		bizID, bizType uint64
		dedup          string
	}
	at := make(map[key]int, len(rows))
	for _, r := range rows {
		k := key{r.bizID, r.bizType, string(r.dedup)}
		i, some := at[k]
		if !some {
			i, groups = len(groups), append(groups, nil)
			at[k] = i
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}
