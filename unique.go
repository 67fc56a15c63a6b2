package tocsin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Span is the part of a task's life during which its unique key is taken. Make one with While.
type Span struct{ statuses uint8 }

// While means: as long as a task has one of the statuses. Pending and Claimed must be among them, since a node need not
// claim a task to deliver it. Done and Dead may be: then the key is taken until such a task is purged. A cancel always
// frees the key.
func While(statuses ...Status) Span {
	var s Span
	for _, status := range statuses {
		s.statuses |= 1 << min(status, 7)
	}
	return s
}

// has reports whether the key of a task in the status is taken.
func (s Span) has(status Status) bool { return s.statuses&(1<<min(status, 7)) != 0 }

// Conflict says what an add does if its unique key is taken.
type Conflict uint8

// The conflicts.
const (
	// Keep leaves the task that is there as it is: Added.Existing.
	Keep Conflict = iota

	// Reschedule gives the task the new action time, as Client.Reschedule does: Added.Existing and Added.Rescheduled. Its
	// payload and headers stay. A task that is claimed, of a strict biz type, gives the key up and goes on, and the new task is
	// stored. So a delivery begins after each such add, whatever was under way.
	Reschedule
)

// uniqueness is what Unique and OnConflict ask for.
type uniqueness struct {
	asked    bool
	while    Span
	conflict Conflict
}

// Unique makes the task the only one of its biz_id, or key, and biz type with this unique key while a task that has it is
// in the given part of its life: tocsin.While(tocsin.Pending, tocsin.Claimed). An add that meets such a task returns
// that one, or does as OnConflict says. A task that is past it gives the key up to the new one, and keeps no key. The unique key is
// bytes, at most MaxDedupKey, the first not zero, and stands where Dedup's stands, so use one key with one of both: Unique takes the key
// of a finished task that Dedup would still find. In AddMany, tasks with a unique key cost a transaction each, and
// those of one key keep their order. An outbox does not take them: AddTx returns ErrOtherServer. A task that has a key by
// Dedup too is refused with ErrInvalid.
func (t NewTask) Unique(key string, while Span) NewTask {
	if t.dedup != "" && !t.unique.asked {
		t.err = cmp.Or(t.err, errTwoKeys)
	}
	t.dedup, t.unique.asked, t.unique.while = key, true, while
	return t
}

// errTwoKeys refuses a task of which nobody can say when it counts as there.
var errTwoKeys = refuse(ErrInvalid, "Dedup and Unique on one task: use one of both")

// OnConflict says what the add does if the unique key is taken. With Reschedule, one call is a debounce: it adds the task, or
// postpones the one that waits.
func (t NewTask) OnConflict(c Conflict) NewTask {
	t.unique.conflict = c
	return t
}

// valid returns what is wrong with the uniqueness of a task with a dedup_key.
func (u uniqueness) valid(key string) error {
	switch {
	case !u.asked && u.conflict == Keep:
		return nil
	case !u.asked:
		return refuse(ErrInvalid, "OnConflict without Unique")
	case key == "":
		return refuse(ErrInvalid, "the unique key is empty")
	case u.conflict > Reschedule:
		return refuse(ErrInvalid, "OnConflict(%d): use Keep or Reschedule", u.conflict)
	case !u.while.has(Pending) || !u.while.has(Claimed):
		return refuse(ErrInvalid, "unique while: Pending and Claimed must be among the statuses, as tasks may be delivered in both")
	case u.while.has(Cancelled) || u.while.statuses>>(Dead+1) != 0:
		return refuse(ErrInvalid, "unique while: use Pending, Claimed, Done and Dead; a cancel frees the key")
	}
	return nil
}

// uniqueOnce stores a row with a unique key over one connection, in a transaction of its own. maybe: an earlier try may
// have stored it.
func (c *Client) uniqueOnce(ctx context.Context, s *server, r *row, maybe bool) (added Added, sent bool, err error) {
	err = mysql.Retry(ctx, func() error {
		return mysql.InTx(ctx, s.DB, func(conn *sql.Conn) (err error) {
			if err := s.admit(ctx, conn, c.want, c.layout.DatabaseOf(r.table)); err != nil {
				return err
			}
			sent = true
			if maybe {
				found, err := c.readBack(ctx, conn, []*row{r})
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
		err = refuse(ErrLayout, "%s takes no tasks: its database is retired, held or not that of cluster %q", c.where(r.table), c.want.Cluster)
	}
	return added, sent, err
}

// uniqueTx is uniqueOnce in a caller's transaction.
func (c *Client) uniqueTx(ctx context.Context, tx Tx, r *row) (Added, error) {
	added, err := c.addUnique(ctx, tx, r, false)
	switch {
	case err == nil:
		return added, nil
	case errors.Is(err, errElsewhere), errors.Is(err, errCollision): // many ids in a row are not taken: the snapshot is older than a retirement
		return Added{}, c.elsewhere(ctx, r.table)
	case errors.Is(err, ErrKeyCollision):
		return Added{}, err
	}
	return Added{}, c.inTx(ctx, "add task to", r.table, err)
}

// noUnique refuses a row with a unique key, which an outbox has no place for.
func (c *Client) noUnique(r *row) error {
	if !r.unique.asked {
		return nil
	}
	return refuse(ErrOtherServer, "a task with a unique key can't go through outbox %s: use Add, or Dedup", c.outbox.Table)
}

// addUnique stores a row with a unique key in a transaction, or does what it says on a conflict. The insert locks a task
// that is in its way exclusively, so that transactions which meet there wait for each other. What it reports is not
// enough to know what it did, as a caller's session may count found rows; but if it counts none, it stored nothing, and a
// holder with r's id is another client's. maybe: an earlier try may have stored r.
func (c *Client) addUnique(ctx context.Context, in Tx, r *row, maybe bool) (Added, error) {
	query, ours := c.ours(addUniqueSQL, r.table)
	text, micros := r.when.args()
	for range maxCollisions {
		n, err := execute(ctx, in, query, r.addArgs(append([]any{text, micros, text, micros}, ours...)...)...)
		if err != nil {
			return Added{}, err
		}
		holder, err := c.holder(ctx, in, r)
		switch {
		case err != nil:
			return Added{}, err
		case holder == nil && n == 0 && !c.isOurs(ctx, in, r.table):
			return Added{}, errElsewhere
		case holder == nil: // the id is taken
			r.id = c.ids.next(time.Now(), r.table)
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

// isOurs reports whether the database of a table takes tasks.
func (c *Client) isOurs(ctx context.Context, in Tx, table int) bool {
	query, args := c.ours(activeSQL, table)
	var active int
	return queryRow(ctx, in, query, args...)(&active) == nil && active > 0
}

// ring rings the doorbell for a task if it is near.
func (c *Client) ring(ctx context.Context, in Tx, when When, table int, id JobID) error {
	if !c.near(when) {
		return nil
	}
	_, err := execute(ctx, in, c.layout.render(ringSQL, table), table, uint64(id))
	return err
}

// holder locks the task that has r's key; nil: there is none.
func (c *Client) holder(ctx context.Context, in Tx, r *row) (*stored, error) {
	s := &stored{bizID: r.bizID, bizType: r.bizType, dedup: r.dedup}
	query := c.layout.render(holderSQL, r.table)
	err := queryRow(ctx, in, query, r.bizID, r.bizType, r.dedup)(&s.id, &s.status, &s.bizKey, &s.strict)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

// meetHolder does what has to be done with the task that has r's key, which is locked. met: r must not be stored any more.
func (c *Client) meetHolder(ctx context.Context, in Tx, r *row, s *stored) (added Added, met bool, err error) {
	added, err = r.existing(s)
	debounced := r.unique.conflict == Reschedule && (s.status == Pending || s.status == Claimed)
	switch {
	case err != nil:
		return Added{}, true, err
	case debounced && !s.strict:
		added.Rescheduled, added.Status = true, Pending
		return added, true, c.postpone(ctx, in, r, s.id)
	case r.unique.while.has(s.status) && !debounced:
		return added, true, nil
	}
	_, err = execute(ctx, in, c.layout.render(freeSQL, r.table), uint64(s.id))
	return Added{}, false, err
}

// postpone gives a task, which is locked and not final, r's action time.
func (c *Client) postpone(ctx context.Context, in Tx, r *row, id JobID) error {
	text, micros := r.when.args()
	query := strings.ReplaceAll(rescheduleSQL+ofIDSQL+openSQL, "{index}", "PRIMARY")
	if _, err := execute(ctx, in, c.layout.render(query, r.table), text, micros, text, micros, uint64(id)); err != nil {
		return err
	}
	return c.ring(ctx, in, r.when, r.table, id)
}

// splitUnique divides rows into those with a unique key and the others.
func splitUnique(rows []*row) (unique, others []*row) {
	if !slices.ContainsFunc(rows, func(r *row) bool { return r.unique.asked }) {
		return nil, rows
	}
	for _, r := range rows {
		if r.unique.asked {
			unique = append(unique, r)
		} else {
			others = append(others, r)
		}
	}
	return unique, others
}

// addEach stores rows with unique keys, which are of one server, some at a time. Those of one key come one after the other,
// in the order of the call: the last of them has the last word. Once the server can't be reached, no more are tried.
func (c *Client) addEach(ctx context.Context, s *server, rows []*row) {
	each := make(chan []*row)
	var gone atomic.Bool
	var group sync.WaitGroup
	for range chunksATime {
		group.Go(func() {
			for same := range each {
				for _, r := range same {
					*r.out = c.addUnless(ctx, &gone, s, r)
				}
			}
		})
	}
	for _, same := range byUniqueKey(rows) {
		each <- same
	}
	close(each)
	group.Wait()
}

// addUnless stores a row of AddMany, unless its server is gone.
func (c *Client) addUnless(ctx context.Context, gone *atomic.Bool, s *server, r *row) Added {
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
func byUniqueKey(rows []*row) (groups [][]*row) {
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
