package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// row is a task as its table has it.
type row struct {
	JobID     tocsin.JobID `db:"job_id"`
	BizID     uint64       `db:"biz_id"`
	BizType   uint64       `db:"biz_type"`
	Status    tocsin.Status
	Action    time.Time `db:"action_time"`
	Due       time.Time `db:"due_time"`
	Attempts  int
	Crashes   int
	Version   uint32
	ClaimedBy string `db:"claimed_by"`
	LastError string `db:"last_error"`
}

// String is for a breach's trace.
func (r row) String() string {
	text := fmt.Sprintf("row: %s, attempts %d, crashes %d, version %d, action_time %s, due_time %s",
		r.Status, r.Attempts, r.Crashes, r.Version, r.Action.Format(clockForm), r.Due.Format(clockForm))
	if r.ClaimedBy != "" {
		text += ", claimed by " + r.ClaimedBy
	}
	if r.LastError != "" {
		text += ", last error " + r.LastError
	}
	return text
}

// clockForm is how traces and schedules show a time of day.
const clockForm = "15:04:05.000"

// open counts the tasks without a final state.
func (s *Site) open(ctx context.Context) (int, error) {
	total := 0
	for table := range s.opts.Layout.Total() {
		var n int
		d := s.databaseOf(table)
		query := strings.ReplaceAll(openSQL, "{table}", s.opts.Layout.Table(table))
		if err := d.direct.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return 0, fmt.Errorf("count %s of %s: %w", s.opts.Layout.Table(table), d, err)
		}
		total += n
	}
	return total, nil
}

// readAll returns all rows of a query. An error names server.
func readAll[T any](ctx context.Context, db *sql.DB, server, query string, args ...any) (all []T, err error) {
	if err := sqlx.NewDb(db, "mysql").SelectContext(ctx, &all, query, args...); err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	return all, nil
}

// allRows reads every task.
func (s *Site) allRows(ctx context.Context) ([]row, error) {
	parts := make([][]row, s.opts.Layout.Total())
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for table := range parts {
		g.Go(func() (err error) {
			d := s.databaseOf(table)
			parts[table], err = readAll[row](ctx, d.direct, d.String(), strings.ReplaceAll(rowsSQL, "{table}", s.opts.Layout.Table(table)))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(parts...), nil
}

// How long the checker waits for a server that was killed shortly before, and how often it asks.
const (
	evidenceWithin = time.Minute
	evidencePause  = 200 * time.Millisecond
)

// patient has a read of evidence repeated until the servers answer. Every attempt drops the connections that failed.
func patient[T any](read func(context.Context) (T, error)) func(context.Context) (T, error) {
	return patientFor(evidenceWithin, read)
}

func patientFor[T any](within time.Duration, read func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) {
		until := time.Now().Add(within)
		for {
			found, err := read(ctx)
			if err == nil || ctx.Err() != nil {
				return found, err
			}
			if time.Now().After(until) {
				return found, fmt.Errorf("asked for %s: %w", within, err)
			}
			_ = loop.Wait(ctx, evidencePause) // the next attempt sees the end of ctx
		}
	}
}
