package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// The parts of docs/operations.md that checks refer to.
const (
	pageFailOver    = "docs/operations.md#fail-over"
	pageReplication = "docs/operations.md#set-replication-up"
	pageUpgrade     = "docs/operations.md#upgrade-the-tables"
)

// standby judges whether another server can take over from one that takes writes, and whether that is safe. seen is what
// was seen at its addresses, nil if it has only one. Nothing is said of rights if nothing tells of a second server.
func standby(f store.Facts, seen []mysql.Sighting) []Check {
	var checks []Check
	if f.ReadOnly == "" {
		checks = append(checks, replicas(f, seen))
	}
	if f.ReadOnly != "" || f.Replicas > 0 || f.Followed || len(seen) > 1 {
		checks = append(checks, exempt(f))
	}
	return checks
}

func replicas(f store.Facts, seen []mysql.Sighting) Check {
	const name = "replicas"
	switch {
	case f.Replicas < 0:
		return good(name, "could not look: %v", f.Unlooked)
	case f.Replicas == 0 && len(seen) > 1:
		return bad(Warn, name, fmt.Sprintf("none is connected, and the config names %d addresses: there is nothing to fail over to", len(seen)),
			"make the other server a replica of this one: "+pageFailOver+", the last step")
	case f.Replicas == 0 && f.Followed:
		return bad(Warn, name, "none is connected, and this server was a replica itself, or is a copy of another: there is nothing to fail over to",
			"make the old primary, or a new server, a replica of this one: "+pageFailOver+", the last step")
	case f.Replicas == 0:
		return good(name, "none is connected, and nothing tells that there was one")
	case !f.SemiWanted:
		return bad(Warn, name, fmt.Sprintf("%d connected, and commits wait for none: a fail-over may lose the latest tasks and outcomes", f.Replicas),
			"enable semi-synchronous replication, this server's side and the replicas': "+pageReplication)
	case !f.SemiSync:
		return bad(Warn, name, fmt.Sprintf("%d connected, and none acknowledges commits: they wait for the time-out of semi-synchronous replication, or no longer wait", f.Replicas),
			"enable the replicas' side of semi-synchronous replication, and restart their receiving threads: "+pageReplication)
	}
	return good(name, "%d connected, and commits wait for one", f.Replicas)
}

// exempt warns of a user that a read-only server does not refuse.
func exempt(f store.Facts) Check {
	const name = "exemption"
	lifts := []string{"ALL PRIVILEGES", "SUPER", "CONNECTION ADMIN"}
	if isMariaDB(f) {
		lifts = []string{"ALL PRIVILEGES", "READ ONLY ADMIN"}
		if r, ok := parseRelease(f.Version); ok && r.before(release{10, 11}) {
			lifts = append(lifts, "SUPER")
		}
	}
	has := slices.DeleteFunc(slices.Clone(f.Exempt), func(right string) bool { return !slices.Contains(lifts, right) })
	if len(has) == 0 {
		return good(name, "this user may not write to a read-only server")
	}
	return bad(Warn, name, fmt.Sprintf("this user may write to a read-only server (%s): a primary that was demoted takes its writes, and they are lost", strings.Join(has, ", ")),
		"give Tocsin a user with the rights that `tocsin ddl grants` prints, and no others")
}

// schemas judges the versions of the tables of all servers' databases.
func schemas(facts []store.Facts) []Check {
	const name = "schema"
	var older, begun, open []string
	least, total := layoutrow.SchemaVersion, 0
	for _, f := range facts {
		for _, s := range f.Schemas {
			total++
			switch {
			case s.Version < layoutrow.SchemaVersion:
				older = append(older, s.Database)
				least = min(least, s.Version)
				if s.Begun {
					begun = append(begun, s.Database)
				}
			case s.WorksWith < s.Version:
				open = append(open, s.Database)
			}
		}
	}
	var c Check
	switch newest := layoutrow.SchemaVersion; {
	case total == 0:
		return nil
	case len(begun) > 0 || len(older) > 0 && len(older) < total:
		c = bad(Warn, name, fmt.Sprintf("a migration to version %d has begun and is not done: %s", newest, some(older)),
			"run `tocsin ddl apply` again, which goes on where it stopped: "+pageUpgrade)
	case len(older) > 0:
		c = bad(Warn, name, fmt.Sprintf("%s: of version %d or newer, and this program is for %d: all works, except what is newer", some(older), least, newest),
			"run `tocsin ddl apply`: "+pageUpgrade)
	case len(open) > 0:
		c = bad(Warn, name, fmt.Sprintf("the upgrade to version %d is not finished: older programs may still use %s, so what is new in it is not used", newest, some(open)),
			"when all programs are new, run `tocsin ddl finish`: "+pageUpgrade)
	default:
		c = good(name, "version %d, as this program's", newest)
	}
	return of("tables", c)
}

// shownNames is how many names a check lists.
const shownNames = 5

// some lists the first names.
func some(names []string) string {
	if more := len(names) - shownNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

const (
	passwordExpired = "give the user a new password (ALTER USER ... IDENTIFIED BY), and this server's dsn too"
	accountLocked   = "unlock the user (ALTER USER ... ACCOUNT UNLOCK)"
)

// refusalFixes are what to do about a server that answers and refuses connections, by the number of its error.
var refusalFixes = map[uint16]string{
	1040: "raise max_connections there, or lower max_conns in the config: SHOW PROCESSLIST tells who holds the connections",
	1047: "it is a node of Galera that is not ready: see wsrep_cluster_status and wsrep_ready there",
	1053: "it stops: start it again",
	1129: "run mysqladmin flush-hosts there (in MySQL TRUNCATE performance_schema.host_cache): too many attempts to connect from this host have failed",
	1184: "correct init_connect of the server: it fails for this user, and the server's log says why",
	1203: "raise max_user_connections there, or lower max_conns in the config",
	1226: "raise the limit of this user (ALTER USER ... WITH), or lower max_conns in the config",
	1820: passwordExpired,
	1862: passwordExpired,
	3118: accountLocked,
	4151: accountLocked,
	3159: "set tls in this server's dsn, to true or to the name of a set of certificates: the server admits no connection without TLS",
	3032: readOnlyRoles["offline_mode"].fix,
	6400: readOnlyRoles["offline_mode"].fix,
}

// unreachable judges a server that can't be asked. If an address is a replica that answers, it names the fail-over.
func unreachable(err error, use serverUse, seen []mysql.Sighting) Check {
	const name = "reachable"
	to := loop.Target{What: "the server", Address: "the dsn of " + use.Name + " in the config", TLS: "tls of " + use.Name + " in the config and in its dsn"}
	var ready, dead []string
	for _, s := range seen {
		switch {
		case s.ReadOnly:
			ready = append(ready, s.Address)
		case s.Silent:
			dead = append(dead, s.Address)
		}
	}
	switch others := len(seen) - len(ready) - len(dead); { // one that refuses connections may be the primary
	case len(ready) > 0 && len(dead) > 0 && others == 0:
		old := strings.Join(dead, " and ")
		return bad(Fail, name, err.Error(), fmt.Sprintf("start %s, or fail over to %s as %s tells: first make sure that %s stays off, or turn read_only on there",
			old, strings.Join(ready, " or "), pageFailOver, old))
	case len(ready) > 0 && len(ready) == len(seen):
		return bad(Fail, name, err.Error(), fmt.Sprintf("all are read-only: as %s tells, turn read_only off at the one that is to be the primary", pageFailOver))
	}
	return bad(Fail, name, err.Error(), ServerFix(err, to))
}

// ServerFix says what to do about a server that can't be asked.
func ServerFix(err error, to loop.Target) string {
	fault, known := mysql.OnTheWay(err), refusalFixes[mysql.Number(err)]
	switch {
	case known != "":
		return known
	case errors.Is(err, mysql.ErrSession):
		return "remove that from the server's init_connect, or from " + to.Address
	case fault == loop.WaySilent && errors.Is(err, context.DeadlineExceeded):
		return "if its process runs, it hangs: see docs/runbook.md#tocsinserverhangs; otherwise " + to.Do(fault)
	}
	return to.Do(fault)
}
