package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

var fateNames = [...]string{"stored", "cancelled", "rescheduled", "settled", "claim_lost", "gone", "in_tx"}

// String gives the word, as used in metrics.
func (f Fate) String() string { return fateNames[f] }

// found is what a row is instead of what an outcome expected.
type found struct {
	typeCode  uint64
	status    tocsin.Status
	action    int64
	attempts  int
	version   uint32
	claimedBy string
	lastError string
}

// nameFates reads the rows of the outcomes that hit none, in their own
// transaction, and fills in their fates.
func (s *Store) nameFates(ctx context.Context, conn *sql.Conn, outcomes []Outcome, missed []int, fates []Fate) error {
	if len(missed) == 0 {
		return nil
	}
	ids := make([]tocsin.JobID, len(missed))
	for i, m := range missed {
		ids[i] = outcomes[m].JobID
	}
	rows := make(map[tocsin.JobID]found, len(ids))
	for chunk := range slices.Chunk(sortIDs(ids), maxIDs) {
		if err := s.findRows(ctx, s.over(conn), byTable(chunk), rows); err != nil {
			return err
		}
	}
	for _, i := range missed {
		if row, ok := rows[outcomes[i].JobID]; ok {
			fates[i] = fateOf(&outcomes[i], row)
		} else {
			fates[i] = Gone
		}
	}
	return nil
}

// Seen is what was loaded of a task that is in delivery.
type Seen struct {
	Version   uint32
	LastError string
}

// Recheck reads which tasks were cancelled or rescheduled since they were loaded, without a lock: their fates are Cancelled and
// Rescheduled, and others are left out. So are runs that were cancelled by a change of their schedule, which leaves a reason:
// deliveries in hand end by themselves then. A table that can't be read hides no other; the error names it.
func (s *Store) Recheck(ctx context.Context, server int, seen map[tocsin.JobID]Seen) (map[tocsin.JobID]Fate, error) {
	sv := s.servers[server]
	rows, fates := make(map[tocsin.JobID]found, len(seen)), make(map[tocsin.JobID]Fate)
	var errs []error
	fail := func(part idsOf, err error) { errs = append(errs, s.wrap(err, "recheck tasks in", sv, part.table)) }
	for chunk := range slices.Chunk(sortIDs(slices.Collect(maps.Keys(seen))), maxIDs) {
		err := apart(byTable(chunk), func(parts []idsOf) error { return s.findRows(ctx, s.gated(sv), parts, rows) }, fail)
		if err != nil {
			errs = append(errs, s.wrap(err, "recheck tasks", sv))
			break
		}
	}
	for id, row := range rows {
		was := seen[id]
		switch fate := fateOf(&Outcome{Verb: tocsin.Completed, Version: was.Version}, row); {
		case fate == Cancelled && row.version == was.Version && row.lastError != was.LastError: // by its schedule
		case fate == Cancelled, fate == Rescheduled:
			fates[id] = fate
		}
	}
	return fates, Join(errs...)
}

// findRows reads rows of tables in one round trip.
func (s *Store) findRows(ctx context.Context, read reader, parts []idsOf, into map[tocsin.JobID]found) error {
	return s.readIDs(ctx, read, fate, parts, func(rows *sql.Rows) error {
		var id tocsin.JobID
		var f found
		err := rows.Scan(&id, &f.typeCode, &f.status, (*instant)(&f.action), &f.attempts, &f.version, &f.claimedBy, &f.lastError)
		into[id] = f
		return err
	})
}

// fateOf names why o did not hit its row, which is row now.
func fateOf(o *Outcome, row found) Fate {
	switch {
	case row.status == tocsin.Cancelled && !o.wrote(row):
		return Cancelled
	case row.version != o.Version:
		return Rescheduled
	case o.wrote(row):
		return Stored
	case row.status == tocsin.Done && row.claimedBy == client.CompletedInTx:
		return InTx
	case row.status.Final(), row.attempts != o.Attempts:
		return Settled
	}
	return ClaimLost
}

// wrote reports whether the row is as o leaves it: o was written before, by a
// call whose answer got lost. A completed row tells nothing of who completed
// it.
func (o *Outcome) wrote(row found) bool {
	switch o.Verb {
	case tocsin.Retried:
		return row.status == tocsin.Pending && row.attempts == o.Attempts+1 &&
			row.action == o.Next && row.lastError == cut(o.Reason)
	case tocsin.Snoozed:
		return row.status == tocsin.Pending && row.attempts == o.Attempts && row.action == o.Next
	case tocsin.Buried:
		return row.status == tocsin.Dead && row.attempts == o.Attempts+1 && row.lastError == cut(o.Reason)
	case tocsin.Skipped:
		return row.status == tocsin.Cancelled && row.attempts == o.Attempts && row.lastError == cut(o.Reason)
	}
	return false
}
