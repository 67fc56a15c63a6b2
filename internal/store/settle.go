package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tocsinhq/tocsin"
)

// errUneven says that a statement hit some of its rows, which does not tell
// which.
var errUneven = errors.New("a statement for several rows missed some")

// complete ends tasks of one table and version. A claim that ran out, a retry
// or a burial meanwhile does not undo the success. Fewer rows than ids: see Fate.
var complete = prepare(`
UPDATE /* tocsin complete */ {table} FORCE INDEX (PRIMARY)
SET status = 2,
    action_time = UTC_TIMESTAMP(3),
    claimed_by = '',
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND version = {version}
  AND status IN (0, 1, 4);`)

// unchanged is the condition of writes that only the holder of the attempt may make: {held} is asLoaded or byToken.
const unchanged = `
WHERE job_id = {job_id}
  AND {held};`

// byToken is the condition of a row that was claimed under a session. Its argument is the token.
const byToken = `status = 1 AND claimed_by = ?`

// asLoaded is the condition of other rows.
// For a claimed row {status} is 1, {action} the deadline, {compare} = or, if the claim was prolonged, >=, and {by} byClaimer;
// otherwise they are 0, the action_time as loaded, =, and empty.
var asLoaded = prepare(`version = {version}
  AND attempts = {attempts}
  AND status = {status}
  AND action_time {compare} {action}{by}`)

// byClaimer tells a claim from another claimer's with the same deadline, to the
// millisecond: a sweep gives rows back as it found them, and another claimer may
// claim them at once. Its argument is the claimer.
const byClaimer = ` AND claimed_by = ?`

// retry makes a task pending again after a failed attempt. Its argument is the
// reason.
var retry = prepare(`
UPDATE /* tocsin retry */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    action_time = {next},
    attempts = attempts + 1,{crashes}
    claimed_by = '',
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)` + unchanged)

// snooze makes a task pending again without counting an attempt. {reason} is withReason, or empty.
var snooze = prepare(`
UPDATE /* tocsin snooze */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    action_time = {next},{crashes}
    claimed_by = '',{reason}
    gmt_modified = UTC_TIMESTAMP(3)` + unchanged)

// release makes a task pending again whose delivery did not begin, at its own time, {next}.
var release = prepare(`
UPDATE /* tocsin release */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    action_time = {next},
    claimed_by = '',
    gmt_modified = UTC_TIMESTAMP(3)` + unchanged)

// noCrashes is {crashes} of a claim under a session: an attempt that ended has not ended its process.
const noCrashes = `
    crashes = 0,`

// withReason keeps why a task was put off. Its argument is the reason.
const withReason = `
    last_error = ?,`

// bury gives a task up after a failed attempt. Its argument is the reason.
var bury = prepare(`
UPDATE /* tocsin bury */ {table} FORCE INDEX (PRIMARY)
SET status = 4,
    action_time = UTC_TIMESTAMP(3),
    attempts = attempts + 1,
    claimed_by = '',
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)` + unchanged)

// skip ends a task as cancelled without a delivery. Its argument is the reason.
var skip = prepare(`
UPDATE /* tocsin skip */ {table} FORCE INDEX (PRIMARY)
SET status = 3,
    action_time = UTC_TIMESTAMP(3),
    dedup_key = NULL,
    claimed_by = '',
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)` + unchanged)

// fate reads what became of rows that an outcome did not hit.
var fate = prepare(`
SELECT /* tocsin fate */
    job_id,
    biz_type,
    status,
    action_time,
    attempts,
    version,
    claimed_by,
    last_error
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})`)

// Settle writes the outcomes of one server in one transaction and tells the
// fate of each, in their order. On an error nothing is written. A lock that
// another transaction holds is waited for for a second; the caller goes on by
// asking for less.
//
// It may be repeated after a lost connection: what was written then meets
// itself, and its fate is Stored, or Settled for a completed task.
func (s *Store) Settle(ctx context.Context, server int, outcomes []Outcome) ([]Fate, error) {
	sv := s.servers[server]
	for i := range outcomes {
		if err := s.refuse(server, outcomes[i].JobID.Table()); err != nil {
			return nil, fmt.Errorf("settle job_id %s on %s: %w", outcomes[i].JobID, sv.Name, err)
		}
	}
	if len(outcomes) == 0 {
		return nil, nil
	}
	groups := groupOutcomes(outcomes)
	fates, err := s.settle(ctx, sv, outcomes, groups)
	if errors.Is(err, errUneven) { // rolled back: once more, with a statement a row
		fates, err = s.settle(ctx, sv, outcomes, slices.Collect(slices.Chunk(slices.Concat(groups...), 1)))
	}
	if err != nil {
		return nil, s.wrap(err, fmt.Sprintf("settle %d outcomes in", len(outcomes)), sv, tablesOfOutcomes(outcomes, groups)...)
	}
	return fates, nil
}

// SettleIn is Settle of one outcome within a transaction that Transact has begun. hit reports whether it was written now, and not by an
// earlier try whose answer was lost.
func (s *Store) SettleIn(ctx context.Context, conn *sql.Conn, o Outcome) (fate Fate, hit bool, err error) {
	outcomes, fates := []Outcome{o}, make([]Fate, 1)
	text, args := s.settleText(outcomes, [][]int{{0}})
	counts, err := s.write(ctx, conn, "settle", text, args...)
	if err != nil {
		return fate, false, err
	}
	missed, err := missedBy(counts, [][]int{{0}})
	if err == nil {
		err = s.nameFates(ctx, conn, outcomes, missed, fates)
	}
	return fates[0], len(missed) == 0, err
}

// settle writes a statement for each group in one transaction.
func (s *Store) settle(ctx context.Context, sv *server, outcomes []Outcome, groups [][]int) ([]Fate, error) {
	text, args := s.settleText(outcomes, groups)
	var fates []Fate
	err := s.transact(ctx, sv, tablesOfOutcomes(outcomes, groups), func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, "settle", text, args...)
		if err != nil {
			return err
		}
		missed, err := missedBy(counts, groups)
		if err != nil {
			return err
		}
		fates = make([]Fate, len(outcomes)) // all Stored
		return s.nameFates(ctx, conn, outcomes, missed, fates)
	})
	return fates, err
}

// missedBy returns the outcomes that hit no row. A statement hits all of its rows or
// none, none for example if their handlers have completed them; otherwise the error
// is errUneven.
func missedBy(counts []int64, groups [][]int) (missed []int, err error) {
	if len(counts) != len(groups) {
		return nil, fmt.Errorf("%d counts for %d statements", len(counts), len(groups))
	}
	for i, group := range groups {
		switch {
		case counts[i] == int64(len(group)):
		case counts[i] > 0:
			return nil, errUneven
		default:
			missed = append(missed, group...)
		}
	}
	return missed, nil
}

// groupOutcomes returns the groups of outcomes, by index, that share a statement, in
// the order of their tables: at most maxIDs completed ones with the same table,
// version and InTx; each other outcome alone.
func groupOutcomes(outcomes []Outcome) [][]int {
	order := make([]int, len(outcomes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return compareOutcomes(&outcomes[i], &outcomes[j]) })
	var groups [][]int
	for start := 0; start < len(order); {
		end := start + 1
		for end < len(order) && end-start < maxIDs && together(&outcomes[order[start]], &outcomes[order[end]]) {
			end++
		}
		groups = append(groups, order[start:end])
		start = end
	}
	return groups
}

// compareOutcomes orders by table; within one, completed tasks come first.
func compareOutcomes(a, b *Outcome) int {
	if c := cmp.Compare(a.JobID.Table(), b.JobID.Table()); c != 0 {
		return c
	}
	if c := cmp.Compare(min(a.Verb, 1), min(b.Verb, 1)); c != 0 {
		return c
	}
	if a.Verb == tocsin.Completed && a.Version != b.Version {
		return cmp.Compare(a.Version, b.Version)
	}
	switch {
	case a.InTx && !b.InTx:
		return 1
	case b.InTx && !a.InTx:
		return -1
	}
	return cmp.Compare(a.JobID, b.JobID)
}

func together(a, b *Outcome) bool {
	return a.Verb == tocsin.Completed && b.Verb == tocsin.Completed &&
		a.Version == b.Version && a.InTx == b.InTx && a.JobID.Table() == b.JobID.Table()
}

// settleText is a statement for each group.
func (s *Store) settleText(outcomes []Outcome, groups [][]int) (b []byte, args []any) {
	b = make([]byte, 0, 256*len(groups))
	for _, group := range groups {
		o := &outcomes[group[0]]
		switch o.Verb {
		case tocsin.Completed:
			b = s.completeText(b, outcomes, group)
		case tocsin.Retried:
			b, args = s.changeText(b, retry, o), append(args, cut(o.Reason))
		case tocsin.Snoozed:
			if o.Back {
				b = s.changeText(b, release, o)
				break
			}
			b = s.changeText(b, snooze, o)
			if o.Reason != "" {
				args = append(args, cut(o.Reason))
			}
		case tocsin.Buried:
			b, args = s.changeText(b, bury, o), append(args, cut(o.Reason))
		case tocsin.Skipped:
			b, args = s.changeText(b, skip, o), append(args, cut(o.Reason))
		}
		if o.Verb != tocsin.Completed && o.byClaimer() {
			args = append(args, o.By)
		}
	}
	return b, args
}

// byClaimer reports whether the row must still be claimed by this claimer.
func (o *Outcome) byClaimer() bool { return o.Claimed && o.By != "" }

func (s *Store) completeText(b []byte, outcomes []Outcome, group []int) []byte {
	first := &outcomes[group[0]]
	return complete.render(b, func(b []byte, slot string) []byte { // no map of slots: most outcomes pass here
		switch slot {
		case "table":
			return append(b, s.names[first.JobID.Table()]...)
		case "version":
			return strconv.AppendUint(b, uint64(first.Version), 10)
		}
		for i, o := range group {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(outcomes[o].JobID), 10)
		}
		return b
	})
}

// changeText renders retry, snooze, release, bury or skip.
func (s *Store) changeText(b []byte, st statement, o *Outcome) []byte {
	in := slots{"next": instant(o.Next), "job_id": o.JobID, "held": byToken, "crashes": noCrashes, "reason": ""}
	if o.Reason != "" {
		in["reason"] = withReason
	}
	if !o.Token {
		in["held"], in["crashes"] = asLoaded.render(nil, o.asLoaded().fill), ""
	}
	return st.render(b, s.ofTable(o.JobID.Table(), in))
}

// asLoaded fills asLoaded.
func (o *Outcome) asLoaded() slots {
	in := slots{"version": o.Version, "attempts": o.Attempts, "status": tocsin.Pending, "compare": "=", "action": instant(o.Action), "by": ""}
	if o.Claimed {
		in["status"] = tocsin.Claimed
	}
	if o.Prolonged {
		in["compare"] = ">="
	}
	if o.byClaimer() {
		in["by"] = byClaimer
	}
	return in
}

func tablesOfOutcomes(outcomes []Outcome, groups [][]int) []int {
	tables := make([]int, len(groups))
	for i, g := range groups {
		tables[i] = outcomes[g[0]].JobID.Table()
	}
	return slices.Compact(tables)
}
