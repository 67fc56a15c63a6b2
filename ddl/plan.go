package ddl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/seam"
)

// planHead stands on top of each file. The low lock wait lets a statement fail
// rather than queue behind a long transaction with everybody else behind it.
const planHead = `-- Tocsin schema, version {version}, for server {server}: databases {databases} of layout {layout}, cluster {cluster}.
-- The cluster's identity is {identity}, on all servers.
-- Run it as a user who may create databases and tables. It drops and alters nothing,
-- and may be run again; where it stopped, run it again.
SET SESSION lock_wait_timeout = 5;
`

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
	for _, spec := range seam.Specs(cfg) {
		var text strings.Builder
		text.WriteString(fill(planHead, slots{
			"version": layoutrow.SchemaVersion, "server": oneLine(spec.Name), "databases": databasesOf(cfg.Layout, spec), "layout": cfg.Layout,
			"cluster": opt.Cluster, "identity": opt.Identity,
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
