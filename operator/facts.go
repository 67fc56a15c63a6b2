package operator

import (
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
)

// State is where a task is, in one word.
type State string

// The states of a task that no node will touch again, or that there is none of.
const (
	StateDone      State = "done"
	StateCancelled State = "cancelled"
	StateDead      State = "dead"
	StateGone      State = "gone" // purged, or never there
)

// The states of a task that has its time before it.
const (
	StateNotDue  State = "not_due"
	StateRetry   State = "retry"   // an attempt failed
	StateSnoozed State = "snoozed" // its handler asked for a later time
)

// The states of a task that a process has.
const (
	StateClaimed    State = "claimed"
	StateRunOut     State = "claim_run_out"
	StateInDelivery State = "in_delivery"
	StateUnsettled  State = "unsettled" // delivered, and the outcome is not stored yet
)

// The states of a task that is due and waits.
const (
	StateUnknownType State = "unknown_type"
	StatePaused      State = "paused"
	StateNoHandler   State = "no_handler"
	StateNoSecret    State = "no_secret"
	StateNoSink      State = "no_sink"
	StateNoWorker    State = "no_worker"     // of a pull type: no worker asks
	StateStandIn     State = "stand_in"      // its table's owner lacks the type, and another node delivers it
	StateNewer       State = "newer_payload" // no node of its group reads the version of its payload
	StateNoOwner     State = "no_owner"
	StateNoEtcd      State = "no_etcd" // its table's owner can't be known, and nobody can take the table
	StateRefused     State = "database_refused"
	StateOlderCopy   State = "older_copy"
	StateAway        State = "server_away"
	StateHangs       State = "server_hangs"
	StateReadOnly    State = "server_read_only" // or without room
	StateTargetAway  State = "target_away"
	StateTargetBusy  State = "target_busy" // it has said "later"
	StateLaneFull    State = "lane_full"
	StateRateLimited State = "rate_limited"
	StateTurn        State = "key_busy" // others of its biz_id go first
	StateQueued      State = "queued"   // its turn comes next
	StateUnseen      State = "unseen"   // its table's owner has not found it yet
	StateOverdue     State = "overdue"  // a sweep takes it
	StateDue         State = "due"      // nothing is known to be in its way
)

// Answer is what is known of a task.
type Answer struct {
	JobID   tocsin.JobID `json:"job_id"`
	State   State        `json:"state"`
	Says    string       `json:"says"`           // the state, in a sentence
	Also    []string     `json:"also"`           // further sentences
	Unasked []string     `json:"not_asked"`      // what could not be asked, and why
	Table   string       `json:"table"`          // full name, "toc_3.task_0517"
	Server  string       `json:"server"`         // in the config
	Group   string       `json:"group"`          // of its biz type; "": not known
	Owner   string       `json:"owner"`          // id of the node that owns the table, or looks at it first; "": nobody, or not known
	Task    *tocsin.Info `json:"task"`           // the row; null: there is none, or it could not be read
	When    time.Time    `json:"when,omitzero"`  // until when it waits or is claimed, or when it was settled
	Since   time.Time    `json:"since,omitzero"` // since when the state lasts, if that is known
	Parts   AnswerParts  `json:"-"`
}

// AnswerParts are the sentences of an Answer with their parts.
type AnswerParts struct {
	Says          Sentence
	Also, Unasked []Sentence
}

// facts are what is known of a task.
type facts struct {
	JobID tocsin.JobID
	Now   time.Time     // by the clock of the task's server, or by this host's if that is not known
	Grace time.Duration // of the sweepers

	Server   taskServer
	Task     *tocsin.Info // the row; nil: there is none, or it could not be read
	Unread   error        // why the row could not be read
	Policies []biztype.Stored
	NoTypes  error // why the policies could not be read

	Holder *holder // of a task that is claimed under a session; nil: it is not, or the sessions could not be read

	First []tocsin.JobID // tasks of its biz type and biz_id that are in delivery or go before it, if the policy lets only so many be in delivery at once and these are as many

	NoTurn error // why they could not be read

	Group  taskGroup
	NoEtcd error // why the nodes could not be read in full, from etcd or from the session tables

	Pages []statusPage // of nodes that may have the task
}

// holder is the process under whose session a task is claimed.
type holder struct {
	Node string // "": the session has ended
}

// taskServer is where the task's table is.
type taskServer struct {
	Name     string // in the config
	Table    string // full name, "toc_3.task_0517"
	Database string // "toc_3"
	Refused  error  // why the database must not be used
	Older    bool   // it is refused as an older copy of itself
	Hangs    bool   // it takes connections and does not answer
	Full     error  // why it lately refused writes
	ReadOnly string // why; "": it takes writes
}

// taskGroup is the nodes that deliver the biz type.
type taskGroup struct {
	Name  string
	Open  bool               // nobody owns tables: Owner looks at the table first
	Known bool               // Owner and Nodes are, though the session tables of other servers may not have been read
	Owner string             // id; "": nobody
	Last  string             // id of the node that took the table last, by its owner row in MySQL; "": not known
	Nodes []assign.NodeState // by id
}

// statusPage is the status page of a node.
type statusPage struct {
	Node    string // id of the node that publishes the address; "": the address was given by hand
	Address string // "": it publishes none
	Report  *node.Report
	Err     error
}

// policy returns the policy of the task's biz type; nil if there is none.
func (f *facts) policy() *biztype.Stored {
	i := slices.IndexFunc(f.Policies, func(p biztype.Stored) bool { return f.Task != nil && p.Name == f.Task.BizType })
	if i < 0 {
		return nil
	}
	return &f.Policies[i]
}

// node returns a node of the group; nil if it is not registered.
func (f *facts) node(id string) *assign.NodeState {
	i := slices.IndexFunc(f.Group.Nodes, func(n assign.NodeState) bool { return n.ID == id })
	if i < 0 || id == "" {
		return nil
	}
	return &f.Group.Nodes[i]
}

// report returns what the status page of a node says; nil if it was not asked, or did not answer.
func (f *facts) report(id string) *node.Report {
	for _, p := range f.Pages {
		if p.Report != nil && p.Report.Node == id && id != "" {
			return p.Report
		}
	}
	return nil
}

// holds says in what way the Owner has the task's table.
func (g taskGroup) holds() Sentence {
	switch {
	case g.Owner == "":
		return sentence("which took its table last")
	case g.Open:
		return sentence("which looks at its table first")
	}
	return sentence("which owns its table")
}
