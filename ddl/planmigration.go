package ddl

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// migrationHead stands on top of each file. Its ALTERs wait, a second at most, rather than fail at once: MariaDB's own
// purge uses a table for a moment after each write, and a client stops at the first failure.
const migrationHead = `-- Tocsin schema, from version {from} to {version}, for server {server}: what it lacks now.
-- Programs may go on meanwhile. An ALTER waits for the transactions that use its table, and later statements on that table
-- wait behind it, for at most a second; then it fails. tocsin ddl apply does the same with waits of at most 0.1 seconds.
-- Where it stopped, run it again. MariaDB skips what is done; for MySQL, use the client's --force: each of its errors 1060,
-- duplicate column, is a table that is done. tocsin ddl verify counts them.
-- The last statement of each database writes its new version, and only if nothing is missing.
SET SESSION lock_wait_timeout = 1;
`

// PlanMigration gives per server what Apply would run there now: it looks at the servers and changes nothing.
func PlanMigration(ctx context.Context, cfg tocsin.Config, opt Options) ([]ServerPlan, error) {
	opt, err := opt.withDefaults(cfg)
	if err != nil {
		return nil, err
	}
	sites, err := surveySites(ctx, cfg, opt.Parallel)
	if err != nil {
		return nil, err
	}
	defer func() { _ = closeSites(sites) }()
	a := &application{opt: opt, layout: cfg.Layout, sites: sites}
	if err := a.agree(); err != nil {
		return nil, err
	}
	a.opt.Cluster = cmp.Or(a.opt.Cluster, newCluster(cfg.Layout))
	a.opt.Identity = cmp.Or(a.opt.Identity, plannedIdentity(cfg, a.opt.Cluster))
	want, err := expectationsAt(layoutrow.SchemaVersion)
	if err != nil {
		return nil, err
	}
	var plans []ServerPlan
	for _, s := range sites {
		u, err := s.needed(ctx, want)
		if err != nil {
			return nil, err
		}
		plans = append(plans, ServerPlan{Server: s.Name, Text: a.planUpgrade(u)})
	}
	return plans, nil
}

// planUpgrade writes the statements of one server.
func (a *application) planUpgrade(u *upgrade) string {
	var text strings.Builder
	text.WriteString(fill(migrationHead, slots{
		"from": cmp.Or(a.result.From, layoutrow.SchemaVersion), "version": layoutrow.SchemaVersion, "server": oneLine(u.Name),
	}))
	before := text.Len()
	for _, db := range u.Databases {
		row, ok := u.rows[db]
		if !ok {
			planDatabase(&text, a.layout, a.row(db))
			continue
		}
		a.planDatabase(&text, u, db, row)
	}
	if text.Len() == before {
		text.WriteString("\n-- Nothing: all its databases are of that version.\n")
	}
	return text.String()
}

// planDatabase writes what a database that stands lacks: tables, an identity, changes and the version.
func (a *application) planDatabase(text *strings.Builder, u *upgrade, db int, row layoutRow) {
	name := a.layout.Database(db)
	var statements []string
	if row.Identity == "" {
		statements = append(statements, a.row(db).mark(name))
	}
	for _, t := range tablesOf(a.layout, db) {
		if !u.tables[t.full()] {
			statements = append(statements, t.create())
		}
	}
	for _, c := range u.changes {
		if c.table.database == name {
			statements = append(statements, c.planned())
		}
	}
	if row.GraceMS == 0 {
		statements = append(statements, a.row(db).grace(name))
	}
	if row.Version < layoutrow.SchemaVersion {
		statements = append(statements, raise(a.layout, db))
	}
	if len(statements) > 0 {
		fmt.Fprintf(text, "\n-- Database %s, of schema version %d\n%s;\n", name, row.Version, strings.Join(statements, ";\n"))
	}
}
