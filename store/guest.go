package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"
)

// Transact runs fn in a transaction of one database, and repeats it after a deadlock. It refuses a database that must not
// be used. It is for packages that have statements of their own. If the answer to the commit is lost, the error has the class
// Lost, and the transaction may have been committed.
func (s *Store) Transact(ctx context.Context, database int, fn func(*sql.Conn) error) error {
	return s.transactIn(ctx, s.servers[s.home[database]], []int{database}, fn)
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

// Gather asks databases of one server one question, all in one round trip. {database} in the question is the name of each,
// and args are the parameters for each. What other databases answered stands beside the error of one.
func Gather[T any](ctx context.Context, s *Store, server int, databases []int, name, question string, scan func(*sql.Rows) (T, error), args ...any) ([]T, error) {
	sv := s.servers[server]
	text := func(b []byte, database int) []byte {
		return append(b, "("+strings.ReplaceAll(question, "{database}", s.layout.Database(database))+")"...)
	}
	all, failed, err := eachDatabase(ctx, s.gated(sv), name, databases, text, scan, args...)
	return all, s.unread(sv, name, failed, err)
}
