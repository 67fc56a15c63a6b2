package ddl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// GrantOptions says whom to give which rights.
type GrantOptions struct {
	Roles    []string // names of Roles; the user gets what all of them need
	User     string   // "": tocsin_ and the first role, tocsin_client_add
	Host     string   // from which the user connects; "": any, %
	PerTable bool     // a GRANT for each task table, instead of one for the whole database
	Literal  bool     // the servers have partial_revokes on, which takes the names of databases literally
}

// Grants returns, per server, the GRANT statements that the roles need there. It connects to nothing.
//
// Rights on task tables are granted on the whole database, unless opt.PerTable is set, and so hold for its other tables
// too. Rights on the other tables are always granted table by table.
func Grants(cfg tocsin.Config, opt GrantOptions) ([]ServerPlan, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	some, err := rolesOf(opt.Roles)
	if err != nil {
		return nil, err
	}
	if opt.User == "" {
		opt.User = "tocsin_" + strings.ReplaceAll(some[0].Name, "-", "_")
	}
	if opt.Host == "" {
		opt.Host = "%"
	}
	if strings.ContainsFunc(opt.User+opt.Host, func(r rune) bool { return r < ' ' }) {
		return nil, errors.New("the user or host holds a control character")
	}
	g := &granting{layout: cfg.Layout, opt: opt, roles: some, to: quoted(opt.User) + "@" + quoted(opt.Host)}
	var plans []ServerPlan
	for _, spec := range client.Specs(cfg) {
		plans = append(plans, ServerPlan{Server: spec.Name, Text: g.server(spec)})
	}
	return plans, nil
}

// granting writes the statements for one user.
type granting struct {
	layout tocsin.Layout
	opt    GrantOptions
	roles  []Role
	to     string // `user`@`host`
	text   strings.Builder
}

// grantHead stands above the statements of each server.
const grantHead = `-- Rights of {roles} on server {server}: databases {databases} of layout {layout}.
-- Run it as an administrator, {when}. It may be run again. It makes no user:
--     CREATE USER {user} IDENTIFIED BY '...' REQUIRE SSL;
SET SESSION sql_mode = {sql_mode};
`

func (g *granting) server(spec mysql.Spec) string {
	g.text.Reset()
	var named []string
	when := "after `tocsin ddl apply`"
	for _, r := range g.roles {
		named = append(named, r.Name)
		if r.Name == "ddl" {
			when = "before `tocsin ddl apply`"
		}
	}
	g.text.WriteString(fill(grantHead, slots{
		"roles": strings.Join(named, ", "), "server": oneLine(spec.Name), "databases": databasesOf(g.layout, spec), "layout": g.layout, "when": when, "user": g.to, "sql_mode": mysql.PeoplesMode,
	}))
	for _, db := range spec.Databases {
		g.database(db)
	}
	return g.text.String()
}

// database grants on a whole database first, and then on the tables what that leaves out.
func (g *granting) database(db int) {
	g.text.WriteString("\n")
	var whole []string
	if !g.opt.PerTable {
		if whole = rightsOn(g.roles, taskFile); len(whole) > 0 {
			g.grant(whole, g.pattern(db)+".*")
		}
	}
	for _, t := range tablesOf(g.layout, db) {
		rights := rightsOn(g.roles, t.file)
		left := slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return slices.Contains(whole, right) })
		if len(left) == 0 {
			continue
		}
		if slices.Contains(rights, "CREATE") && !slices.Contains(left, "CREATE") {
			left = append(left, "CREATE") // without it the server refuses a GRANT on a table that is not there yet
		}
		g.grant(left, quoted(t.database)+"."+quoted(t.name))
		if g.opt.PerTable && slices.ContainsFunc(g.roles, func(r Role) bool { return r.aside && slices.Contains(r.rights[t.file], "DROP") }) {
			g.grant(left, quoted(t.database)+"."+quoted(aside+t.name))
		}
	}
}

func (g *granting) grant(rights []string, on string) {
	fmt.Fprintf(&g.text, "GRANT %s ON %s TO %s;\n", strings.Join(rights, ", "), on, g.to)
}

// pattern names a database where a GRANT takes _ and % for wildcards: without the backslash, toc_1 means tocA1 too.
func (g *granting) pattern(db int) string {
	name := g.layout.Database(db)
	if !g.opt.Literal {
		name = strings.ReplaceAll(name, "_", `\_`)
	}
	return quoted(name)
}

// quoted writes a name as an identifier, in which a backslash is nothing special.
func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
