package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// errNoHorizon ends Horizon where no database answered.
var errNoHorizon = errors.New("no reachable database has a layout row: run `tocsin ddl apply`")

func scanLayout(rows *sql.Rows) (r layoutrow.Row, err error) {
	err = rows.Scan(r.Fields()...)
	return r, err
}

// Check compares what a server's databases say of themselves with the config
// and refuses the first difference, naming both sides.
func (s *Store) Check(ctx context.Context, server int) error {
	sv := s.servers[server]
	rows, failed := s.layouts(ctx, sv)
	want := s.want()
	want.Identity = s.identities.Agreed()
	for _, row := range rows { // those beside an error may say why: a layout of fewer databases
		if text := want.Refuse(row, s.layout.Database(row.Asked)+" on "+sv.Name); text != "" {
			return refusal(text)
		}
		want.Cluster = row.Cluster // of all the others too
	}
	if mysql.ClassOf(failed) == mysql.Missing {
		return fmt.Errorf("server %s lacks Tocsin tables, run `tocsin ddl apply`: %w", sv.Name, firstOf(failed))
	}
	if failed != nil {
		return failed
	}
	if missing := len(sv.Databases) - len(rows); missing > 0 {
		return fmt.Errorf("%d of the %d databases on %s have no layout row: run `tocsin ddl apply`", missing, len(sv.Databases), sv.Name)
	}
	return nil
}

// want is what the config says of every database.
func (s *Store) want() layoutrow.Want {
	return layoutrow.Want{Databases: s.layout.Databases, Tables: s.layout.Tables, Cluster: s.cluster}
}

// Identity returns the identity that the databases agree on, as far as they have
// been read; "" if none has one.
func (s *Store) Identity() string { return s.identities.Agreed() }

func (s *Store) layouts(ctx context.Context, sv *server) ([]layoutrow.Row, error) {
	text := func(b []byte, database int) []byte {
		return layoutOf.render(b, func(b []byte, slot string) []byte { return s.fillDatabase(b, slot, database) })
	}
	rows, err := everyDatabase(ctx, s, sv, layoutOf.name, text, scanLayout)
	s.identities.Note(s.want(), rows...)
	return rows, err
}

// firstOf shortens joined errors: the databases of a server lack their tables
// for one reason.
func firstOf(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) < 2 {
		return err
	}
	all := joined.Unwrap()
	return fmt.Errorf("%w (and %d more like it)", all[0], len(all)-1)
}

// refusal is a tocsin.ErrLayout whose text says everything.
type refusal string

func (r refusal) Error() string { return string(r) }
func (r refusal) Unwrap() error { return tocsin.ErrLayout }

// Horizon reads how near a task must be to ring the doorbell, from whichever
// server answers first.
func (s *Store) Horizon(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make([]time.Duration, len(s.servers))
	errs := make([]error, len(s.servers))
	var readers sync.WaitGroup
	for i, sv := range s.servers {
		readers.Go(func() {
			rows, err := s.layouts(ctx, sv)
			if len(rows) == 0 {
				errs[i] = err
				return
			}
			found[i] = rows[0].Horizon()
			cancel() // the others need not answer any more
		})
	}
	readers.Wait()
	for _, horizon := range found {
		if horizon > 0 {
			return horizon, nil
		}
	}
	return 0, errors.Join(append(errs, errNoHorizon)...)
}
