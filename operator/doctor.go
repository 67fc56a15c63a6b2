package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/schedule"
)

// Level says how bad it is. A check fails if a promise does not hold (a task could be lost, or nothing works), and warns if all is
// right but slow, or will be under load.
type Level uint8

// The levels, from good to bad.
const (
	OK   Level = iota
	Warn       // slow, or will be; nothing is lost
	Fail       // a promise does not hold, or nothing works
)

var levelNames = [...]string{"ok", "warn", "fail"}

// String gives the lower-case word.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return "level " + strconv.Itoa(int(l))
}

// MarshalText gives the word, for JSON.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Check is one thing that was looked at.
type Check struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"`       // "server db1", "etcd", "config"
	Name    string `json:"check"`         // "read-only", "durability"
	Is      string `json:"is"`            // what was found
	Fix     string `json:"fix,omitempty"` // what to change; "" where Level is OK
}

// Worst gives the highest level of the checks, OK of none.
func Worst(checks []Check) Level {
	worst := OK
	for _, c := range checks {
		worst = max(worst, c.Level)
	}
	return worst
}

// good is a check that passed.
func good(name, format string, args ...any) Check {
	return Check{Level: OK, Name: name, Is: fmt.Sprintf(format, args...)}
}

// bad is one that did not; fix says what to change.
func bad(level Level, name, is, fix string) Check {
	return Check{Level: level, Name: name, Is: is, Fix: fix}
}

// of names the subject of checks.
func of(subject string, checks ...Check) []Check {
	for i := range checks {
		checks[i].Subject = subject
	}
	return checks
}

// Examination says how Examine judges a cluster.
type Examination struct {
	Nodes   int                                         // that the servers' max_connections are judged for; 0: the live ones
	Roles   string                                      // names of the roles that the user is judged for, "node,sweep"; "": all that nodes, clients and purges do
	Rights  store.Rights                                // of these roles; nil: of all these
	Secrets func(biztype.Policy) error                  // tells which secret of a callback is missing here; nil: not asked
	Sinks   func(context.Context, biztype.Policy) error // tells why the broker of a policy with a Sink can't be used from here; nil: not asked
}

// Examine asks all servers and etcd at once, and returns when each has answered or timed out. A check that could not be made says
// why: it fails if the cluster can't work without what it asked for. The checks come server by server, then biz types, then etcd. It
// changes nothing that lasts.
func (v View) Examine(ctx context.Context, x Examination) ([]Check, error) {
	ownership := node.ByEtcd
	if v.ByRows {
		ownership = node.ByRows
	}
	tables, err := store.Open(v.Tables, store.Ownership(ownership), store.SweepGrace(v.Grace))
	if err != nil {
		return nil, err
	}
	defer tables.Close()
	p := patient{Examination: x, open: v.ByRows, servers: tables, paused: v.paused, timeout: answerWithin}
	p.asked = func(own []Group, bizType string) time.Time {
		workers, _ := askedBy(v.askAll(ctx, own), bizType)
		return workers.Last
	}
	p.types = func(ctx context.Context) ([]biztype.Policy, error) { return biztype.Load(ctx, v.Tables) }
	if !v.ByRows && len(v.Etcd.Endpoints) > 0 {
		p.identity = v.identity
		p.etcd = func(ctx context.Context) (string, error, error) { return v.etcdHealth(ctx, x.runsNodes()) }
	}
	p.nodes = sync.OnceValues(func() ([]Group, bool) {
		bounded, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		groups, err := v.Nodes(bounded, "")
		return groups, err == nil || len(groups) > 0 // an error is that of etcd or a server, which has a check
	})
	for i, spec := range client.Specs(v.Tables) {
		if spec.MaxConns <= 0 {
			spec.MaxConns = mysql.DefaultMaxConns
		}
		p.uses = append(p.uses, serverUse{Name: spec.Name, Tables: len(tables.TablesOf(i)), Conns: spec.MaxConns, Nodes: x.Nodes})
	}
	checks := p.examine(ctx)
	for i, c := range checks {
		checks[i].Is = timeouts.Replace(c.Is)
	}
	return checks, nil
}

// endpointWithin is how long one of several endpoints of etcd may take to answer.
const endpointWithin = 2 * time.Second

// runsNodes reports whether the user is judged for what nodes do.
func (x Examination) runsNodes() bool {
	return x.Roles == "" || slices.Contains(strings.Split(x.Roles, ","), "node")
}

// etcdHealth wants a read that a majority agrees to, not just an open port, and if writes is set a write that etcd would take. If they
// succeed, dead are the errors of endpoints that don't lead there.
func (v View) etcdHealth(ctx context.Context, writes bool) (is string, dead, err error) {
	err = v.AskEtcd(ctx, func(keys *assign.Registry) error {
		groups, err := keys.Groups(ctx)
		if err == nil {
			err = keys.Alarms(ctx)
		}
		if err == nil && writes {
			err = keys.Writable(ctx)
		}
		one := ""
		if len(v.Etcd.Endpoints) > 1 {
			one = "one of "
		}
		is = fmt.Sprintf("%s%s answers; groups with nodes: %s", one, strings.Join(v.Etcd.Endpoints, ", "), cmp.Or(strings.Join(groups, ", "), "-"))
		return err
	})
	if err != nil || len(v.Etcd.Endpoints) < 2 {
		return is, nil, err
	}
	errs := make([]error, len(v.Etcd.Endpoints))
	var all sync.WaitGroup
	for i, endpoint := range v.Etcd.Endpoints {
		one := v
		one.Etcd.Endpoints, one.Etcd.Timeout = []string{endpoint}, endpointWithin
		all.Go(func() { errs[i] = one.AskEtcd(ctx, func(*assign.Registry) error { return nil }) })
	}
	all.Wait()
	return is, errors.Join(errs...), nil
}

// pausedMost is how many paused schedules are counted.
const pausedMost = 1000

// paused returns the names of the schedules that were paused as their runs failed, at most pausedMost. An error beside names is of
// servers that could not be asked.
func (v View) paused(ctx context.Context) (names []string, err error) {
	s, err := schedule.Open(ctx, v.Tables)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	found, err := s.List(ctx, schedule.Query{State: schedule.Paused, Limit: pausedMost})
	for _, one := range found {
		names = append(names, one.Name)
	}
	return names, err
}

// patient is what an examination looks at.
type patient struct {
	Examination
	open    bool        // nobody owns tables: etcd is not needed
	uses    []serverUse // in the order of the config
	servers servers     // by index in uses

	nodes    func() (groups []Group, listed bool)               // the live nodes, read once; not listed: not known
	types    func(context.Context) ([]biztype.Policy, error)    // reads the stored policies
	asked    func(own []Group, bizType string) time.Time        // when a worker last asked one of these nodes; zero: none says
	paused   func(context.Context) ([]string, error)            // reads the names of the paused schedules; nil: not asked
	etcd     func(context.Context) (is string, dead, err error) // asks etcd; nil: the config names none
	identity func(context.Context) (id string, refused error)   // of the databases, and whether etcd has bound the cluster to another
	timeout  time.Duration                                      // of each question
}

// servers reads from a cluster's servers; *store.Store does.
type servers interface {
	Check(ctx context.Context, server int) error
	Facts(ctx context.Context, server int) (store.Facts, error)
	Commit(ctx context.Context, server int) (tried bool, err error)
	Trial(ctx context.Context, server int, rights store.Rights) (flaws []store.Flaw, user string, err error)
	Sightings(ctx context.Context, server int) []mysql.Sighting
}

func (p patient) examine(ctx context.Context) []Check {
	servers := make([][]Check, len(p.uses))
	facts := make([]store.Facts, len(p.uses))
	var types, schedules, etcd []Check
	var id string
	var refused error
	var all sync.WaitGroup
	all.Go(func() { p.nodes() })
	if p.identity != nil {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, p.timeout)
			defer cancel()
			id, refused = p.identity(ctx)
		})
	}
	for i := range p.uses {
		all.Go(func() { servers[i], facts[i] = p.server(ctx, i) })
	}
	var unread error
	if p.may("biz_type", "SELECT") {
		all.Go(func() { types, unread = p.bizTypes(ctx) })
	}
	if p.paused != nil && p.may("schedule", "SELECT") {
		all.Go(func() { schedules = p.schedules(ctx) })
	}
	all.Go(func() { etcd = p.askEtcd(ctx) })
	all.Wait()
	c, told := unusable(servers)
	if told && unread != nil {
		types[0] = of("biz types", good(types[0].Name, "not read: see %s: %s", c.Subject, c.Name))[0]
	}
	return slices.Concat(slices.Concat(servers...), same(p.uses, facts), schemas(facts), types, schedules, etcd, p.compareIdentity(etcd, c, id, refused))
}

// unusable returns the first check that says why tables of a server can't be used. What depends on them has the same cause, and needs no
// finding of its own.
func unusable(servers [][]Check) (c Check, any bool) {
	for _, checks := range servers {
		if i := slices.IndexFunc(checks, func(c Check) bool {
			return c.Level == Fail && slices.Contains([]string{"reachable", "layout", "commit", "tables", "rights"}, c.Name)
		}); i >= 0 {
			return checks[i], true
		}
	}
	return c, false
}

// server examines one server. If it can't be asked, that is the one check, and the facts are zero.
func (p patient) server(ctx context.Context, i int) ([]Check, store.Facts) {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	subject := "server " + p.uses[i].Name
	facts, err := p.servers.Facts(ctx, i)
	if err != nil {
		return of(subject, unreachable(err, p.uses[i], p.servers.Sightings(ctx, i))), store.Facts{}
	}
	seen := p.servers.Sightings(ctx, i)
	use, tried := p.uses[i], []Check{layout(p.servers.Check(ctx, i), p.uses[i].Tables)}
	if facts.TakesWrites() { // else a check of the settings says why not
		tried = append(tried, p.trials(whole, i)...)
	}
	if groups, _ := p.nodes(); use.Nodes == 0 { // last: another server may keep them from being known for long
		for _, g := range groups {
			use.Nodes += len(g.Nodes)
		}
	}
	checks := append([]Check{good("reachable", "answers in %s", facts.Clock.RoundTrip.Round(10*time.Microsecond))}, addresses(seen)...)
	checks = append(append(checks, settings(facts, use)...), standby(facts, seen)...)
	return of(subject, append(checks, tried...)...), facts
}

// layout judges what the server's databases say of themselves.
func layout(err error, tables int) Check {
	const name = "layout"
	if refused := (*store.Unusable)(nil); errors.As(err, &refused) && refused.Older {
		return bad(Fail, name, err.Error(), "run `tocsin ddl restore-check`, which says what the copy lacks and what to decide")
	}
	if mysql.ClassOf(err) == mysql.Denied {
		return bad(Fail, name, err.Error(), "run what `tocsin ddl grants` prints for the roles of this user, as an administrator")
	}
	if err != nil {
		return bad(Fail, name, err.Error(), "do what it says, or correct layout, cluster and servers in the config: `tocsin ddl apply` makes what is missing, and changes no layout or cluster id that is stored")
	}
	return good(name, "as in the config; %d task tables", tables)
}

// schedules judges which schedules were paused. What could be read is told beside what could not.
func (p patient) schedules(ctx context.Context) []Check {
	const name = "paused"
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	names, err := p.paused(ctx)
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

func (p patient) askEtcd(ctx context.Context) []Check {
	const name = "health"
	if p.open {
		return of("etcd", good(name, "not needed: layout.ownership is rows"))
	}
	if p.etcd == nil {
		return of("etcd", bad(Warn, name, "the config names no endpoints: nodes can't run, sweepers can", "set etcd.endpoints, or layout.ownership to rows, in the config"))
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	is, dead, err := p.etcd(ctx)
	if err != nil {
		return of("etcd", bad(Fail, name, err.Error(), cmp.Or(assign.Advice(err), "correct etcd in the config")))
	}
	checks := of("etcd", good(name, "%s", is))
	if dead != nil {
		checks = append(checks, of("etcd", bad(Warn, "endpoints", OneLine(dead), cmp.Or(assign.Advice(dead), "correct etcd in the config")))...)
	}
	return checks
}

// compareIdentity judges whether etcd has bound the cluster to these databases, if both answer. It takes the checks of etcd, what
// unusable returned, and what identity returned.
func (p patient) compareIdentity(etcd []Check, unusable Check, id string, refused error) []Check {
	const name = "identity"
	if p.identity == nil || Worst(etcd) >= Fail {
		return nil
	}
	switch {
	case refused != nil:
		return of("etcd", bad(Fail, name, refused.Error(), "do what it says: no node starts with this config"))
	case id == "" && unusable.Level == Fail:
		return of("etcd", good(name, "not compared with the databases: see %s: %s", unusable.Subject, unusable.Name))
	case id == "":
		return of("etcd", bad(Warn, name, "no database that answers has one, so nodes of another cluster with the same id are not kept out", "run `tocsin ddl apply`"))
	default:
		return of("etcd", good(name, "%s in the databases, and none other in etcd", id))
	}
}
