package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

// Transact runs fn in a transaction of one database, and repeats it after a deadlock. It refuses a database that must not
// be used. It is for packages that have statements of their own. If the answer to the commit is lost, the error has the class
// Lost, and the transaction may have been committed.
func (s *Store) Transact(ctx context.Context, database int, fn func(*sql.Conn) error) error {
	return s.transactIn(ctx, s.homeOf(database), []int{database}, fn)
}

// HeldIn refuses what is no transaction (ErrInvalid), and one whose server does not hold a database of the config (ErrOtherServer).
// It sends nothing to a PostgreSQL server that this refuses.
func (s *Store) HeldIn(ctx context.Context, tx tocsin.Tx, database int) error {
	if err := client.NoTx(ctx, tx); err != nil {
		return err
	}
	sv := s.homeOf(database)
	if err := sv.refused().first([]int{database}); err != nil {
		return err
	}
	var product string
	err := s.read(ctx, tx, "product", []byte("SELECT /* tocsin product */ VERSION()"), scanOne(&product))
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(product, "PostgreSQL"):
		return fmt.Errorf("%w: %s is on server %s, and this transaction on PostgreSQL", tocsin.ErrOtherServer, s.layout.Database(database), sv.Name)
	}
	rows, failed, err := s.layouts(ctx, tx, []int{database})
	if err != nil {
		return err
	}
	want := s.want()
	want.Identity = s.Identity()
	where := func(int) string { return s.layout.Database(database) + " on this transaction's server" }
	if p, wrong := want.Judge([]int{database}, rows, failed, where)[database]; wrong {
		return fmt.Errorf("%w: %s is on server %s: %s", tocsin.ErrOtherServer, s.layout.Database(database), sv.Name, p.Why)
	}
	return nil
}

// ReadIn sends statements, one or several in one round trip, and hands over each row with the number of its result set. It is for
// packages that have statements of their own, inside Transact or a caller's transaction.
func (s *Store) ReadIn(ctx context.Context, in tocsin.Tx, query string, args []any, scan func(set int, rows *sql.Rows) error) error {
	return s.read(ctx, in, senderIn(query), []byte(query), scan, args...)
}

// Observe counts a round trip in the metrics by statement, under the word in its comment. It is for packages that have
// statements of their own, inside Transact.
func (s *Store) Observe(query string, start time.Time, err error) {
	s.metrics.observe(senderIn(query), start, 0, err)
}

// Databases returns the numbers of a server's databases that may be used and had at least this schema version when they
// were last looked at.
func (s *Store) Databases(server, version int) []int {
	sv := s.servers[server]
	return slices.DeleteFunc(sv.refused().without(sv.Databases), func(database int) bool { return int(s.versions[database].Load()) < version })
}

// Gather asks databases of one server one question, all in one round trip. {database} in the query is the name of each,
// and args are the parameters for each. If one fails, the answers of the others are returned with the error.
func Gather[T any](ctx context.Context, s *Store, server int, databases []int, name, query string, scan func(*sql.Rows) (T, error), args ...any) ([]T, error) {
	sv := s.servers[server]
	text := func(b []byte, database int) []byte {
		return append(b, "("+strings.ReplaceAll(query, "{database}", s.layout.Database(database))+")"...)
	}
	all, failed, err := eachDatabase(ctx, s, s.gated(sv), databases, question[T]{statement: statement{name: name}, text: text, scan: scan, args: args})
	return all, s.unread(sv, name, failed, err)
}
