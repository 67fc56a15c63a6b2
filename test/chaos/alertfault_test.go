package chaos

import (
	"os"
	"path/filepath"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// outage is a fault, and how a command is asked about it.
type outage struct {
	name string
	harm
	waits func(typ string, table int) bool // a task that then waits, for `tocsin task why`; nil: asks is asked
	asks  []string                         // the command that says what is wrong
	says  string                           // a regular expression, found in the line of its answer that does
}

// outages are all of them, in the order in which they are played.
func (a *watchedCluster) outages() []outage {
	anyTask := func(string, int) bool { return true }
	ofType := func(name string) func(string, int) bool { return func(typ string, _ int) bool { return typ == name } }
	ofServer := func(_ string, table int) bool { return a.opts.serverOf(table) == 1 }
	ofLast := func(_ string, table int) bool { return a.opts.Layout.DatabaseOf(table) == 3 }
	orderClose, doctor, top := ofType("order.close"), []string{"doctor"}, []string{"top", "--once"}
	killed := func(node int) harm { return a.of(Step{Fault: KillNode, Node: node}) }
	n1, n2, n3, etcd := killed(0), killed(1), killed(2), a.of(Step{Fault: FreezeEtcd})
	return []outage{
		{name: "a receiver answers 500", harm: a.answers(1), waits: orderClose},
		{name: "a receiver hangs", harm: a.answers(2), waits: orderClose},
		{name: "a receiver rejects the secret", harm: a.answers(3), waits: orderClose},
		{name: "one of two nodes is killed", harm: n2, asks: []string{"cluster", "nodes", "--ask", a.pages()}, says: "refused"},
		{name: "all nodes are killed", harm: harm{func() { n1.begin(); n2.begin(); n3.begin() }, func() { n1.end(); n2.end(); n3.end() }}, waits: anyTask},
		{name: "the last node of a group is killed", harm: n3, waits: ofType("mail.send")},
		{name: "etcd is frozen", harm: etcd, asks: doctor, says: "^fail +etcd"},
		{name: "etcd is frozen, and a node is restarted", harm: harm{func() { etcd.begin(); a.seats[1].kill(); a.sit(a.seats[1]) }, etcd.end}, waits: anyTask},
		{name: "one of two servers is killed", harm: a.of(Step{Fault: KillServer, Server: 1}), waits: ofServer},
		{name: "one of two servers is frozen", harm: a.of(Step{Fault: FreezeServer, Server: 1}), asks: top, says: "db1"},
		{name: "one of two servers is read-only", harm: a.of(Step{Fault: ReadOnly, Server: 1}), asks: doctor, says: "^fail.*read.only"},
		{name: "a database's layout row names another cluster", harm: a.of(Step{Fault: WrongCluster, Server: 1, Database: 3}), waits: ofLast},
		{name: "the nodes' user lacks UPDATE on one server", asks: doctor, says: "^fail.*UPDATE",
			harm: a.run(1, "REVOKE UPDATE ON `faults\\_%`.* FROM tocsin@'%'", "GRANT UPDATE ON `faults\\_%`.* TO tocsin@'%'")},
		{name: "no node has a biz type's secret", harm: harm{a.addUnsigned, nothing}, waits: ofType("sms.secret")},
		{name: "a schedule fails until it is paused", harm: harm{a.addSchedule, nothing}, asks: []string{"schedule", "show", "reports"}, says: "paused"},
		{name: "the disk of one of two servers is full", harm: a.fullDisk(), asks: doctor, says: "^fail.*db1.*commit"},
		{name: "50,000 tasks are overdue", harm: harm{a.addBacklog, nothing}, asks: top, says: "bulk.send"},
	}
}

func nothing() {}

// answers has the callbacks of order.close end in some way.
func (a *watchedCluster) answers(way int32) harm {
	return harm{func() { a.way.Store(way) }, func() { a.way.Store(0) }}
}

// addUnsigned adds a biz type whose secret no node has.
func (a *watchedCluster) addUnsigned() {
	_, err := biztype.Apply(a.t.Context(), a.tables(a.harness), []biztype.Policy{a.policy("sms.secret", 3, "TOCSIN_NO_SUCH_SECRET")})
	a.orFail(err)
}

// addSchedule makes a schedule that fails each second, until it is paused.
func (a *watchedCluster) addSchedule() {
	file := filepath.Join(a.opts.Dir, "schedules.yaml")
	a.orFail(os.WriteFile(file, []byte("schedules: [{name: reports, biz_type: report.run, cron: '@every 1s', pause_after: 3}]\n"), 0o600))
	a.must("schedule", "apply", file)
}

// addBacklog adds tasks that have been due for 20 minutes, more than their slots deliver in a quarter of an hour.
func (a *watchedCluster) addBacklog() {
	biz, tasks := tocsin.Define[string]("bulk.send"), make([]tocsin.NewTask, 50_000)
	for i := range tasks {
		tasks[i] = biz.New(uint64(i+1), "", tocsin.At(time.Now().Add(-20*time.Minute)))
	}
	_, err := a.client.AddMany(a.t.Context(), tasks)
	a.orFail(err)
}

// fullDisk ends when the server has seen that there is room again, within a minute.
func (a *watchedCluster) fullDisk() harm {
	full := a.of(Step{Fault: FullDisk, Server: 1})
	return harm{full.begin, func() { full.end(); a.pause(time.Minute) }}
}
