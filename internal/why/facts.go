package why

import (
	"cmp"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
)

// Facts are what is known of a task.
type Facts struct {
	JobID tocsin.JobID
	Now   time.Time     // by the clock of the task's server, or by this host's if that is not known
	Grace time.Duration // of the sweepers

	Server   Server
	Task     *tocsin.Info // the row; nil: there is none, or it could not be read
	Unread   error        // why the row could not be read
	Policies []biztype.Stored
	NoTypes  error // why the policies could not be read

	First []tocsin.JobID // tasks of its biz type and biz_id that are in delivery or go before it, if the policy lets only so many be in delivery at once and these are as many

	NoTurn error // why they could not be read

	Group  Group
	NoEtcd error // why the nodes could not be read, from etcd or from the node tables

	Pages []Page // of nodes that may have the task
}

// Server is where the task's table is.
type Server struct {
	Name     string // in the config
	Table    string // full name, "toc_3.task_0517"
	Database string // "toc_3"
	Refused  error  // why the database must not be used
	Older    bool   // it is refused as an older copy of itself
	Hangs    bool   // it takes connections and does not answer
	Full     error  // why it lately refused writes
	ReadOnly bool
}

// Group is the nodes that deliver the biz type.
type Group struct {
	Name  string
	Open  bool               // nobody owns tables: Owner looks at the table first
	Owner string             // id; "": nobody
	Last  string             // id of the node that took the table last, by its owner row in MySQL; "": not known
	Nodes []assign.NodeState // by id
}

// Page is the status page of a node.
type Page struct {
	Node    string // id of the node that publishes the address; "": the address was given by hand
	Address string // "": it publishes none
	Report  *node.Report
	Err     error
}

// policy returns the policy of the task's biz type; nil if there is none.
func (f *Facts) policy() *biztype.Stored {
	i := slices.IndexFunc(f.Policies, func(p biztype.Stored) bool { return f.Task != nil && p.Name == f.Task.BizType })
	if i < 0 {
		return nil
	}
	return &f.Policies[i]
}

// node returns a node of the group; nil if it is not registered.
func (f *Facts) node(id string) *assign.NodeState {
	i := slices.IndexFunc(f.Group.Nodes, func(n assign.NodeState) bool { return n.ID == id })
	if i < 0 || id == "" {
		return nil
	}
	return &f.Group.Nodes[i]
}

// report returns what the status page of a node says; nil if it was not asked, or did not answer.
func (f *Facts) report(id string) *node.Report {
	for _, p := range f.Pages {
		if p.Report != nil && p.Report.Node == id && id != "" {
			return p.Report
		}
	}
	return nil
}

// holder returns the id of the node that has the table, or had it last.
func (g Group) holder() string { return cmp.Or(g.Owner, g.Last) }

// holds says in what way the Owner has the task's table.
func (g Group) holds() string {
	switch {
	case g.Owner == "":
		return "which took its table last"
	case g.Open:
		return "which looks at its table first"
	}
	return "which owns its table"
}
