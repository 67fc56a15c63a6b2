package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// A connection trusts the layout rows that were read over it. Survey and Measure see
// rows that change under a live connection.
const (
	trustConn = time.Hour
	lookAgain = time.Second // a connection that was refused a database looks again after this
)

// Unusable is the error of every statement to a database that must not be used. The
// statement was not sent.
type Unusable struct {
	Database int
	layoutrow.Problem
}

// Error names the database and the reason in one sentence.
func (u *Unusable) Error() string { return u.Why }

// Unwrap returns tocsin.ErrLayout if the database is not the config's, and the error
// of reading its layout row if there was one.
func (u *Unusable) Unwrap() (causes []error) {
	if u.Differs {
		causes = append(causes, tocsin.ErrLayout)
	}
	if u.Err != nil {
		causes = append(causes, u.Err)
	}
	return causes
}

// refusals are the databases of one server that must not be used, by number.
type refusals map[int]*Unusable

// sighted holds the refusals seen over one connection, the identity on which the
// databases agreed at that time, and the connection's id.
type sighted struct {
	refusals
	identity   *string
	connection uint64
}

// first returns the refusal of the first of the databases that is refused, as an
// error.
func (r refusals) first(databases []int) error {
	if len(r) == 0 {
		return nil
	}
	for _, database := range databases {
		if u := r[database]; u != nil {
			return u
		}
	}
	return nil
}

// missing joins the refusals that leave something out of an answer. The current rows of a database that has moved are in its new place.
func (r refusals) missing() error {
	var errs []error
	for _, database := range slices.Sorted(maps.Keys(r)) {
		if u := r[database]; !u.Moved {
			errs = append(errs, u)
		}
	}
	return errors.Join(errs...)
}

// whole returns the refusal of the server's first refused database, or one for all of
// them if they lack their tables.
func (r refusals) whole(sv *server) error {
	problems := make(map[int]layoutrow.Problem, len(r))
	for database, u := range r {
		problems[database] = u.Problem
	}
	first, wrong := layoutrow.First(sv.Name, sv.Databases, problems)
	if !wrong {
		return nil
	}
	return &Unusable{Problem: first}
}

// refused returns the refusals of the last Survey or Measure of the server.
func (sv *server) refused() refusals {
	if r := sv.refusals.Load(); r != nil {
		return *r
	}
	return nil
}

// conn takes a connection over which all of the databases may be used.
func (s *Store) conn(ctx context.Context, sv *server, databases []int) (*sql.Conn, error) {
	if err := sv.refused().first(databases); err != nil {
		return nil, err
	}
	conn, err := sv.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.admit(ctx, sv, conn, databases); err != nil {
		_ = conn.Close() // returns it to the pool
		return nil, err
	}
	return conn, nil
}

// admit refuses databases by what the server behind this connection says: another
// server may stand behind the address by now.
func (s *Store) admit(ctx context.Context, sv *server, conn *sql.Conn, databases []int) error {
	if err := sv.refused().first(databases); err != nil {
		return err
	}
	look := func(ctx context.Context) (seen sighted, err error) {
		if _, seen.refusals, err = s.refusalsOver(ctx, sv, conn); err == nil {
			seen.identity = s.agreed.Load()
			err = conn.QueryRowContext(ctx, "SELECT /* tocsin connection */ CONNECTION_ID()").Scan(&seen.connection)
		}
		return seen, err
	}
	seen, err := mysql.LookOnce(ctx, conn, trustConn, look)
	switch {
	case err == nil && *seen.identity != *s.agreed.Load():
		seen, err = mysql.LookOnce(ctx, conn, 0, look)
	case err == nil && seen.first(databases) != nil:
		seen, err = mysql.LookOnce(ctx, conn, lookAgain, look)
	}
	if err != nil {
		return err
	}
	return seen.first(databases)
}

// refusalsOver reads and judges the layout rows of a server's databases. An error
// concerns the whole server.
func (s *Store) refusalsOver(ctx context.Context, sv *server, q layoutrow.Queryer) (map[int]layoutrow.Row, refusals, error) {
	known := s.marks.Known()
	rows, failed, err := s.layouts(ctx, q, sv.Databases)
	if err != nil {
		return nil, nil, s.wrap(err, "read the layout", sv)
	}
	return rows, s.judge(sv, known, rows, failed), nil
}

// judge returns the databases of a server that must not be used, by their layout rows.
// It keeps the identities and marks of the others. known was taken before the rows were read.
func (s *Store) judge(sv *server, known layoutrow.Known, rows map[int]layoutrow.Row, failed map[int]error) refusals {
	want := s.want()
	s.identities.Note(want, slices.Collect(maps.Values(rows))...)
	want.Identity = s.identities.Agreed()
	s.agreed.Store(&want.Identity)
	where := func(database int) string { return s.layout.Database(database) + " on " + sv.Name }
	problems := want.Judge(sv.Databases, rows, failed, where)
	s.marks.Compare(known, rows, problems, where)
	sv.noteMarked(rows)
	for database, row := range rows {
		if _, wrong := problems[database]; !wrong {
			s.versions[database].Store(int32(row.Version))
			s.ownerships[database].Store(&row.Ownership)
			s.horizon.Store(row.HorizonMS)
		}
	}
	r := make(refusals)
	for database, problem := range problems {
		r[database] = &Unusable{database, problem}
	}
	return r
}

// refresh stores refusals that were just read over a connection. For a database whose
// row is locked it keeps the old verdict.
func (sv *server) refresh(now refusals) {
	old := sv.refused()
	for database, u := range now {
		if mysql.ClassOf(u.Err) != mysql.Contended {
			continue
		}
		if delete(now, database); old[database] != nil {
			now[database] = old[database]
		}
	}
	sv.refusals.Store(&now)
}

// allowed leaves out the tables of databases that must not be used, and calls fail
// for each.
func (s *Store) allowed(sv *server, tables []int, fail func(table int, err error)) []int {
	r := sv.refused()
	if len(r) == 0 {
		return tables
	}
	return slices.DeleteFunc(slices.Clone(tables), func(table int) bool {
		u := r[s.layout.DatabaseOf(table)]
		if u != nil {
			fail(table, u)
		}
		return u != nil
	})
}

// databasesIn returns the databases of tables, each once if the tables are in order.
func (s *Store) databasesIn(tables []int) []int {
	databases := make([]int, 0, 1)
	for _, table := range tables {
		database := s.layout.DatabaseOf(table)
		if n := len(databases); n == 0 || databases[n-1] != database {
			databases = append(databases, database)
		}
	}
	return databases
}
