package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tocsinhq/tocsin"
)

// Redrive makes a dead task pending again, due at once, with a new idempotency
// key, and rings the bell. False: there is no such dead task.
func (s *Store) Redrive(ctx context.Context, id tocsin.JobID) (bool, error) {
	home := s.ServerOf(id.Table())
	if home < 0 {
		return false, fmt.Errorf("redrive job_id %s: %w", id, s.refuse(0, id.Table()))
	}
	sv := s.servers[home]
	var hit bool
	err := s.transact(ctx, sv, func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, redrive.name, redrive.render(nil, s.fillRow(id)))
		hit = sum(counts) > 0
		if err != nil || !hit {
			return err
		}
		_, err = s.write(ctx, conn, ring.name, ring.render(nil, s.fillRow(id)))
		return err
	})
	if err != nil {
		return false, s.wrap(err, "redrive job_id "+id.String()+" in", sv, id.Table())
	}
	return hit, nil
}

// fillRow fills the slots that follow from a job_id.
func (s *Store) fillRow(id tocsin.JobID) func([]byte, string) []byte {
	return func(b []byte, slot string) []byte {
		switch slot {
		case "job_id":
			return append(b, id.String()...)
		case "table":
			return append(b, s.names[id.Table()]...)
		case "table_no":
			return appendInt(b, id.Table())
		}
		return s.fillDatabase(b, slot, s.layout.DatabaseOf(id.Table()))
	}
}
