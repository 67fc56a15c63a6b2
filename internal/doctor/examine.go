package doctor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/store"
)

// DefaultTimeout bounds each question where Patient sets none.
const DefaultTimeout = 10 * time.Second

// Patient is what Examine looks at.
type Patient struct {
	Uses    []Use                                             // of the servers, in the order of the config
	Servers Servers                                           // by index in Uses
	Types   func(context.Context) ([]biztype.Policy, error)   // reads the stored policies
	Etcd    func(context.Context) (members string, err error) // asks etcd; nil: the config names none
	Open    bool                                              // nobody owns tables: etcd is not needed
	// Identity returns the identity of the databases, "" if they have none, and an error if etcd has bound the cluster
	// to another. It is called only when Etcd has answered.
	Identity func(context.Context) (id string, refused error)
	Members  func(context.Context) ([]Member, error) // the live nodes; nil: not known
	Secrets  func(biztype.Policy) error              // tells which secret of a callback is missing here; nil: not asked
	Paused   func(context.Context) ([]string, error) // names of the schedules that were paused as their runs failed; nil: not asked
	Timeout  time.Duration                           // of each question; 0: DefaultTimeout

	Roles  string       // names of the roles that the user is judged for, "node,sweep"; "": all that nodes, clients and purges do
	Rights store.Rights // of these roles; nil: of all these
}

// Servers reads from a cluster's servers; *store.Store does.
type Servers interface {
	Check(ctx context.Context, server int) error
	Facts(ctx context.Context, server int) (store.Facts, error)
	Commit(ctx context.Context, server int) (tried bool, err error)
	Trial(ctx context.Context, server int, rights store.Rights) (flaws []store.Flaw, user string, err error)
	Sightings(ctx context.Context, server int) []mysql.Sighting
}

// Examine asks all servers and etcd at once and returns when each has answered or timed out. The checks come server by
// server, then biz types, then etcd.
func Examine(ctx context.Context, p Patient) []Check {
	if p.Timeout <= 0 {
		p.Timeout = DefaultTimeout
	}
	servers := make([][]Check, len(p.Uses))
	facts := make([]store.Facts, len(p.Uses))
	var types, schedules, etcd []Check
	var wg sync.WaitGroup
	for i := range p.Uses {
		wg.Go(func() { servers[i], facts[i] = p.server(ctx, i) })
	}
	if p.may("biz_type", "SELECT") {
		wg.Go(func() { types = p.types(ctx) })
	}
	if p.Paused != nil && p.may("schedule", "SELECT") {
		wg.Go(func() { schedules = p.schedules(ctx) })
	}
	wg.Go(func() { etcd = p.etcd(ctx) })
	wg.Wait()
	return slices.Concat(slices.Concat(servers...), same(p.Uses, facts), schemas(facts), types, schedules, etcd, p.identity(ctx, etcd, slices.ContainsFunc(servers, reachable)))
}

// reachable reports whether a server answered, from its checks.
func reachable(checks []Check) bool { return checks[0].Level != Fail }

// server examines one server. If it can't be asked, that is the one check, and the facts are zero.
func (p Patient) server(ctx context.Context, i int) ([]Check, store.Facts) {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	subject := "server " + p.Uses[i].Name
	facts, err := p.Servers.Facts(ctx, i)
	if err != nil {
		return of(subject, unreachable(err, p.Uses[i], p.Servers.Sightings(ctx, i))), store.Facts{}
	}
	seen := p.Servers.Sightings(ctx, i)
	checks := append([]Check{good("reachable", "answers in %s", facts.Clock.RoundTrip.Round(10*time.Microsecond))}, Addresses(seen)...)
	checks = append(append(checks, Server(facts, p.Uses[i])...), Standby(facts, seen)...)
	checks = append(checks, layout(p.Servers.Check(ctx, i), p.Uses[i].Tables))
	return of(subject, append(checks, p.trials(whole, i)...)...), facts
}

// layout judges what the server's databases say of themselves.
func layout(err error, tables int) Check {
	const name = "layout"
	if refused := (*store.Unusable)(nil); errors.As(err, &refused) && refused.Older {
		return bad(Fail, name, err.Error(), "run `tocsin ddl restore-check`, which says what the copy lacks and what to decide")
	}
	if err != nil {
		return bad(Fail, name, err.Error(), "run `tocsin ddl apply`, or correct layout, cluster and servers in the config: apply makes what is missing, and changes no layout or cluster id that is stored")
	}
	return good(name, "as in the config; %d task tables", tables)
}

func (p Patient) types(ctx context.Context) []Check {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	policies, err := p.Types(ctx)
	checks := []Check{Types(policies, err)}
	var members []Member
	if p.Members != nil && err == nil {
		if found, err := p.Members(ctx); err == nil { // if not, etcd's own check says why
			members = found
			checks = append(append(checks, Delivered(policies, members)...), Idle(policies, members)...)
		}
	}
	return append(of("biz types", append(checks, p.secrets(policies, members)...)...), of("nodes", Versions(members)...)...)
}

// schedules judges which schedules were paused. What could be read is told beside what could not.
func (p Patient) schedules(ctx context.Context) []Check {
	const name = "paused"
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	names, err := p.Paused(ctx)
	var checks []Check
	switch {
	case len(names) > 0:
		checks = append(checks, bad(Warn, name, "by pause_after, as their runs failed: "+some(names),
			"`tocsin schedule show NAME` says of which run; mend the cause, then run `tocsin schedule activate NAME`"))
	case err == nil:
		checks = append(checks, good(name, "none"))
	}
	if err != nil {
		checks = append(checks, good(name, "could not look everywhere: %v", err))
	}
	return of("schedules", checks...)
}

// Types judges the stored policies, or why they could not be read.
func Types(policies []biztype.Policy, err error) Check {
	const name, fix = "stored", "run `tocsin biz apply FILE`"
	paused := 0
	for _, p := range policies {
		if p.Paused {
			paused++
		}
	}
	switch {
	case mysql.ClassOf(err) == mysql.Missing:
		return bad(Fail, name, err.Error(), "run `tocsin ddl apply`, then `tocsin biz apply FILE`")
	case err != nil:
		return bad(Fail, name, err.Error(), "mend the server first")
	case len(policies) == 0:
		return bad(Warn, name, "none, so no task can be added", fix)
	case paused > 0:
		return good(name, "%d, of which %d paused", len(policies), paused)
	}
	return good(name, "%d", len(policies))
}

func (p Patient) etcd(ctx context.Context) []Check {
	const name = "health"
	if p.Open {
		return of("etcd", good(name, "not needed: layout.ownership is rows"))
	}
	if p.Etcd == nil {
		return of("etcd", bad(Warn, name, "the config names no endpoints: nodes can't run, sweepers can", "set etcd.endpoints, or layout.ownership to rows, in the config"))
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	members, err := p.Etcd(ctx)
	if err != nil {
		return of("etcd", bad(Fail, name, err.Error(), "start it, or correct etcd.endpoints in the config"))
	}
	return of("etcd", good(name, "%s", members))
}

// identity asks whether etcd has bound the cluster to these databases, if both answer. It takes the checks of etcd, and
// whether any server answered.
func (p Patient) identity(ctx context.Context, etcd []Check, answered bool) []Check {
	if p.Identity == nil || Worst(etcd) >= Fail {
		return nil
	}
	if !answered {
		return of("etcd", bad(Warn, nameIdentity, "not compared with the databases: no server can be reached", "make the servers reachable first"))
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	return of("etcd", identity(p.Identity(ctx)))
}

const nameIdentity = "identity"

// identity judges whether etcd has bound the cluster to these databases.
func identity(id string, refused error) Check {
	const name = nameIdentity
	switch {
	case refused != nil:
		return bad(Fail, name, refused.Error(), "do what it says: no node starts with this config")
	case id == "":
		return bad(Warn, name, "no database that answers has one, so nodes of another cluster with the same id are not kept out", "run `tocsin ddl apply`")
	}
	return good(name, "%s in the databases, and none other in etcd", id)
}

// of names the subject of checks.
func of(subject string, checks ...Check) []Check {
	for i := range checks {
		checks[i].Subject = subject
	}
	return checks
}
