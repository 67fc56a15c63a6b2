package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tocsinhq/tocsin"
)

// InDoubt is the error of a Claim whose commit got no answer: either all of the rows
// are claimed, or none.
type InDoubt struct {
	Server   int
	By       string
	Deadline int64 // of the claim, Unix ms
	IDs      []tocsin.JobID
	Err      error // of the commit
}

// Error returns how many rows are in doubt, and why.
func (d *InDoubt) Error() string {
	return fmt.Sprintf("claim of %d rows in doubt: %v", len(d.IDs), d.Err)
}

// Unwrap returns the error of the commit.
func (d *InDoubt) Unwrap() error { return d.Err }

// ReadBack returns the rows in doubt that are claimed, as Claim would have returned
// them. A row that is missing was not claimed, or its claim has ended. If the
// transaction of the claim is still open on the server, ReadBack waits a second for
// it. After an error nothing is known, and ReadBack has to be called again.
func (s *Store) ReadBack(ctx context.Context, d *InDoubt) ([]Row, error) {
	sv := s.servers[d.Server]
	parts := byTable(sortIDs(d.IDs))
	var text []byte
	var args []any
	for _, part := range parts {
		text, args = append(s.claimedText(text, part, d.Deadline), ';'), append(args, d.By)
	}
	rows := make([]Row, 0, len(d.IDs))
	err := s.readTables(ctx, sv, tablesOf(parts), claimed.name, text, func(_ int, r *sql.Rows) error {
		rows = append(rows, Row{})
		return s.scan(&rows[len(rows)-1], r)
	}, args...)
	if err != nil {
		return nil, s.wrap(err, "read a claim back in", sv, tablesOf(parts)...)
	}
	return rows, nil
}

func (s *Store) claimedText(b []byte, part idsOf, deadline int64) []byte {
	fill := s.fill(part)
	return claimed.render(b, func(b []byte, slot string) []byte {
		if slot == "deadline" {
			return appendTime(b, deadline)
		}
		return fill(b, slot)
	})
}
