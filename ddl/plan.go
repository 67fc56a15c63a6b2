package ddl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// planWait and migrationWait are how long a statement of a plan waits for locks. So it fails rather than queue behind a long transaction
// with everybody else behind it.
const (
	planWait      = 5 * time.Second
	migrationWait = time.Second
)

// planHead stands on top of each file. The prelude sets what the statements rely on, whatever the server's defaults are.
const planHead = `-- Tocsin schema, version {version}, for server {server}: databases {databases} of layout {layout}, cluster {cluster}.
-- The cluster's identity is {identity}, on all servers.
-- Run it as a user who may create databases and tables. It drops and alters nothing,
-- and may be run again; where it stopped, run it again.
{prelude}`

// ServerPlan is everything to run on one server, in order.
type ServerPlan struct {
	Server string // its name
	Text   string // statements with comments, as the mariadb and mysql clients take them
}

// Plan returns, per server, what Apply would run on an empty one. It connects to
// nothing. Running all of it has exactly the effect of Apply. If neither opt nor cfg
// names a cluster id, Plan makes one: then all servers must be given the files of the
// same plan. The identity is opt's, or else derived from cfg.
func Plan(cfg tocsin.Config, opt Options) ([]ServerPlan, error) {
	opt, err := opt.withDefaults(cfg)
	if err != nil {
		return nil, err
	}
	opt.Cluster = cmp.Or(opt.Cluster, newCluster(cfg.Layout))
	opt.Identity = cmp.Or(opt.Identity, plannedIdentity(cfg, opt.Cluster))
	var plans []ServerPlan
	for _, spec := range client.Specs(cfg) {
		var text strings.Builder
		text.WriteString(fill(planHead, slots{
			"version": layoutrow.SchemaVersion, "server": oneLine(spec.Name), "databases": databasesOf(cfg.Layout, spec), "layout": cfg.Layout,
			"cluster": opt.Cluster, "identity": opt.Identity, "prelude": mysql.Prelude(planWait),
		}))
		for _, db := range spec.Databases {
			planDatabase(&text, cfg.Layout, newRow(cfg.Layout, db, opt))
		}
		plans = append(plans, ServerPlan{Server: spec.Name, Text: text.String()})
	}
	return plans, nil
}

// oneLine fits a server's name into a comment.
func oneLine(name string) string { return strings.ReplaceAll(name, "\n", " ") }

// databasesOf names the databases of a server: toc_0, toc_1.
func databasesOf(layout tocsin.Layout, spec mysql.Spec) string {
	var names []string
	for _, db := range spec.Databases {
		names = append(names, layout.Database(db))
	}
	return strings.Join(names, ", ")
}

// planDatabase writes the statements of one database. The comment of an SQL
// file stands above the first table made from it.
func planDatabase(text *strings.Builder, layout tocsin.Layout, row layoutRow) {
	name := layout.Database(row.Number)
	fmt.Fprintf(text, "\n-- Database %s\n%s;\n", name, in(name, createDatabase))
	last := ""
	for _, t := range tablesOf(layout, row.Number) {
		text.WriteString("\n")
		if t.file != last {
			text.WriteString(remark(t.file) + "\n")
		}
		text.WriteString(t.create() + ";\n")
		if t.file == layoutTable {
			for _, statement := range []string{row.insert(name), row.mark(name)} {
				text.WriteString("\n" + statement + ";\n")
			}
		}
		last = t.file
	}
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// WritePlan writes each plan into a file of dir, named after its server
// ("db1.sql"), and returns their paths. dir is made if missing; a file that is
// there is refused unless it says the same.
func WritePlan(dir string, plans []ServerPlan) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	paths := make([]string, len(plans))
	taken := map[string]string{}
	for i, p := range plans {
		file := strings.TrimLeft(unfit.ReplaceAllString(p.Server, "_"), ".") + ".sql"
		if other, ok := taken[file]; ok {
			return nil, fmt.Errorf("servers %s and %s would share the file %s: give them names that differ", other, p.Server, file)
		}
		taken[file] = p.Server
		paths[i] = filepath.Join(dir, file)
		if err := writeNew(paths[i], p.Text); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// writeNew never overwrites: somebody may have reviewed and edited the file.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		if old, err := os.ReadFile(path); err == nil && string(old) == text {
			return nil
		}
		return fmt.Errorf("%s is there and says something else: remove it or choose another folder", path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// migrationHead stands on top of each file. Its ALTERs wait, a second at most, rather than fail at once: MariaDB's own
// purge uses a table for a moment after each write, and a client stops at the first failure.
const migrationHead = `-- Tocsin schema, from version {from} to {version}, for server {server}: what it lacks now.
-- Programs may go on meanwhile. An ALTER waits for the transactions that use its table, and later statements on that table
-- wait behind it, for at most a second; then it fails. tocsin ddl apply does the same with waits of at most 0.1 seconds.
-- Where it stopped, run it again. MariaDB skips what is done; for MySQL, use the client's --force: each of its errors 1060,
-- duplicate column, is a table that is done. tocsin ddl verify counts them.
-- The last statement of each database writes its new version, and only if nothing is missing.
{prelude}`

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
	want := expectationsAt(layoutrow.SchemaVersion)
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
		"from": cmp.Or(a.result.From, layoutrow.SchemaVersion), "version": layoutrow.SchemaVersion, "server": oneLine(u.Name), "prelude": mysql.Prelude(migrationWait),
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
