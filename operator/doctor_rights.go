package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// shownFlaws is how many tables a check names.
const shownFlaws = 6

// may reports whether the user is to have a right.
func (p patient) may(table, right string) bool {
	return p.Roles == "" || slices.Contains(p.Rights[table], right)
}

// trials tests what the user may do on a server, and whether commits end.
func (p patient) trials(ctx context.Context, i int) []Check {
	committed, tables := good("commit", "not tried: it inserts and deletes a task, and the role may not"), true
	if p.may(store.TaskTables, "INSERT") && p.may(store.TaskTables, "DELETE") {
		committed, tables = p.commit(ctx, i)
	}
	if committed.Level == Fail || !tables {
		return []Check{committed} // the rights can't be tried, and are not the cause
	}
	ctx, cancel := context.WithTimeout(ctx, trialPatience*p.timeout)
	defer cancel()
	flaws, user, err := p.servers.Trial(ctx, i, p.Rights)
	return append([]Check{committed}, rights(p.Roles, flaws, user, err)...)
}

// trialPatience is how many times longer than one question a trial of all tables may take.
const trialPatience = 3

// commit commits one write, and judges its commit, or its absence in time. It has no tables if no database is the config's.
func (p patient) commit(ctx context.Context, i int) (_ Check, tables bool) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	begun := time.Now()
	tried, err := p.servers.Commit(ctx, i)
	took := time.Since(begun).Round(100 * time.Microsecond)
	const name = "commit"
	if err == nil && !tried {
		return good(name, "not tried: no database is the config's, see the check layout"), false
	}
	return committed(name, took, err), true
}

func committed(name string, took time.Duration, err error) Check {
	switch class := mysql.ClassOf(err); {
	case class == mysql.Missing, class == mysql.Denied:
		return bad(Warn, name, "not tried: "+err.Error(), "give the user the tables and rights that the checks beside this one name")
	case class == mysql.Canceled:
		is := fmt.Sprintf("a write is not committed after %s: tasks can't be added, claimed or settled", took)
		return bad(Fail, name, is, "look at SHOW PROCESSLIST: does a commit wait for a semi-synchronous replica, a full disk or a global read lock?")
	case class == mysql.Contended:
		return bad(Fail, name, "a write waits for a lock in vain: "+err.Error(), "look at SHOW PROCESSLIST: does somebody hold a global read lock (FLUSH TABLES WITH READ LOCK), for a backup say?")
	case class == mysql.Demoted:
		return bad(Fail, name, "the server takes no writes: "+err.Error(), "end what the server's words name, or point this server's dsn at one that takes writes")
	case err != nil:
		return bad(Fail, name, err.Error(), "mend the server: it takes no write")
	}
	return good(name, "a write is committed in %s", took)
}

// rights judges the flaws of tables, missing tables and tables that the user may not use, for a user that has some roles only, or all
// for "".
func rights(roles string, flaws []store.Flaw, user string, err error) []Check {
	if err != nil {
		return []Check{bad(Fail, "rights", err.Error(), cmp.Or(refusalFixes[mysql.Number(err)], "mend the server first"))}
	}
	checks := []Check{present(flaws), granted(roles, flaws, user)}
	locked := slices.DeleteFunc(slices.Clone(flaws), func(f store.Flaw) bool { return f.Absent() || f.Denied() })
	if len(locked) > 0 {
		is := fmt.Sprintf("%s: %v", names(locked), locked[0].Err)
		fix := "look at SHOW PROCESSLIST: a statement or transaction of somebody may hold the tables"
		if mysql.SchemaReadOnly(locked[0].Err) {
			fix = "ALTER SCHEMA " + locked[0].Database + " READ ONLY = 0, when whoever set it is done"
		}
		checks = append(checks, bad(Warn, "usable", is, fix))
	}
	return checks
}

// present judges whether all tables exist.
func present(flaws []store.Flaw) Check {
	const name = "tables"
	gone := slices.DeleteFunc(slices.Clone(flaws), func(f store.Flaw) bool { return !f.Absent() })
	if len(gone) == 0 {
		return good(name, "all are there")
	}
	fix := "run `tocsin ddl apply`"
	if slices.ContainsFunc(gone, func(f store.Flaw) bool { return f.Table == "biz_type" }) {
		fix += ", then `tocsin biz apply FILE`"
	}
	return bad(Fail, name, names(gone)+" missing", fix)
}

// granted judges the user's rights. Of a user that has all roles, without DELETE only purges fail, and without writes to biz_type only
// `tocsin biz`.
func granted(roles string, flaws []store.Flaw, user string) Check {
	const name = "rights"
	denied := slices.DeleteFunc(slices.Clone(flaws), func(f store.Flaw) bool { return !f.Denied() })
	switch {
	case len(denied) == 0 && roles != "":
		return good(name, "%s may read and change the rows that role %s does; CREATE, ALTER and DROP are not tried", user, roles)
	case len(denied) == 0:
		return good(name, "%s may do all that nodes, clients and purges do", user)
	case roles != "":
		account := user[:max(strings.LastIndex(user, "@"), 0)]
		return bad(Fail, name, user+" may not "+verbs(denied), fmt.Sprintf("run what `tocsin ddl grants --role %s --user %s` prints, as an administrator", roles, account))
	}
	level := Warn
	for _, f := range denied {
		if f.Verb != "DELETE" && (f.Table != "biz_type" || f.Verb == "SELECT") {
			level = Fail
		}
	}
	return bad(level, name, user+" may not "+verbs(denied), "GRANT "+grants(denied, user))
}

// names lists tables, each once, and at most shownFlaws.
func names(flaws []store.Flaw) string {
	var all []string
	for _, f := range flaws {
		if full := f.Database + "." + f.Table; !slices.Contains(all, full) {
			all = append(all, full)
		}
	}
	if more := len(all) - shownFlaws; more > 0 {
		all = append(all[:shownFlaws], "and others")
	}
	return strings.Join(all, ", ")
}

// verbs lists what the user may not do: "UPDATE toc_0.owner; INSERT toc_0.owner, toc_0.task_0000".
func verbs(flaws []store.Flaw) string {
	var all []string
	for len(flaws) > 0 {
		verb := flaws[0].Verb
		same := slices.DeleteFunc(slices.Clone(flaws), func(f store.Flaw) bool { return f.Verb != verb })
		flaws = slices.DeleteFunc(slices.Clone(flaws), func(f store.Flaw) bool { return f.Verb == verb })
		all = append(all, verb+" "+names(same))
	}
	return strings.Join(all, "; ")
}

// grants returns the GRANTs that mend the flaws: for a whole database if one of its task tables is affected.
func grants(flaws []store.Flaw, user string) string {
	verbsOf, order := map[string][]string{}, []string{}
	for _, f := range flaws {
		on := "`" + f.Database + "`." + f.Table
		if slices.ContainsFunc(flaws, func(o store.Flaw) bool { return o.Task && o.Database == f.Database }) {
			on = "`" + strings.ReplaceAll(f.Database, "_", `\_`) + "`.*"
		}
		if verbsOf[on] == nil {
			order = append(order, on)
		}
		if !slices.Contains(verbsOf[on], f.Verb) {
			verbsOf[on] = append(verbsOf[on], f.Verb)
		}
	}
	all := make([]string, len(order))
	for i, on := range order {
		all[i] = fmt.Sprintf("%s ON %s TO %s", strings.Join(verbsOf[on], ", "), on, account(user))
	}
	return strings.Join(all, "; GRANT ")
}

// account quotes the result of CURRENT_USER(): toc@% becomes 'toc'@'%'.
func account(user string) string {
	at := max(strings.LastIndex(user, "@"), 0)
	return "'" + user[:at] + "'@'" + strings.TrimPrefix(user[at:], "@") + "'"
}
