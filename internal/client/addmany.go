package client

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

// AddMany stores rows in few round trips: grouped by server and table, many tables in each transaction, all servers at once. It is
// not atomic: the fate of each row goes to its Out. Rows whose Out has an error already are left out. The error is nil if all are
// stored (or were already, by their dedup_key); else it counts the others by server and wraps one cause of each.
func (c *Client) AddMany(ctx context.Context, rows []Row) error {
	servers := make(map[*server][]*Row, len(c.servers))
	for i := range rows {
		r := &rows[i]
		if r.Out.Err == nil {
			s := c.homeOf(r.table)
			servers[s] = append(servers[s], r)
		}
	}
	var group sync.WaitGroup
	for s, rows := range servers {
		group.Go(func() { c.addAll(ctx, s, rows) })
	}
	group.Wait()
	return c.missed(rows)
}

// addAll stores the rows of one server, several chunks at a time. The layout is
// read anew: the statements of a chunk can't check it.
func (c *Client) addAll(ctx context.Context, s *server, rows []*Row) {
	f, err := s.seen(ctx)
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
	b := &batch{client: c, server: s, facts: f}
	atOnce(chunksATime, split(rows, min(chunkBytes, f.packet/2)), func(rows []*Row) { b.store(ctx, chunk{rows: rows}) })
	b.finish(ctx)
}

// atOnce does something with each item, several at a time.
func atOnce[T any](several int, items []T, do func(T)) {
	next := make(chan T)
	var group sync.WaitGroup
	for range min(several, len(items)) {
		group.Go(func() {
			for item := range next {
				do(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	group.Wait()
}

// sortRows puts rows into the order of their inserts, and so of their tables.
func sortRows(rows []*Row) {
	slices.SortFunc(rows, func(a, b *Row) int {
		return cmp.Or(cmp.Compare(insertOf(a), insertOf(b)), cmp.Compare(a.id, b.id))
	})
}

// admitted leaves out the rows of databases that take no tasks.
func (c *Client) admitted(rows []*Row, f *facts) []*Row {
	return slices.DeleteFunc(rows, func(r *Row) bool {
		err := f.refused[c.layout.DatabaseOf(r.table)]
		if err != nil {
			r.Out = Added{Err: err}
		}
		return err != nil
	})
}

// split cuts rows into chunks of at most chunkRows, and of at most limit bytes
// of text however much of it has to be escaped. A larger row stands alone.
func split(rows []*Row, limit int) [][]*Row {
	var chunks [][]*Row
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

func (r *Row) size() int {
	return rowBytes + 2*(len(r.dedup)+len(r.payload)+len(r.headers)+len(r.bizKey))
}

func fail(rows []*Row, err error) {
	for _, r := range rows {
		r.Out = Added{Err: err}
	}
}

// manyError is what AddMany says of all rows that it did not store.
type manyError struct {
	text   string
	causes []error
}

func (e *manyError) Error() string   { return e.text }
func (e *manyError) Unwrap() []error { return e.causes }

// placeOf says where a row failed. Those that may be stored stand apart: they
// must not be added again unseen.
func (c *Client) placeOf(r *Row) string {
	if errors.Is(r.Out.Err, ErrInvalid) || errors.Is(r.Out.Err, ErrUnknownBizType) {
		return "refused"
	}
	server := c.ServerOf(r.bizID)
	if errors.Is(r.Out.Err, ErrUnknownOutcome) {
		return "in doubt on server " + server
	}
	return "on server " + server
}

// missed sums up what is not stored: how many, where, and one cause of each.
func (c *Client) missed(rows []Row) error {
	counts, first, total := map[string]int{}, map[string]error{}, 0
	for i := range rows {
		r := &rows[i]
		if r.Out.Err == nil {
			continue
		}
		place := c.placeOf(r)
		if counts[place]++; counts[place] == 1 {
			first[place] = r.Out.Err
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
	e.text = fmt.Sprintf("%d of %d tasks are not stored: %s", total, len(rows), strings.Join(parts, ", "))
	return e
}
