package store

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/name"
)

// noteActs stores acts in one database. {values} have the act_id each; the texts are arguments.
var noteActs = prepare(`
INSERT /* tocsin note_acts */ INTO {database}.act
    (act_id, person, via, operation, object, reason, outcome)
VALUES {values};`)

// someActs reads the next acts of one database, {limit} at most, the newest first. Primary key.
var someActs = prepare(`
(SELECT /* tocsin acts */
    {database_no},
    act_id,
    person,
    via,
    operation,
    object,
    reason,
    outcome
FROM {database}.act FORCE INDEX (PRIMARY)
WHERE act_id >= {from}
  AND act_id < {before}
ORDER BY act_id DESC
LIMIT {limit})`)

// purgeActs deletes the oldest acts of one database that stand before an act_id, {limit} at most. Primary key.
var purgeActs = prepare(`
DELETE /* tocsin purge_acts */ FROM {database}.act
WHERE act_id < {before}
ORDER BY act_id
LIMIT {limit};`)

// An act_id has the time of the act in its upper bits, so the primary key is the order of the times.
const (
	actsSince  = 1767225600000 // 2026-01-01 UTC, Unix ms
	actsRandom = 22            // lower bits
)

// ActAt returns the lowest act_id of a time.
func ActAt(at time.Time) uint64 { return uint64(max(at.UnixMilli()-actsSince, 0)) << actsRandom }

// PastAct is one change that somebody asked for.
type PastAct struct {
	ID        uint64    `json:"act_id,string"` // 0 before it is stored
	At        time.Time `json:"time"`
	Person    string    `json:"person"`
	Via       string    `json:"via"` // api, console or command
	Operation string    `json:"operation"`
	Object    string    `json:"object"`
	Reason    string    `json:"reason,omitempty"`
	Outcome   string    `json:"outcome"`
}

// The characters that the texts of an act may have. Longer ones are cut.
const (
	maxActName = 64
	maxActText = 255
)

// MaxActs is how many acts NoteActs takes at once.
const MaxActs = 100

// NoteActs stores acts, at most MaxActs, in the first database of the first server that takes them, all of them or none. Those of
// databases without the table are passed over.
func (s *Store) NoteActs(ctx context.Context, acts []PastAct) error {
	if len(acts) == 0 {
		return nil
	}
	values, args := actValues(acts[:min(len(acts), MaxActs)])
	var errs []error
	for _, sv := range s.servers {
		for _, database := range sv.refused().without(sv.Databases) {
			_, err := s.change(ctx, database, noteActs, s.ofDatabase(database, slots{"values": values}), args...)
			if err == nil {
				return nil
			}
			errs = append(errs, s.wrapTable(err, "note acts", database, "act"))
			if mysql.Unanswered(err) {
				break // nor are the next ones answered
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// actValues are the {values} of noteActs, and its arguments.
func actValues(acts []PastAct) (values string, args []any) {
	var b []byte
	for i, a := range acts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendList(append(b, '('), []uint64{ActAt(a.At) | rand.Uint64N(1<<actsRandom)}), ", ?, ?, ?, ?, ?, ?)"...)
		args = append(args, name.Text(a.Person, maxActName), a.Via, name.Text(a.Operation, maxActName), name.Text(a.Object, maxActText), name.Text(a.Reason, maxActText), name.Text(a.Outcome, maxActText))
	}
	return string(b), args
}

// ActsPage is what Acts has read.
type ActsPage struct {
	Acts []PastAct // the newest first
	Next uint64    // below which more may stand; 0: none
}

// Acts reads acts from an act_id on and below another one, of all databases, the newest first: of each at most limit. The page ends where
// the first database that has more does. Beside an error, a Partial, it has those of the servers that could be read.
func (s *Store) Acts(ctx context.Context, from, before uint64, limit int) (page ActsPage, err error) {
	type found struct {
		database int
		PastAct
	}
	servers, errs := make([][]found, len(s.servers)), make([]error, len(s.servers))
	read := question[found]{
		statement: someActs, in: slots{"from": from, "before": before, "limit": limit},
		scan: into(func(f *found) []any {
			return []any{&f.database, &f.ID, &f.Person, &f.Via, &f.Operation, &f.Object, &f.Reason, &f.Outcome}
		}),
	}
	EachServer(len(servers), func(server int) {
		sv := s.servers[server]
		var failed map[int]error
		servers[server], failed, errs[server] = eachDatabase(ctx, s, s.gated(sv), sv.refused().without(sv.Databases), read)
		for database, err := range failed {
			if mysql.ClassOf(err) != mysql.Missing { // tables that were made before there were acts
				errs[server] = errors.Join(errs[server], s.wrapTable(err, "read acts", database, "act"))
			}
		}
	})
	all, rows, last := slices.Concat(servers...), map[int]int{}, map[int]uint64{}
	for _, f := range all {
		rows[f.database]++
		last[f.database] = f.ID
	}
	for database, n := range rows {
		if n == limit {
			page.Next = max(page.Next, last[database])
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(b.ID, a.ID) })
	for _, f := range all {
		if f.ID < page.Next || len(page.Acts) > 0 && page.Acts[len(page.Acts)-1].ID == f.ID { // one that was stored twice, as an answer was lost
			continue
		}
		f.At = time.UnixMilli(int64(f.ID>>actsRandom) + actsSince).UTC()
		page.Acts = append(page.Acts, f.PastAct)
	}
	return page, Lacking(s.Servers(), errs)
}

// PurgeActs deletes the oldest acts of a database that are older than a time, at most limit, and returns how many.
func (s *Store) PurgeActs(ctx context.Context, database int, before time.Time, limit int) (int, error) {
	removed, err := s.change(ctx, database, purgeActs, s.ofDatabase(database, slots{"before": ActAt(before), "limit": limit}))
	if mysql.ClassOf(err) == mysql.Missing {
		return 0, nil
	}
	return removed, s.wrapTable(err, "purge", database, "act")
}
