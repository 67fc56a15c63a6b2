package store

// The statements about owner rows, except fence, which is in sql.go.

// own records who took the tables of one database, each unless a later revision took
// it. The columns change in the order of the list, so revision comes last. {rows} are
// (group, table, node, revision, time).
var own = prepare(`
INSERT /* tocsin own */ INTO {database}.owner
    (group_name, table_no, node, revision, gmt_modified)
VALUES {rows}
ON DUPLICATE KEY UPDATE
    node         = IF(VALUES(revision) > revision, VALUES(node), node),
    gmt_modified = IF(VALUES(revision) > revision, VALUES(gmt_modified), gmt_modified),
    revision     = GREATEST(VALUES(revision), revision)`)

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
    (?, 0, ?, {revision}, UTC_TIMESTAMP(3))
ON DUPLICATE KEY UPDATE
    node         = IF(VALUES(revision) > revision, VALUES(node), node),
    gmt_modified = IF(VALUES(revision) > revision, VALUES(gmt_modified), gmt_modified),
    revision     = GREATEST(VALUES(revision), revision)`)

// owners reads who took the tables of one database last. Its argument is the group.
var owners = prepare(`
SELECT /* tocsin owners */
    table_no,
    node
FROM {database}.owner
WHERE group_name = ?`)
