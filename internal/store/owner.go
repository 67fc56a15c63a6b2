package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// laterWins keeps the row of the higher revision. The columns change in the order of the list, so revision comes last.
const laterWins = `
ON DUPLICATE KEY UPDATE
    node         = IF(VALUES(revision) > revision, VALUES(node), node),
    gmt_modified = IF(VALUES(revision) > revision, VALUES(gmt_modified), gmt_modified),
    revision     = GREATEST(VALUES(revision), revision)`

// own records who took the tables of one database, each unless a later revision took
// it. {rows} are (group, table, node, revision, time).
var own = prepare(`
INSERT /* tocsin own */ INTO {database}.owner
    (group_name, table_no, node, revision, gmt_modified)
VALUES {rows}` + laterWins)

var ownRow = prepare(`(?, {table_no}, ?, {revision}, UTC_TIMESTAMP(3))`)

// others reads the rows of tables of one database that name another node. Its
// arguments are the group and the node. Primary key.
var others = prepare(`
SELECT /* tocsin others */
    table_no,
    revision
FROM {database}.owner
WHERE group_name = ?
  AND table_no IN ({tables})
  AND node <> ?`)

// latest reads the highest revision at which a table of one database was taken, and
// the reserved revision; 0: none. Its arguments are the group and the name of its
// mark, twice. Primary key, one row a table.
var latest = prepare(`
SELECT /* tocsin latest */
    COALESCE(MAX(IF(group_name = ?, revision, 0)), 0),
    COALESCE(MAX(IF(group_name = ?, revision, 0)), 0)
FROM {database}.owner
WHERE group_name IN (?, ?)`)

// reserve raises the reserved revision in one database. Its arguments are the name of
// the group's mark and the node. Zero rows: one at least as high was reserved before.
var reserve = prepare(`
INSERT /* tocsin reserve */ INTO {database}.owner
    (group_name, table_no, node, revision, gmt_modified)
VALUES
    (?, 0, ?, {revision}, UTC_TIMESTAMP(3))` + laterWins)

// owners reads who took the tables of one database last. Its argument is the group.
var owners = prepare(`
SELECT /* tocsin owners */
    table_no,
    node
FROM {database}.owner
WHERE group_name = ?`)

// Own records that a node took tables for a group, each at a revision, as the fence
// for claims. A row of another node with a higher revision stays. Databases are
// written at the same time. The error, an *Unowned, holds the databases that failed
// and the tables whose rows stayed; all others are written. It may be repeated.
func (s *Store) Own(ctx context.Context, group, node string, revisions map[int]int64) error {
	tables := slices.Sorted(maps.Keys(revisions))
	for _, table := range tables {
		if s.ServerOf(table) < 0 {
			return fmt.Errorf("own: %w", s.refuse(0, table))
		}
	}
	parts := s.byDatabase(tables)
	errs, late := make([]error, len(parts)), make([]map[int]int64, len(parts))
	EachServer(len(parts), func(i int) { late[i], errs[i] = s.ownIn(ctx, parts[i], group, node, revisions) })
	not := &Unowned{Failed: make(map[int]error), Overtaken: make(map[int]int64)}
	for i, err := range errs {
		if err != nil {
			not.Failed[parts[i].database] = err
		}
		maps.Copy(not.Overtaken, late[i])
	}
	if len(not.Failed)+len(not.Overtaken) == 0 {
		return nil // not a nil *Unowned as an error
	}
	return not
}

// Unowned is the error of an Own that failed for some tables.
type Unowned struct {
	Failed    map[int]error // by database
	Overtaken map[int]int64 // table -> higher revision of another node's row
}

// Error joins the errors of the databases.
func (u *Unowned) Error() string { return errors.Join(u.Unwrap()...).Error() }

// Unwrap returns the errors in order of their databases.
func (u *Unowned) Unwrap() (all []error) {
	for _, database := range slices.Sorted(maps.Keys(u.Failed)) {
		all = append(all, u.Failed[database])
	}
	if n := len(u.Overtaken); n > 0 {
		all = append(all, fmt.Errorf("the owner rows of %d tables name other nodes at higher revisions, that of table %d at %d",
			n, u.Highest(), u.Overtaken[u.Highest()]))
	}
	return all
}

// Highest returns the table whose row has the highest revision; among equals, the
// lowest table number.
func (u *Unowned) Highest() int {
	return slices.MinFunc(slices.Collect(maps.Keys(u.Overtaken)), func(a, b int) int {
		return cmp.Or(cmp.Compare(u.Overtaken[b], u.Overtaken[a]), cmp.Compare(a, b))
	})
}

// ownIn writes the rows of one database, at most maxIDs in a statement. It returns
// the revisions of the rows that stayed, which name another node.
func (s *Store) ownIn(ctx context.Context, part tablesIn, group, node string, revisions map[int]int64) (late map[int]int64, err error) {
	late = make(map[int]int64)
	for tables := range slices.Chunk(part.tables, maxIDs) {
		var rows []byte
		var args []any
		for i, table := range tables {
			if i > 0 {
				rows = append(rows, ',')
			}
			rows = ownRow.render(rows, s.ofTable(table, slots{"revision": revisions[table]}))
			args = append(args, group, node)
		}
		err := mysql.Retry(ctx, func() error { return s.exec(ctx, part.database, own, slots{"rows": rows}, args...) })
		var stayed []owner
		if err == nil {
			stayed, err = inDatabase(ctx, s, part.database, question[owner]{
				statement: others, in: slots{"tables": tables}, args: []any{group, node},
				scan: into(func(o *owner) []any { return []any{&o.table, &o.revision} }),
			})
		}
		if err != nil {
			return nil, s.wrap(err, "own for node "+node, s.homeOf(part.database), tables...)
		}
		for _, o := range stayed {
			late[o.table] = o.revision
		}
	}
	return late, nil
}

// OwnerRevisions are the highest revisions in the owner rows of a group.
type OwnerRevisions struct {
	Taken     int64 // of a table; 0: none was ever taken
	Reserved  int64 // see Reserve; 0: none was reserved
	Databases int   // number that could be read
}

// OwnerRevisions reads the highest revisions from all servers at once. Databases that
// can't be read are left out and named in the error.
func (s *Store) OwnerRevisions(ctx context.Context, group string) (all OwnerRevisions, err error) {
	mark := markOf(group)
	ask := question[OwnerRevisions]{
		statement: latest, args: []any{group, mark, group, mark},
		scan: into(func(r *OwnerRevisions) []any { return []any{&r.Taken, &r.Reserved} }),
	}
	found, errs := make([][]OwnerRevisions, len(s.servers)), make([]error, len(s.servers))
	EachServer(len(s.servers), func(server int) { found[server], errs[server] = everyDatabase(ctx, s, s.servers[server], ask) })
	for _, r := range slices.Concat(found...) {
		all.Taken, all.Reserved = max(all.Taken, r.Taken), max(all.Reserved, r.Reserved)
		all.Databases++
	}
	return all, errors.Join(errs...)
}

// markOf returns the group_name of the row that holds a group's reserved revision. No
// group has such a name. Groups whose names differ only in the last of 64 letters
// share one, which does no harm.
func markOf(group string) string { return "#" + group[:min(len(group), 63)] }

// Reserve stores a revision for a group in every database that answers, if it is
// above all that were reserved there before. It reports whether it was. If several
// nodes reserve the same revision at the same time, the first server that answers
// decides, and one of them succeeds. While some of them can't reach that server, it
// may be that none succeeds.
func (s *Store) Reserve(ctx context.Context, group, node string, revision int64) (bool, error) {
	row := func(ctx context.Context, sv *server) reserved { return s.reserveOn(ctx, sv, group, node, revision) }
	var all reserved
	rest := s.servers
	for len(rest) > 0 && all.raised == 0 && !all.lost {
		all.add(inHalfTheTime(ctx, rest[0], row))
		rest = rest[1:]
	}
	if !all.lost {
		found := make([]reserved, len(rest))
		EachServer(len(rest), func(i int) { found[i] = row(ctx, rest[i]) })
		for _, r := range found {
			all.add(r)
		}
	}
	switch {
	case all.lost:
		return false, nil
	case all.raised == 0:
		return false, all.failed
	}
	return true, nil
}

// reserved is the result of a reservation.
type reserved struct {
	raised int   // number of databases
	lost   bool  // a database had this revision or a higher one
	failed error // joined errors of databases
}

func (r *reserved) add(b reserved) {
	r.raised, r.lost, r.failed = r.raised+b.raised, r.lost || b.lost, errors.Join(r.failed, b.failed)
}

// inHalfTheTime runs do with half of the time that ctx has left, and so leaves half
// for other servers.
func inHalfTheTime(ctx context.Context, sv *server, do func(context.Context, *server) reserved) reserved {
	if until, limited := ctx.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(until)/2)
		defer cancel()
	}
	return do(ctx, sv)
}

// reserveOn reserves on one server, until a database already has the revision.
func (s *Store) reserveOn(ctx context.Context, sv *server, group, node string, revision int64) (all reserved) {
	for _, database := range sv.Databases {
		raised, err := s.change(ctx, database, reserve, s.ofDatabase(database, slots{"revision": revision}), markOf(group), node)
		switch {
		case err != nil:
			all.failed = errors.Join(all.failed, s.wrap(err, "reserve a revision in "+s.layout.Database(database), sv))
		case raised == 0:
			all.lost = true
			return all
		default:
			all.raised++
		}
	}
	return all
}

// Owners reads which node took each table of a server last, for a group. Tables
// that nobody ever took are not among them.
func (s *Store) Owners(ctx context.Context, server int, group string) (map[int]string, error) {
	sv := s.servers[server]
	all, err := everyDatabase(ctx, s, sv, question[owner]{statement: owners, scan: scanOwner, args: []any{group}})
	nodes := make(map[int]string, len(all))
	for _, o := range all {
		nodes[o.table] = o.node
	}
	return nodes, errors.Join(err, sv.refused().missing())
}

// owner is a row of owners, fence or others.
type owner struct {
	table    int
	node     string
	revision int64 // in others
}

func scanOwner(rows *sql.Rows) (o owner, err error) {
	err = rows.Scan(&o.table, &o.node)
	return o, err
}
