package ddl

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
)

// Outbox says where the table of an outbox is, or is to be.
type Outbox struct {
	DSN   string      // of the business server; PlanOutbox does not use it
	TLS   *tls.Config // overrides the DSN; nil: the DSN decides
	Table string      // database.table
}

// outboxLock lets one ApplyOutbox at a time make the outboxes of a server, so that one says that it made a table, and a second
// identity does not replace the first. outboxWait is how long the others wait.
var outboxLock = userLock{name: "tocsin-outbox", command: "tocsin outbox apply"}

const outboxWait = 30 * time.Second

// outboxFile is the SQL file of the table.
const outboxFile = "outbox"

// table checks the name and returns the table.
func (o Outbox) table() (table, error) {
	if err := outbox.CheckTable(o.Table); err != nil {
		return table{}, err
	}
	database, name := outbox.Split(o.Table)
	if database == "" {
		return table{}, fmt.Errorf("outbox table %q: name its database too: shop.%s", o.Table, o.Table)
	}
	return table{file: outboxFile, database: database, name: name}, nil
}

// PlanOutbox returns what ApplyOutbox would run, and the rights that users need. It connects to nothing.
func PlanOutbox(o Outbox) (string, error) {
	t, err := o.table()
	if err != nil {
		return "", err
	}
	return fill(t.in(outboxHead), slots{"prelude": mysql.Prelude(planWait)}) + remark(outboxFile) + "\n" + t.create() + ";\n\n" + t.in(identifyOutbox) + ";\n" + t.in(outboxRights), nil
}

// ApplyOutbox makes the table, in a database that must be there, and gives it an identity. It reports whether the table
// is new: to one of those that run at once. It leaves an outbox that is there as it is: VerifyOutbox says what differs. A table that is no outbox is an error.
func ApplyOutbox(ctx context.Context, o Outbox) (created bool, err error) {
	t, err := o.table()
	if err != nil {
		return false, err
	}
	s, err := o.open()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.DB.Close()) }()
	unlock, err := s.lock(ctx, outboxLock, outboxWait)
	if err != nil {
		return false, err
	}
	defer unlock()
	there, err := s.outboxThere(ctx, t)
	if err != nil {
		return false, err
	}
	for _, statement := range []string{t.create(), t.in(identifyOutbox)} {
		err := mysql.ExecBriefly(ctx, s.DB, patience, statement)
		if err != nil && mysql.ClassOf(err) == mysql.Missing {
			return false, fmt.Errorf("server %s has no database %s: an outbox stands in a database of yours (%w)", s.Name, t.database, err)
		}
		if err != nil {
			return false, fmt.Errorf("make outbox %s on %s: %w", t.full(), s.Name, err)
		}
	}
	return !there, nil
}

// outboxThere reports whether the table is there. A table of another kind is an error.
func (s *site) outboxThere(ctx context.Context, t table) (bool, error) {
	var tables, columns int
	err := s.DB.GetContext(ctx, &tables, t.in(selectOutboxes))
	if err == nil {
		err = s.DB.GetContext(ctx, &columns, t.in(selectOutboxColumns))
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("look for outbox %s on %s: %w", t.full(), s.Name, err)
	case tables > 0 && columns < 4:
		return true, fmt.Errorf("table %s on %s is no outbox, and is left as it is: name a table that is not there yet, such as %s.%s",
			t.full(), s.Name, t.database, outbox.DefaultTable)
	}
	return tables > 0, nil
}

func (o Outbox) open() (*site, error) {
	server, err := mysql.Open(mysql.Spec{DSN: o.DSN, TLS: o.TLS, MaxConns: 3})
	if err != nil {
		return nil, err
	}
	return &site{Server: server}, nil
}

// VerifyOutbox compares the table with what the SQL file describes, and its server with what a relay needs; no finding:
// all is well. It changes nothing.
func VerifyOutbox(ctx context.Context, o Outbox) (findings []Finding, err error) {
	t, err := o.table()
	if err != nil {
		return nil, err
	}
	s, err := o.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.DB.Close()) }()
	found, err := s.inspect(ctx, t.database)
	if err != nil {
		return nil, err
	}
	form, err := s.known(ctx)
	if err != nil {
		return nil, err
	}
	r, stored := &report{server: s.Name}, found[form(t.name)]
	if stored == nil {
		r.add(t.full(), "is missing: run `tocsin outbox apply`")
	} else {
		r.table(t.full(), expected(outboxFile), stored)
		err = s.identified(ctx, t, r)
	}
	return r.findings, errors.Join(err, s.fit(ctx, t, r))
}

// identified looks for the identity.
func (s *site) identified(ctx context.Context, t table, r *report) error {
	var comment string
	if err := s.DB.GetContext(ctx, &comment, selectOutboxComment, t.database, t.name); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read the comment of %s on %s: %w", t.full(), s.Name, err)
	}
	if outbox.Identity(comment) == "" {
		r.add(t.full(), fmt.Sprintf("has the comment %q, want %q and an identity: run `tocsin outbox apply`", comment, outbox.Comment))
	}
	return nil
}

// fit looks at the server's settings. A relay reads at READ COMMITTED, as REPEATABLE READ would block the writers, and a
// server that logs statements refuses its writes then.
func (s *site) fit(ctx context.Context, t table, r *report) error {
	var rows []struct {
		Name  string `db:"Variable_name"`
		Value string `db:"Value"`
	}
	if err := s.DB.SelectContext(ctx, &rows, selectOutboxServer); err != nil {
		return fmt.Errorf("read the settings of %s: %w", s.Name, err)
	}
	settings := map[string]string{}
	for _, r := range rows {
		settings[strings.ToLower(r.Name)] = strings.ToUpper(r.Value)
	}
	if settings["log_bin"] == "ON" && settings["binlog_format"] == "STATEMENT" {
		r.add(t.full(), "is on a server with binlog_format STATEMENT, which refuses the writes of a relay: set ROW or MIXED")
	}
	why, err := mysql.ReadOnly(ctx, s.DB)
	if err != nil {
		return fmt.Errorf("ask %s whether it takes writes: %w", s.Name, err)
	}
	if why != "" {
		r.add(t.full(), "is on a server that is read-only, "+why+": name the primary")
	}
	return nil
}

// identifyOutbox gives an outbox its identity, random, in the comment of its table, and leaves one that is there. A relay
// notes what it has moved under the identity. It is made by the server, so that the same file may be run for several
// outboxes.
//
// A table without the columns of an outbox keeps its comment: somebody has named the wrong table.
const identifyOutbox = "SET @tocsin_outbox = IF((" + selectOutboxes + `
    AND table_comment REGEXP '^tocsin outbox [0-9A-Za-z._-]{1,64}$') > 0 OR (` + selectOutboxColumns + `) < 4, 'DO 0',
    CONCAT('ALTER /* tocsin outbox */ TABLE ` + "`{database}`.`{table}`" + ` COMMENT = ''tocsin outbox ', REPLACE(UUID(), '-', ''), ''''));
PREPARE tocsin_outbox FROM @tocsin_outbox;
EXECUTE tocsin_outbox;
DEALLOCATE PREPARE tocsin_outbox`

// selectOutboxes counts the tables of that name.
const selectOutboxes = `SELECT /* tocsin outbox */
    COUNT(*)
FROM information_schema.tables
WHERE table_schema = '{database}'
    AND table_name = '{table}'`

// selectOutboxColumns counts which of four columns the table has that no other table is likely to have all of.
const selectOutboxColumns = `SELECT /* tocsin outbox */
    COUNT(*)
FROM information_schema.columns
WHERE table_schema = '{database}'
    AND table_name = '{table}'
    AND column_name IN ('op', 'biz_type', 'delay_ms', 'last_error')`

// selectOutboxComment reads the comment of the table. Parameters: database, table.
const selectOutboxComment = `SELECT /* tocsin outbox verify */
    table_comment
FROM information_schema.tables
WHERE table_schema = ?
    AND table_name = ?`

// selectOutboxServer reads how the server writes its binary log. MySQL 9 may lack a variable.
const selectOutboxServer = `SHOW /* tocsin outbox verify */ GLOBAL VARIABLES
WHERE variable_name IN ('log_bin', 'binlog_format')`

// outboxHead stands above the statements of a plan.
const outboxHead = `-- An outbox of Tocsin, {database}.{table}. Run it as a user who may create and alter that table. It drops nothing and may be
-- run again.
{prelude}
`

// outboxRights stands below them. The rights on columns are all that a relay may change of a row.
const outboxRights = `
-- The rights that users need. A service that adds, cancels and reschedules:
--     GRANT INSERT ON ` + "`{database}`.`{table}`" + ` TO 'service'@'%';
-- A relay:
--     GRANT SELECT, DELETE, UPDATE (attempts, last_error) ON ` + "`{database}`.`{table}`" + ` TO 'tocsin_relay'@'%';
-- An audit of outboxes:
--     GRANT SELECT ON ` + "`{database}`.`{table}`" + ` TO 'tocsin_audit'@'%';
`
