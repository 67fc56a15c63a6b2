package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
)

var fateNames = [...]string{"stored", "cancelled", "rescheduled", "settled", "claim_lost", "gone", "in_tx"}

// String gives the word, as used in metrics.
func (f Fate) String() string {
	if int(f) < len(fateNames) {
		return fateNames[f]
	}
	return "fate " + strconv.Itoa(int(f))
}

// found is what a row is instead of what an outcome expected.
type found struct {
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
	rows, err := s.findRows(ctx, conn, outcomes, missed)
	if err != nil {
		return err
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

func (s *Store) findRows(ctx context.Context, conn *sql.Conn, outcomes []Outcome, missed []int) (map[tocsin.JobID]found, error) {
	ids := make([]tocsin.JobID, len(missed))
	for i, m := range missed {
		ids[i] = outcomes[m].JobID
	}
	rows := make(map[tocsin.JobID]found, len(ids))
	for chunk := range slices.Chunk(sortIDs(ids), maxIDs) {
		var text []byte
		for _, part := range byTable(chunk) {
			text = append(fate.render(text, s.fill(part)), ';')
		}
		err := s.read(ctx, conn, fate.name, text, func(_ int, r *sql.Rows) error { return scanFound(r, rows) })
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func scanFound(rows *sql.Rows, into map[tocsin.JobID]found) error {
	var id tocsin.JobID
	var f found
	var action time.Time
	err := rows.Scan(&id, &f.status, &action, &f.attempts, &f.version, &f.claimedBy, &f.lastError)
	f.action = action.UnixMilli()
	into[id] = f
	return err
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
	case o.Verb == tocsin.Completed && row.status == tocsin.Done && row.claimedBy == tocsin.CompletedInTx:
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
