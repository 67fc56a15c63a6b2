package store

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Judged is what a judge of runs needs of a schedule's row.
type Judged struct {
	Name        string
	BizType     uint64 // number
	BizID       uint64 // of its runs
	Cron        string
	Zone        string
	Start       time.Time // zero: no limit
	End         time.Time // zero: no limit
	Anchor      time.Time
	Jitter      time.Duration
	StartWithin time.Duration
	Missed      string
	MissedMost  int
	Overlap     string
	PauseAfter  int
	Failures    int
	Revision    uint32
	OpenFrom    string // runs with lower keys are settled; "": not known
}

// Judged reads a schedule by the id that its runs' keys have. False: there is none.
func (s *Store) Judged(ctx context.Context, schedule tocsin.JobID) (j Judged, found bool, err error) {
	table := schedule.Table()
	if s.ServerOf(table) < 0 {
		return j, false, s.refuse(0, table)
	}
	sv := s.servers[s.ServerOf(table)]
	text := judged.render(nil, s.fillSchedule(schedule))
	err = s.readTables(ctx, sv, []int{table}, judged.name, text, func(_ int, rows *sql.Rows) error {
		found = true
		return j.scan(rows)
	})
	if err != nil {
		return j, false, s.wrap(err, "read schedule "+schedule.String()+" of", sv, table)
	}
	return j, found, nil
}

func (j *Judged) scan(rows *sql.Rows) error {
	var start, end sql.NullTime
	var jitter, within int64
	var from []byte
	err := rows.Scan(&j.Name, &j.BizType, &j.BizID, &j.Cron, &j.Zone, &start, &end, &j.Anchor, &jitter, &within,
		&j.Missed, &j.MissedMost, &j.Overlap, &j.PauseAfter, &j.Failures, &j.Revision, &from)
	j.Start, j.End, j.OpenFrom = start.Time, end.Time, string(from)
	j.Jitter, j.StartWithin = time.Duration(jitter)*time.Millisecond, time.Duration(within)*time.Millisecond
	return err
}

// fillSchedule fills the slots that follow from a schedule_id.
func (s *Store) fillSchedule(id tocsin.JobID) func([]byte, string) []byte {
	return func(b []byte, slot string) []byte {
		if slot == "schedule_id" {
			return append(b, id.String()...)
		}
		return s.fillDatabase(b, slot, s.layout.DatabaseOf(id.Table()))
	}
}

// RunRange names runs of one schedule by their keys, those between From and Until, which is not included.
type RunRange struct {
	Table       int
	BizID       uint64
	Type        uint64 // number of the biz type
	From, Until string // dedup_keys
	Open        bool   // pending and claimed ones only
	Limit       int
}

// RunRow is one run of a RunRange. Times are Unix ms.
type RunRow struct {
	JobID    tocsin.JobID
	Status   tocsin.Status
	Action   int64
	Due      int64
	Attempts int
	Crashes  int
	Key      string // the dedup_key
	Created  int64
}

// RunsFrom reads runs of ranges of one table in one round trip, each range in the order of its keys.
func (s *Store) RunsFrom(ctx context.Context, ranges ...RunRange) ([][]RunRow, error) {
	table := ranges[0].Table
	if s.ServerOf(table) < 0 {
		return nil, s.refuse(0, table)
	}
	sv := s.servers[s.ServerOf(table)]
	var text []byte
	for _, r := range ranges {
		text = s.runsFromText(text, r)
	}
	found := make([][]RunRow, len(ranges))
	err := s.readTables(ctx, sv, []int{table}, runsFrom.name, text, func(set int, rows *sql.Rows) error {
		r, err := scanRunRow(rows)
		found[set] = append(found[set], r)
		return err
	})
	if err != nil {
		return nil, s.wrap(err, "read open runs in", sv, table)
	}
	return found, nil
}

func (s *Store) runsFromText(b []byte, r RunRange) []byte {
	return runsFrom.render(b, func(b []byte, slot string) []byte {
		switch slot {
		case "table":
			return append(b, s.names[r.Table]...)
		case "biz_id":
			return strconv.AppendUint(b, r.BizID, 10)
		case "type":
			return strconv.AppendUint(b, r.Type, 10)
		case "from":
			return appendKey(b, r.From)
		case "until":
			return appendKey(b, r.Until)
		case "limit":
			return appendInt(b, r.Limit)
		}
		if r.Open {
			return append(b, onlyOpen...)
		}
		return b
	})
}

// appendKey appends a dedup_key as a literal.
func appendKey(b []byte, key string) []byte {
	return append(hex.AppendEncode(append(b, "X'"...), []byte(key)), '\'')
}

func scanRunRow(rows *sql.Rows) (r RunRow, err error) {
	var action, due, created time.Time
	var key []byte
	err = rows.Scan(&r.JobID, &r.Status, &action, &due, &r.Attempts, &r.Crashes, &key, &created)
	r.Action, r.Due, r.Created, r.Key = action.UnixMilli(), due.UnixMilli(), created.UnixMilli(), string(key)
	return r, err
}

// Replace cancels runs of one table that are pending or claimed, and notes the reason, cut to fit. A delivery that is
// under way settles nothing any more.
func (s *Store) Replace(ctx context.Context, ids []tocsin.JobID, reason string) error {
	parts := byTable(sortIDs(ids))
	sv := s.servers[s.ServerOf(parts[0].table)]
	var text []byte
	var args []any
	for _, part := range parts {
		text, args = replaced.render(text, s.fill(part)), append(args, cut(reason))
	}
	err := s.transact(ctx, sv, tablesOf(parts), func(conn *sql.Conn) error {
		_, err := s.write(ctx, conn, replaced.name, text, args...)
		return err
	})
	if err != nil {
		return s.wrap(err, "cancel replaced runs in", sv, tablesOf(parts)...)
	}
	return nil
}

// OpenFrom notes that the runs of a schedule with keys below one are settled.
func (s *Store) OpenFrom(ctx context.Context, schedule tocsin.JobID, key string) error {
	table := schedule.Table()
	sv := s.servers[s.ServerOf(table)]
	fill := s.fillSchedule(schedule)
	text := openFrom.render(nil, func(b []byte, slot string) []byte {
		if slot == "from" {
			return appendKey(b, key)
		}
		return fill(b, slot)
	})
	if err := s.exec(ctx, sv, s.layout.DatabaseOf(table), openFrom.name, text); err != nil {
		return s.wrap(err, "note open runs of schedule "+schedule.String()+" in", sv, table)
	}
	return nil
}

// CountFailure counts a failed run of an active schedule that still has a revision, and returns how many have failed in a
// row by now; 0: the schedule has another revision, or is not active.
func (s *Store) CountFailure(ctx context.Context, schedule tocsin.JobID, revision uint32) (failures int, err error) {
	table := schedule.Table()
	sv := s.servers[s.ServerOf(table)]
	of := s.fillSchedule(schedule)
	fill := func(b []byte, slot string) []byte {
		if slot == "revision" {
			return strconv.AppendUint(b, uint64(revision), 10)
		}
		return of(b, slot)
	}
	err = s.transact(ctx, sv, []int{table}, func(conn *sql.Conn) error {
		failures = 0
		if _, err := s.write(ctx, conn, countFailure.name, countFailure.render(nil, fill)); err != nil {
			return err
		}
		return s.read(ctx, conn, failuresOf.name, failuresOf.render(nil, fill), func(_ int, rows *sql.Rows) error { return rows.Scan(&failures) })
	})
	if err != nil {
		return 0, s.wrap(err, "count a failed run of schedule "+schedule.String()+" in", sv, table)
	}
	return failures, nil
}

// ClearFailures notes that a run of a schedule succeeded.
func (s *Store) ClearFailures(ctx context.Context, schedule tocsin.JobID) error {
	table := schedule.Table()
	sv := s.servers[s.ServerOf(table)]
	err := s.exec(ctx, sv, s.layout.DatabaseOf(table), clearFailures.name, clearFailures.render(nil, s.fillSchedule(schedule)))
	if err != nil {
		return s.wrap(err, "note a success of schedule "+schedule.String()+" in", sv, table)
	}
	return nil
}
