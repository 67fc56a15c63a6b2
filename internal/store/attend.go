package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// attend writes that a node is there, in one database. Its arguments are the group, the node, and what the node says of
// itself, twice.
var attend = prepare(`
INSERT /* tocsin attend */ INTO {database}.node
    (group_name, node, seen, gmt_create, schema_version, about)
VALUES
    (?, ?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), {version}, ?)
ON DUPLICATE KEY UPDATE
    seen  = UTC_TIMESTAMP(3),
    about = ?`)

// attending reads the nodes that were seen in one database lately. Primary key, a row a node.
var attending = prepare(`
(SELECT /* tocsin attending */
    {database_no},
    group_name,
    node,
    TIMESTAMPDIFF(MICROSECOND, seen, UTC_TIMESTAMP(6)),
    schema_version,
    about
FROM {database}.node
WHERE seen >= UTC_TIMESTAMP(3) - INTERVAL {within} SECOND)`)

// depart removes one node of one database, and those of its group that were last seen an hour ago. Its arguments are the
// group and the node.
var depart = prepare(`
DELETE /* tocsin depart */ FROM {database}.node
WHERE group_name = ?
  AND (node = ? OR seen < UTC_TIMESTAMP(3) - INTERVAL 1 HOUR)`)

// Attendee is a node that has written its row into a database.
type Attendee struct {
	Database int
	Group    string
	Node     string
	Seen     time.Duration // ago, by the database's clock
	Schema   int           // version that its program is for
	About    string        // what the node says of itself
}

// Attend writes into each of a server's databases that a node is there. The first time, and then every hour, it also removes
// nodes of the group that were last seen an hour ago: they were killed. The error names the databases that failed; the others are written.
func (s *Store) Attend(ctx context.Context, server int, group, node, about string) error {
	err := s.inEach(ctx, server, attend, group, node, about, about)
	now, tidied := time.Now().Unix(), &s.servers[server].tidied
	if now-tidied.Load() >= 3600 {
		tidied.Store(now)
		err = errors.Join(err, s.inEach(ctx, server, depart, group, ""))
	}
	return err
}

// Depart removes a node from a server's databases.
func (s *Store) Depart(ctx context.Context, server int, group, node string) error {
	return s.inEach(ctx, server, depart, group, node)
}

// inEach sends a statement for each usable database of a server, one after the other. The error of the server ends it.
func (s *Store) inEach(ctx context.Context, server int, st statement, args ...any) error {
	sv := s.servers[server]
	var errs []error
	for _, database := range sv.refused().without(sv.Databases) {
		err := s.exec(ctx, database, st, slots{"version": layoutrow.SchemaVersion}, args...)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s in %s: %w", st.name, s.layout.Database(database), err))
		}
		if err != nil && !local(err) {
			break
		}
	}
	return s.wrap(errors.Join(errs...), "write the node", sv)
}

// Attending reads which nodes were seen within a time in a server's databases, sorted by database and node. Databases
// that can't be read are named in the error and hide no other.
func (s *Store) Attending(ctx context.Context, server int, within time.Duration) ([]Attendee, error) {
	all, err := everyDatabase(ctx, s, s.servers[server], question[Attendee]{
		statement: attending, in: slots{"within": int(within.Seconds())},
		scan: into(func(a *Attendee) []any {
			return []any{&a.Database, &a.Group, &a.Node, (*micros)(&a.Seen), &a.Schema, &a.About}
		}),
	})
	slices.SortFunc(all, func(a, b Attendee) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Node, b.Node))
	})
	return all, err
}
