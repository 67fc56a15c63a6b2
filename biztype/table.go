package biztype

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// selectTypes reads all biz types of one database.
const selectTypes = `SELECT /* tocsin biz read */
    number, name, group_name, policy, revision, gmt_modified
FROM {database}.biz_type
ORDER BY number`

// selectStamp tells cheaply whether anything changed: every change gives its type a higher
// revision, which two types that are changed at the same time may share, so they are
// added up. The table has a few rows. ours is 0 if the database is not the config's:
// its layout row shows why. Parameters: cluster id, twice ("" is any); database number.
const selectStamp = `SELECT /* tocsin biz poll */
    COALESCE(SUM(revision), 0) AS revisions,
    COUNT(*)                   AS types,
    (
        SELECT COUNT(*)
        FROM {database}.layout
        WHERE id = 1
            AND (? = '' OR cluster_id = ?)
            AND database_no = ?
            AND state = 'active'
    )                          AS ours
FROM {database}.biz_type`

// updateType changes one type. Parameters: group, policy, new revision; number,
// name, lowest and highest revision to replace. Zero rows: there is no such
// type, or its revision is another.
const updateType = `UPDATE /* tocsin biz apply */ {database}.biz_type
SET
    group_name   = ?,
    policy       = ?,
    revision     = ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE number = ?
    AND name = ?
    AND revision BETWEEN ? AND ?`

// insertType adds one type. Parameters: number, name, group, policy, revision.
const insertType = `INSERT /* tocsin biz apply */ INTO {database}.biz_type
    (number, name, group_name, policy, revision, gmt_modified)
VALUES
    (?, ?, ?, ?, ?, UTC_TIMESTAMP(3))`

// selectRevision reads one type's revision. Parameters: number, name.
const selectRevision = `SELECT /* tocsin biz apply */
    revision
FROM {database}.biz_type
WHERE number = ?
    AND name = ?`

// row is one biz type as it stands in a database.
type row struct {
	Number   uint64 `db:"number"`
	Name     string `db:"name"`
	Group    string `db:"group_name"`
	Policy   string `db:"policy"` // JSON
	Revision uint64 `db:"revision"`

	Modified time.Time `db:"gmt_modified"` // zero in a row that is to be written

	given bool // the number is new, and stands in the lowest database before it stands in others
}

// newRow gives the row of a policy, without a revision.
func newRow(p Policy) (row, error) {
	p.Group = p.WithDefaults().Group
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // a URL's & stays readable
	if err := enc.Encode(p); err != nil {
		return row{}, fmt.Errorf("biz type %s: %w", p.Name, err)
	}
	return row{Number: p.Number, Name: p.Name, Group: p.Group, Policy: strings.TrimSpace(text.String())}, nil
}

// decode reads the policy. The columns win over the JSON. Fields that a newer
// program wrote are ignored.
func (r row) decode() (Policy, error) {
	var p Policy
	if err := json.Unmarshal([]byte(r.Policy), &p); err != nil {
		return p, fmt.Errorf("biz type %s: policy of revision %d: %w", r.Name, r.Revision, err)
	}
	p.Number, p.Name, p.Group = r.Number, r.Name, r.Group
	return p, nil
}

// same reports whether both rows say the same, however their JSON is written.
func (r row) same(other row) bool {
	a, errA := r.canonical()
	b, errB := other.canonical()
	return errA == nil && errB == nil && a == b
}

func (r row) canonical() (row, error) {
	p, err := r.decode()
	if err != nil {
		return row{}, err
	}
	return newRow(p)
}

// database is one database and the types it held when it was read.
type database struct {
	server *mysql.Server
	want   layoutrow.Want
	number int
	name   string
	layout layoutrow.Row  // as read
	rows   map[uint64]row // by number
}

// sql puts the database's name into a statement. The layout's check has seen to
// it that the name needs no escaping.
func (d database) sql(query string) string {
	return strings.ReplaceAll(query, "{database}", "`"+d.name+"`")
}

// judge refuses a database that is not the config's: its policies are not ours.
func (d database) judge(ctx context.Context, over layoutrow.Queryer) (found layoutrow.Row, refused error) {
	rows, failed, err := layoutrow.Read(ctx, over, []int{d.number}, func(int) string { return d.name }, false)
	if err != nil {
		return found, d.explain("read", err)
	}
	problem, wrong := d.want.Judge([]int{d.number}, rows, failed, func(int) string { return d.where() })[d.number]
	if wrong {
		return found, &foreign{problem}
	}
	return rows[d.number], nil
}

// where names the database and its server: "toc_0 on db1".
func (d database) where() string { return d.name + " on " + d.server.Name }

// agree makes the databases want the identity that most of them have. It leaves out
// those with another one, which the error names.
func agree(all []database) (same []database, others error) {
	var identities layoutrow.Identities
	for _, d := range all {
		identities.Note(d.want, d.layout)
	}
	for _, d := range all {
		d.want.Identity = identities.Agreed()
		if text := d.want.Refuse(d.layout, d.where()); text != "" {
			others = errors.Join(others, &foreign{layoutrow.Problem{Why: text, Differs: true}})
			continue
		}
		same = append(same, d)
	}
	return same, others
}

// foreign is the error of a database that must not be used.
type foreign struct{ layoutrow.Problem }

func (f *foreign) Error() string { return f.Why }

func (f *foreign) Unwrap() (causes []error) {
	if f.Differs {
		causes = append(causes, tocsin.ErrLayout)
	}
	if f.Err != nil {
		causes = append(causes, f.Err)
	}
	return causes
}

// want returns what every layout row must say according to the config.
func want(cfg tocsin.Config) layoutrow.Want {
	return layoutrow.Want{Databases: cfg.Layout.Databases, Tables: cfg.Layout.Tables, Cluster: cfg.Cluster}
}

// read reads the types of a database that is the config's.
func (d *database) read(ctx context.Context) (rows []row, err error) {
	if d.layout, err = d.judge(ctx, d.server.DB); err != nil {
		return nil, err
	}
	err = d.server.DB.SelectContext(ctx, &rows, d.sql(selectTypes))
	return rows, d.explain("read", err)
}

// explain says on what err happened; nil stays nil.
func (d database) explain(verb string, err error) error {
	switch mysql.ClassOf(err) {
	case mysql.OK:
		return nil
	case mysql.Missing:
		return fmt.Errorf("server %s: %s biz types of %s: there is no table: run 'tocsin ddl apply' (%w)", d.server.Name, verb, d.name, err)
	}
	return fmt.Errorf("server %s: %s biz types of %s: %w", d.server.Name, verb, d.name, err)
}

// errChanged says that somebody else changed a type since it was read.
var errChanged = errors.New("was changed by somebody else meanwhile: apply again")

// write stores the changes of one database in one transaction. first demands
// that nothing has changed since it was read; the others only move forward.
func (d database) write(ctx context.Context, changes []change, first bool) error {
	err := mysql.Retry(ctx, func() error {
		return mysql.InTx(ctx, d.server.DB, func(conn *sql.Conn) error {
			if _, err := d.judge(ctx, conn); err != nil { // another server may stand behind the address by now
				return err
			}
			for _, c := range changes {
				if err := d.writeType(ctx, conn, c.row, first); err != nil {
					return fmt.Errorf("%s: %w", c.row.Name, err)
				}
			}
			return nil
		})
	})
	return d.explain("write", err)
}

func (d database) writeType(ctx context.Context, conn *sql.Conn, r row, first bool) error {
	low, high := uint64(0), r.Revision-1
	if first {
		low, high = d.rows[r.Number].Revision, d.rows[r.Number].Revision
	}
	res, err := conn.ExecContext(ctx, d.sql(updateType), r.Group, r.Policy, r.Revision, r.Number, r.Name, low, high)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	_, err = conn.ExecContext(ctx, d.sql(insertType), r.Number, r.Name, r.Group, r.Policy, r.Revision)
	if mysql.ClassOf(err) == mysql.Duplicate {
		return d.overtaken(ctx, conn, r, first)
	}
	return err
}

// overtaken decides what a row that is in the way means: behind the first
// database, a later change that got here before us is fine.
func (d database) overtaken(ctx context.Context, conn *sql.Conn, r row, first bool) error {
	var revision uint64
	err := conn.QueryRowContext(ctx, d.sql(selectRevision), r.Number, r.Name).Scan(&revision)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (first || revision < r.Revision) {
		return errChanged
	}
	return err
}

// openServers makes a small pool per server. The caller closes them.
func openServers(cfg tocsin.Config, conns int) ([]*mysql.Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return client.OpenServers(cfg, conns)
}
