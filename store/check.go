package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// errNoHorizon ends Horizon where no database answered.
var errNoHorizon = errors.New("no reachable database has a layout row: run `tocsin ddl apply`")

// layoutRow is what a database says it is part of.
type layoutRow struct {
	asked     int // the database's number by the config
	cluster   string
	number    int // and by itself
	databases int
	tables    int
	hash      string
	horizon   time.Duration
	version   int // of its schema
	worksWith int // the oldest version that programs may expect
	state     string
}

func scanLayout(rows *sql.Rows) (r layoutRow, err error) {
	var millis int64
	err = rows.Scan(&r.asked, &r.cluster, &r.number, &r.databases, &r.tables, &r.hash, &millis,
		&r.version, &r.worksWith, &r.state)
	r.horizon = time.Duration(millis) * time.Millisecond
	return r, err
}

// Check compares what a server's databases say of themselves with the config
// and refuses the first difference, naming both sides.
func (s *Store) Check(ctx context.Context, server int) error {
	sv := s.servers[server]
	rows, err := s.layouts(ctx, sv)
	if mysql.ClassOf(err) == mysql.Missing {
		return fmt.Errorf("server %s lacks Tocsin tables, run `tocsin ddl apply`: %w", sv.Name, firstOf(err))
	}
	if err != nil {
		return err
	}
	cluster := s.cluster
	for i, row := range rows {
		where := s.layout.Database(row.asked) + " on " + sv.Name
		if err := s.differs(row, cluster, where); err != nil {
			return err
		}
		if i == 0 {
			cluster = row.cluster // of all the others too
		}
	}
	if missing := len(sv.Databases) - len(rows); missing > 0 {
		return fmt.Errorf("%d of the %d databases on %s have no layout row: run `tocsin ddl apply`", missing, len(sv.Databases), sv.Name)
	}
	return nil
}

func (s *Store) layouts(ctx context.Context, sv *server) ([]layoutRow, error) {
	text := func(b []byte, database int) []byte {
		return layoutOf.render(b, func(b []byte, slot string) []byte { return s.fillDatabase(b, slot, database) })
	}
	return everyDatabase(ctx, s, sv, layoutOf.name, text, scanLayout)
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

// differs compares one database's own account with the config, as tocsin.Open
// does.
func (s *Store) differs(r layoutRow, cluster, where string) error {
	const needs, ours = tocsin.SchemaVersion, "crc32"
	var text string
	switch stored := (tocsin.Layout{Databases: r.databases, Tables: r.tables}); {
	case stored.String() != s.layout.String():
		text = fmt.Sprintf("layout of the config is %s, that of %s is %s", s.layout, where, stored)
	case cluster != "" && cluster != r.cluster:
		text = fmt.Sprintf("cluster of the config is %q, that of %s is %q", cluster, where, r.cluster)
	case r.number != r.asked:
		text = fmt.Sprintf("database %d of the config, %s, says that it is database %d", r.asked, where, r.number)
	case r.hash != ours:
		text = fmt.Sprintf("this program places tasks by %q, %s by %q", ours, where, r.hash)
	case r.version < needs:
		text = fmt.Sprintf("this program needs schema version %d, %s has %d: run `tocsin ddl apply`", needs, where, r.version)
	case r.worksWith > needs:
		text = fmt.Sprintf("this program knows schema version %d, %s works with %d or newer only: upgrade the program", needs, where, r.worksWith)
	case r.state != "active":
		text = fmt.Sprintf("%s is %s: its tables have moved, correct the servers of the config", where, r.state)
	default:
		return nil
	}
	return refusal(text)
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
			found[i] = rows[0].horizon
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
