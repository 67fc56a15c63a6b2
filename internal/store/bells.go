package store

import (
	"context"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
)

// bells reads one database's doorbell, in order of id. {spans} are ranges of id.
var bells = prepare(`
(SELECT /* tocsin bells */
    {database_no},
    id,
    job_id,
    biz_type,
    action_time
FROM {database}.doorbell FORCE INDEX (PRIMARY)
WHERE {spans}
ORDER BY id
LIMIT {limit})`)

// lastBell reads the highest id of one database's doorbell; 0: never rung, or
// purged.
var lastBell = prepare(`
SELECT /* tocsin last_bell */
    {database_no},
    IFNULL(MAX(id), 0)
FROM {database}.doorbell`)

// Bells reads the doorbells of a server's databases in one round trip. For each
// database it returns the unheard bells (all bells if unheard does not name the
// database): at most limit of the missing ones, in order of id, and then at most
// limit of the later ones, in order of id. A bell is a hint: its row may have changed
// or be gone. A database that can't be read is named in the error and hides no other;
// for deafFor it is left out.
func (s *Store) Bells(ctx context.Context, server int, unheard map[int]Unheard, limit int) (map[int][]Bell, error) {
	text := func(b []byte, database int) []byte {
		ask := unheard[database]
		if len(ask.Missing) > 0 {
			b = append(s.bellsText(b, database, limit, ask.Missing...), unionAll...)
		}
		return s.bellsText(b, database, limit, Span{ask.After + 1, math.MaxUint64})
	}
	scan := into(func(r *rungBell) []any {
		return []any{&r.database, &r.bell.ID, &r.bell.Entry.JobID, &r.bell.Entry.Type, (*instant)(&r.bell.Entry.Due)}
	})
	all, err := s.everyBell(ctx, server, question[rungBell]{statement: bells, text: text, scan: scan})
	rung := make(map[int][]Bell)
	for _, r := range all {
		rung[r.database] = append(rung[r.database], r.bell)
	}
	return rung, err
}

func (s *Store) bellsText(b []byte, database, limit int, spans ...Span) []byte {
	return bells.render(b, s.ofDatabase(database, slots{"spans": appendSpans(nil, spans), "limit": limit}))
}

// appendSpans appends the condition that an id is in one of the spans.
func appendSpans(b []byte, spans []Span) []byte {
	for i, span := range spans {
		if i > 0 {
			b = append(b, " OR "...)
		}
		b = strconv.AppendUint(append(b, "id BETWEEN "...), span.Low, 10)
		b = strconv.AppendUint(append(b, " AND "...), span.High, 10)
	}
	return b
}

// deafFor is how long a doorbell that could not be read is left alone. A poll reads
// all doorbells of a server together, so a missing or locked one would slow down all
// others. Scans find its tasks meanwhile.
const deafFor = 5 * time.Second

// deaf is the set of a server's databases whose doorbells are left alone. The zero
// value is empty. Safe for concurrent use.
type deaf struct {
	mu    sync.Mutex
	until map[int]time.Time
}

// note adds the databases that have just failed.
func (d *deaf) note(failed map[int]error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for database := range failed {
		if d.until == nil {
			d.until = make(map[int]time.Time)
		}
		d.until[database] = time.Now().Add(deafFor)
	}
}

// without returns the databases that are not deaf.
func (d *deaf) without(databases []int) []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(databases), func(database int) bool { return now.Before(d.until[database]) })
}

// rungBell is a bell and the number of its database.
type rungBell struct {
	database int
	bell     Bell
}

// everyBell is everyDatabase for the databases that are not deaf.
func (s *Store) everyBell(ctx context.Context, server int, q question[rungBell]) ([]rungBell, error) {
	sv := s.servers[server]
	all, failed, err := eachDatabase(ctx, s, s.gated(sv), sv.deaf.without(sv.refused().without(sv.Databases)), q)
	sv.deaf.note(failed)
	return all, s.unread(sv, q.name, failed, err)
}

// LastBell reads the highest id of each doorbell of a server: where to start
// from, and by its falling, that the doorbell was purged or set back. 0: empty.
// A database that cannot be read is named in the error and hides no other.
func (s *Store) LastBell(ctx context.Context, server int) (map[int]uint64, error) {
	scan := into(func(r *rungBell) []any { return []any{&r.database, &r.bell.ID} })
	all, err := s.everyBell(ctx, server, question[rungBell]{statement: lastBell, scan: scan})
	last := make(map[int]uint64)
	for _, r := range all {
		last[r.database] = r.bell.ID
	}
	return last, err
}
