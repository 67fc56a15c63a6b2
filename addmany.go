package tocsin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Bounds of AddMany.
const (
	chunkRows   = 1000    // rows of one transaction
	chunkBytes  = 1 << 20 // of one packet, or half of max_allowed_packet
	rowBytes    = 320     // of a row's text, except its key and payload
	chunksATime = 4       // transactions at once on one server
)

// AddMany stores tasks in few round trips: grouped by server and table, many
// tables in each transaction, all servers at once. It is not atomic: the answer
// holds for each task, in the order given, whether it is stored. A task that is
// wrong in itself, or on a server that fails, does not keep the others out. The
// error is nil if all are stored (or were already, by their dedup_key); else it
// counts the others by server and wraps one cause of each.
//
// In is counted by the database's clock as it is read when the call begins.
func (c *Client) AddMany(ctx context.Context, tasks []NewTask) (added []Added, err error) {
	defer c.observeAll("add_many", c.begin(), tasks, &added, &err)
	if err := noContext(ctx); err != nil {
		added = make([]Added, len(tasks))
		return added, failAll(added, err)
	}
	if c.use != nil && len(tasks) > 0 {
		return c.allThrough(ctx, "add_many", tasks, c.addTasks)
	}
	return c.addTasks(ctx, tasks)
}

// addTasks is AddMany without Config.Use.
func (c *Client) addTasks(ctx context.Context, tasks []NewTask) ([]Added, error) {
	added := make([]Added, len(tasks))
	var group sync.WaitGroup
	for s, rows := range c.place(ctx, tasks, added) {
		group.Go(func() { c.addAll(ctx, s, rows) })
	}
	group.Wait()
	return added, c.missed(tasks, added)
}

// place groups the tasks by server. What is wrong with a task goes to its Added.
func (c *Client) place(ctx context.Context, tasks []NewTask, added []Added) map[*server][]*row {
	groups := make(map[*server][]*row, len(c.servers))
	rows := make([]row, len(tasks))
	for i, t := range tasks {
		r, err := c.row(ctx, t)
		if err != nil {
			added[i].Err = err
			continue
		}
		r.out = &added[i]
		rows[i] = r
		s := c.home[c.layout.DatabaseOf(r.table)]
		groups[s] = append(groups[s], &rows[i])
	}
	return groups
}

// addAll stores the rows of one server, several chunks at a time. The layout is
// read anew: the statements of a chunk can't check it.
func (c *Client) addAll(ctx context.Context, s *server, rows []*row) {
	f, err := s.seen(ctx, c.want)
	if err != nil {
		fail(rows, err)
		return
	}
	if rows = c.admitted(rows, f); len(rows) == 0 {
		return
	}
	sortRows(rows)
	unique, rows := splitUnique(rows)
	defer c.addEach(ctx, s, unique)
	if len(rows) == 0 {
		return
	}
	chunks := make(chan []*row)
	b := &batch{client: c, server: s, facts: f}
	var group sync.WaitGroup
	for range chunksATime {
		group.Go(func() {
			for rows := range chunks {
				b.store(ctx, chunk{rows: rows})
			}
		})
	}
	for _, chunk := range split(rows, min(chunkBytes, f.packet/2)) {
		chunks <- chunk
	}
	close(chunks)
	group.Wait()
	b.finish(ctx)
}

// sortRows puts rows into the order of their inserts, and so of their tables.
func sortRows(rows []*row) {
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(insertOf(a), insertOf(b)), cmp.Compare(a.id, b.id))
	})
}

// admitted leaves out the rows of databases that take no tasks.
func (c *Client) admitted(rows []*row, f *facts) []*row {
	return slices.DeleteFunc(rows, func(r *row) bool {
		err := f.refused[c.layout.DatabaseOf(r.table)]
		if err != nil {
			*r.out = Added{Err: err}
		}
		return err != nil
	})
}

// split cuts rows into chunks of at most chunkRows, and of at most limit bytes
// of text however much of it has to be escaped. A larger row stands alone.
func split(rows []*row, limit int) [][]*row {
	var chunks [][]*row
	start, size := 0, 0
	for i, r := range rows {
		n := r.size()
		if i > start && (i-start == chunkRows || size+n > limit) {
			chunks = append(chunks, rows[start:i])
			start, size = i, 0
		}
		size += n
	}
	return append(chunks, rows[start:])
}

func (r *row) size() int {
	return rowBytes + 2*(len(r.dedup)+len(r.payload)+len(r.headers)+len(r.bizKey))
}

func fail(rows []*row, err error) {
	for _, r := range rows {
		*r.out = Added{Err: err}
	}
}

// manyError is what AddMany says of all tasks that it did not store.
type manyError struct {
	text   string
	causes []error
}

func (e *manyError) Error() string   { return e.text }
func (e *manyError) Unwrap() []error { return e.causes }

// placeOf says where a task failed. Those that may be stored stand apart: they
// must not be added again unseen.
func (c *Client) placeOf(t NewTask, err error) string {
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnknownBizType) {
		return "refused"
	}
	server := c.home[c.layout.DatabaseOf(c.layout.TableOf(t.bizID))].Name
	if errors.Is(err, ErrUnknownOutcome) {
		return "in doubt on server " + server
	}
	return "on server " + server
}

// missed sums up what is not stored: how many, where, and one cause of each.
func (c *Client) missed(tasks []NewTask, added []Added) error {
	counts, first, total := map[string]int{}, map[string]error{}, 0
	for i, a := range added {
		if a.Err == nil {
			continue
		}
		place := c.placeOf(tasks[i], a.Err)
		if counts[place]++; counts[place] == 1 {
			first[place] = a.Err
		}
		total++
	}
	if total == 0 {
		return nil
	}
	e := &manyError{}
	var parts []string
	for place, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s (%s)", n, place, first[place]))
		e.causes = append(e.causes, first[place])
	}
	slices.Sort(parts)
	e.text = fmt.Sprintf("%d of %d tasks are not stored: %s", total, len(tasks), strings.Join(parts, ", "))
	return e
}
