package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/operator"
)

// askedByDoctor asks what other commands ask, so that none of them knows a fault of the cluster that doctor does not:
//
//	serve              what it refuses of the config
//	ddl restore-check  copies, without its counts of tasks
//	ddl verify         structure
//	outbox verify      each outbox of the config
//	relay              entrances
//
// Not asked are commands that compare with a file that doctor has not (biz apply, schedule apply), cluster plan, which tries a change of the
// nodes, and audit, which reads every row. sink test, cluster nodes, biz list and schedule list have their checks in operator.Examine.
var askedByDoctor = []func(a *app, ctx context.Context, v visit) []operator.Check{
	(*app).served, (*app).copies, (*app).structure, (*app).outboxes, (*app).entrances,
}

// visit is what doctor knows when it asks the next command.
type visit struct {
	file   config.File
	roles  string           // for which the user is judged; "": for all that nodes, clients and purges do
	before []operator.Check // made so far
}

// checkOf is one check of a command's answer.
func checkOf(level operator.Level, subject, name, is, fix string) []operator.Check {
	return []operator.Check{{Level: level, Subject: subject, Name: name, Is: is, Fix: fix}}
}

// failing returns the first earlier check of such a name that is not well, and whether there is one.
func (v visit) failing(names ...string) (c operator.Check, any bool) {
	i := slices.IndexFunc(v.before, func(c operator.Check) bool { return c.Level != operator.OK && slices.Contains(names, c.Name) })
	if i < 0 {
		return c, false
	}
	return v.before[i], true
}

// served says what keeps `tocsin serve` from starting with this config on this host; nothing if nothing does.
func (a *app) served(_ context.Context, v visit) []operator.Check {
	if _, named := v.failing("health"); named && len(v.file.Etcd.Endpoints) == 0 {
		return nil // a config for sweepers or services
	}
	cfg, file, _, err := a.serveConfig(serveFlags{}, prometheus.NewRegistry())
	wrong := []error{err}
	if err == nil {
		wrong = append(wrong, cfg.Validate(), here("node.listen", file.Node.Listen))
		if listens := file.Node.API.Listen; listens != "" && listens != config.Off {
			_, _, err := apiAccess(file.Node.API, listens, nil)
			wrong = append(wrong, err, here("node.api.listen", listens))
		}
	}
	wrong = slices.DeleteFunc(wrong, func(err error) bool {
		return err == nil || slices.ContainsFunc(v.before, func(c operator.Check) bool {
			return c.Level != operator.OK && strings.Contains(c.Is, operator.OneLine(err))
		})
	})
	if len(wrong) > 0 {
		return checkOf(operator.Warn, "config", "serve", "a node would not start here: "+operator.OneLine(errors.Join(wrong...)),
			"correct the config file, or give this host the files and addresses that it names, if a node is to run here")
	}
	return nil
}

// here says why this host can't listen on an address. Its port is not tried, as a node may be using it.
func here(key, address string) error {
	if address == config.Off {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err == nil {
		return l.Close()
	}
	if of := (*net.OpError)(nil); errors.As(err, &of) {
		err = of.Err // without the port
	}
	return fmt.Errorf("%s %s: %w", key, address, err)
}

// copies names the databases that are older copies of themselves, unless a server's own check has.
func (a *app) copies(ctx context.Context, v visit) []operator.Check {
	const name = "copies"
	kept, _ := a.marksInEtcd(ctx) // if etcd does not answer, it has a check
	waiting, err := ddl.FindCopies(ctx, v.file.Tocsin(), kept)
	waiting = slices.DeleteFunc(waiting, func(r ddl.Restored) bool {
		return slices.ContainsFunc(v.before, func(c operator.Check) bool {
			return c.Name == "layout" && c.Level != operator.OK && strings.Contains(c.Is, r.Database+" on ")
		})
	})
	if len(waiting) > 0 {
		var all []string
		for _, r := range waiting {
			all = append(all, fmt.Sprintf("%s on %s: %s", r.Database, r.Server, ageOf(r)))
		}
		return checkOf(operator.Fail, "tables", name, strings.Join(all, "; "), "run `tocsin ddl restore-check`, which says what the copy lacks and what to decide")
	}
	if _, told := v.failing("reachable", "layout", "rights"); told {
		return nil // what could not be read has a check
	}
	if err != nil {
		return checkOf(operator.OK, "tables", name, "could not look: "+operator.OneLine(err), "")
	}
	return checkOf(operator.OK, "tables", name, "no database is held or an older copy of itself", "")
}

// structure compares tables, columns and indexes. A user who may not see a table would find it missing, and tables of another schema
// version, and missing ones, have a check.
func (a *app) structure(ctx context.Context, v visit) []operator.Check {
	const name = "structure"
	if v.roles != "" {
		return nil
	}
	if c, told := v.failing("reachable", "layout", "rights", "schema"); told {
		return checkOf(operator.OK, "tables", name, "not compared: see "+c.Subject+": "+c.Name, "")
	}
	differ, err := ddl.Verify(ctx, v.file.Tocsin())
	if err != nil {
		return checkOf(operator.OK, "tables", name, "could not look: "+operator.OneLine(err), "")
	}
	differ = slices.DeleteFunc(differ, func(f ddl.Finding) bool {
		return f.Absent() && slices.ContainsFunc(v.before, func(c operator.Check) bool {
			return c.Level != operator.OK && c.Subject == "server "+f.Server && c.Name == "tables" && (strings.Contains(c.Is, f.Object) || strings.Contains(c.Is, "and others"))
		})
	})
	return findings(differ, "tables", name, "all are as they should be", "ddl")
}

// outboxes compares each outbox of the config.
func (a *app) outboxes(ctx context.Context, v visit) (all []operator.Check) {
	for _, o := range a.relayed(v.file) {
		if _, entrance := o.Driver.(tocsinkafka.Entrance); entrance {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, sinkWithin)
		var differ []ddl.Finding
		var err error
		if o.OnPostgreSQL() {
			differ, err = tocsinpg.VerifyOutbox(asked, o)
		} else {
			differ, err = ddl.VerifyOutbox(asked, asDDL(o))
		}
		cancel()
		if err != nil {
			of := " of outbox " + o.Name + " in the config"
			fix := operator.ServerFix(err, loop.Target{What: "its server", Address: "the dsn" + of, TLS: "tls" + of + ", or in its dsn"})
			all = append(all, checkOf(operator.Fail, "outboxes", o.Name, operator.OneLine(err), fix+": its rows wait if no relay reaches it")...)
			continue
		}
		all = append(all, findings(differ, "outboxes", o.Name, o.Table+" is as it should be", "outbox")...)
	}
	return all
}

// ofATable finds what differs of a table that is there. Other findings say themselves what to do.
var ofATable = regexp.MustCompile(`, (column|index|constraint) | has (engine|collation) `)

// findings is a check of what differs: a failure, or a warning if all are warnings. The commands of a group, "ddl" or "outbox", make what is
// missing and change no table that is there.
func findings(differ []ddl.Finding, subject, name, well, group string) []operator.Check {
	if len(differ) == 0 {
		return checkOf(operator.OK, subject, name, well, "")
	}
	level, fix := operator.Warn, "`tocsin "+group+" verify` names all"
	errs := make([]error, len(differ))
	absent, changed := false, false
	for i, f := range differ {
		errs[i] = errors.New(f.String())
		if !f.Warning {
			level = operator.Fail
		}
		absent = absent || f.Absent()
		changed = changed || ofATable.MatchString(f.String())
	}
	if absent {
		fix += "; `tocsin " + group + " apply` makes the missing tables"
	}
	if changed {
		fix += "; no command changes a table that is there: as an administrator, ALTER it to what `tocsin " + group + " plan` prints"
	}
	return checkOf(level, subject, name, operator.OneLine(errors.Join(errs...)), fix)
}
