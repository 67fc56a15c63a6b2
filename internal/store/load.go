package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// Load reads whole rows by primary key, the ids of many tables in one round
// trip (of 500 ids), with the server's clock after them. Ids in any order;
// those not pending any more are left out. A table that cannot be read is named
// in Loaded.Failed and hides no other. It betters what Now estimates.
func (s *Store) Load(ctx context.Context, server int, ids []tocsin.JobID) (Loaded, error) {
	sv := s.servers[server]
	var loaded Loaded
	fail := func(part idsOf, err error) {
		addFailed(&loaded.Failed, part.table, s.wrap(err, "load from", sv, part.table))
	}
	for chunk := range slices.Chunk(sortIDs(ids), maxIDs) {
		parts := slices.DeleteFunc(byTable(chunk), func(part idsOf) bool {
			err := cmp.Or(s.refuse(server, part.table), sv.refused().first(s.databasesIn([]int{part.table})))
			if err != nil {
				fail(part, err)
			}
			return err != nil
		})
		loaded.Rows = slices.Grow(loaded.Rows, len(chunk))
		err := apart(parts, func(parts []idsOf) error { return s.load(ctx, sv, parts, &loaded) }, fail)
		if err != nil {
			return loaded, s.wrap(err, "load from", sv, tablesOf(parts)...)
		}
	}
	return loaded, nil
}

// load adds the rows of one round trip, or nothing if it fails.
func (s *Store) load(ctx context.Context, sv *server, parts []idsOf, loaded *Loaded) error {
	start := time.Now()
	conn, err := s.conn(ctx, sv, s.databasesIn(tablesOf(parts)))
	if err != nil {
		s.metrics.observe(load.name, start, 0, err)
		return err
	}
	defer func() { _ = conn.Close() }()
	before := len(loaded.Rows)
	text, last := s.loadText(parts)
	taken := sv.asking()
	err = s.read(ctx, conn, load.name, text, func(set int, rows *sql.Rows) (err error) {
		if set == last {
			taken.micro, err = scanMicro(rows)
			return err
		}
		loaded.Rows = append(loaded.Rows, Row{})
		return s.scan(&loaded.Rows[len(loaded.Rows)-1], rows)
	})
	if err != nil {
		loaded.Rows = loaded.Rows[:before]
		return err
	}
	taken.answered = time.Now()
	s.note(sv, taken)
	loaded.Now = taken.micro / 1000
	return nil
}

// loadText is a statement for each 64 tables, then the clock's, whose number
// last is.
func (s *Store) loadText(parts []idsOf) (b []byte, last int) {
	for group := range slices.Chunk(parts, maxTables) {
		for i, part := range group {
			if i > 0 {
				b = append(b, unionAll...)
			}
			b = load.render(b, s.fill(part))
		}
		b = append(b, ';')
		last++
	}
	return now.render(b, nil), last
}

// idsOf are ids of one table, ascending.
type idsOf struct {
	table int
	ids   []tocsin.JobID
}

// fill gives the slots of a statement that takes the ids of one table.
func (s *Store) fill(part idsOf) func([]byte, string) []byte {
	return func(b []byte, slot string) []byte {
		if slot == "table" {
			return append(b, s.names[part.table]...)
		}
		return appendList(b, part.ids)
	}
}

// readIDs sends a statement that takes the ids of one table for each table, all in one round trip.
func (s *Store) readIDs(ctx context.Context, read reader, st statement, parts []idsOf, scan func(*sql.Rows) error) error {
	var text []byte
	for _, part := range parts {
		text = append(st.render(text, s.fill(part)), ';')
	}
	return read(ctx, s.databasesIn(tablesOf(parts)), st.name, text, func(_ int, rows *sql.Rows) error { return scan(rows) })
}

// sortIDs gives the ids by table, then by id, each once.
func sortIDs(ids []tocsin.JobID) []tocsin.JobID {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, compareIDs)
	return slices.Compact(sorted)
}

// compareIDs orders by table, then by id: the order in which all of this
// package's transactions lock.
func compareIDs(a, b tocsin.JobID) int {
	return cmp.Or(cmp.Compare(a.Table(), b.Table()), cmp.Compare(a, b))
}

// byTable cuts sorted ids into those of each table. It shares the ids' memory.
func byTable(ids []tocsin.JobID) []idsOf {
	var parts []idsOf
	for start := 0; start < len(ids); {
		end := start + 1
		for end < len(ids) && ids[end].Table() == ids[start].Table() {
			end++
		}
		parts = append(parts, idsOf{ids[start].Table(), ids[start:end]})
		start = end
	}
	return parts
}

func tablesOf(parts []idsOf) []int {
	tables := make([]int, len(parts))
	for i, p := range parts {
		tables[i] = p.table
	}
	return tables
}

// rawRow holds what a Row is made from and is not scanned into it. It may be
// used again for the next row.
type rawRow struct{ dedup, headers, key []byte }

// into appends where rowColumns are scanned to. finish has to follow.
func (raw *rawRow) into(to []any, r *Row) []any {
	return append(to,
		&r.JobID, &r.BizID, &r.Type, &r.Status, &r.ActionTime, &r.DueTime,
		&r.Attempts, &r.Crashes, &r.Version, &r.ClaimedBy, &raw.dedup, &r.LastError, &r.Payload,
		&r.Created, &r.Modified, &raw.headers, &raw.key,
	)
}

func (raw *rawRow) finish(r *Row) {
	r.DedupKey, r.BizKey = string(raw.dedup), string(raw.key)
	headers, version := client.TakeVersion(string(raw.headers))
	r.Headers, r.PayloadVersion = tocsin.Headers(headers), version
	r.Action = r.ActionTime.UnixMilli()
}

// scan reads rowColumns, and names the table.
func (s *Store) scan(r *Row, rows *sql.Rows) error {
	var raw rawRow
	if err := rows.Scan(raw.into(nil, r)...); err != nil {
		return err
	}
	raw.finish(r)
	r.Table = s.names[r.JobID.Table()]
	return nil
}

// scanRow is scan for rows that are read off the hot path.
func (s *Store) scanRow(rows *sql.Rows) (r Row, err error) {
	err = s.scan(&r, rows)
	return r, err
}

// entry is the row as the due index knows it.
func (r *Row) entry() duequeue.Entry {
	return duequeue.Entry{JobID: r.JobID, Type: r.Type, Due: r.Action}
}
