package node

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/pull"
)

// Report is what the status page says of a running node.
type Report struct {
	Node    string    `json:"node"` // id of the current incarnation
	Group   string    `json:"group"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Mode    Mode      `json:"mode"`
	Owned   int       `json:"tables_owned"` // in mode rows: that it looks at first
	Wanted  int       `json:"tables_wanted"`
	Types   []string  `json:"biz_types"` // the types delivered here
	// Lacks are the biz types of the group that are not delivered here, with the reasons: others stand in for this
	// node, if they can.
	Lacks map[string]string `json:"biz_types_lacking"`
	// Single are the biz types that are delivered without their fallback, with the reasons.
	Single map[string]string `json:"biz_types_without_fallback,omitempty"`
	// Newer are the biz types of which tasks were left alone lately, since their payload is newer than this program reads,
	// with the newest version.
	Newer map[string]int `json:"newer_payloads,omitempty"`
	// Asked are the pull types of the group, with the workers that ask this node.
	Asked map[string]pull.Asked `json:"pull,omitempty"`
	// Idle are the handlers that get no task, with the reasons, by biz type.
	Idle map[string]string `json:"handlers_idle"`
	Work Work              `json:"work"`

	// Behind is how long the earliest fire time of a schedule has passed for which this node should have made a run, and
	// has not.
	Behind float64 `json:"schedules_behind_seconds"`

	Lanes []dispatcher.LaneReport `json:"lanes"` // the biz types, one that is lacking by now included

	Databases []Database      `json:"databases"` // the ones that this node can't use, or that have a fault
	Servers   []ServerAddress `json:"servers"`   // the ones with several addresses
	// Hangs are the servers that accept statements and don't answer, each with how long.
	Hangs map[string]string `json:"servers_hanging"`
	// Task is where the task of the request's parameter job_id is; nil without it, or while the node is not running.
	Task *dispatcher.Place `json:"task,omitempty"`
}

// Work is what a node has in hand.
type Work = dispatcher.Stats

// Database is what a node knows about one database, Condition whether it can be used, ServerAddress what the node knows about a server
// with several addresses.
type (
	Database      = store.Database
	Condition     = store.Condition
	ServerAddress = store.Server
)

// The conditions of a database.
const (
	Usable      Condition = "usable"      // its server answers, and its layout row is as the config says
	Wrong       Condition = "wrong"       // its layout row is missing, not the config's, or can't be read: statements to it are refused
	Unreachable Condition = "unreachable" // its server does not answer, twice in a row
)

// ID returns the id of the node's current incarnation; "" while Run is not under way, or
// waits for etcd or a server.
func (n *Node) ID() string {
	if p := n.running.Load(); p != nil {
		return p.group.ID()
	}
	return ""
}

// Mode is how a node delivers.
type Mode string

// The modes.
const (
	Ownership Mode = "ownership" // its lease is proven
	Rows      Mode = "rows"      // nobody owns tables: it claims each row
	Claim     Mode = "claim"     // it has tables but can't prove its lease: it claims each row
	Sweeping  Mode = "sweep"     // etcd has been away since it started: it claims and delivers what is overdue
	Waiting   Mode = "waiting"   // it has neither, or all servers have been away since it started: nothing is delivered
)

// Report tells the node's state; false while Run is not under way.
func (n *Node) Report() (Report, bool) {
	p := n.running.Load()
	if p == nil {
		mode := Waiting
		if n.sweeps.Load() {
			mode = Sweeping
		}
		sick := []Database{}
		if looks := n.away.Load(); looks != nil {
			sick = looks.State().Sick()
		}
		return Report{ // no list and no object is null in JSON
			Group: n.cfg.Group, Version: n.cfg.Version, Mode: mode, Types: []string{}, Lacks: map[string]string{}, Idle: map[string]string{},
			Lanes: []dispatcher.LaneReport{}, Databases: sick, Servers: []ServerAddress{}, Hangs: map[string]string{},
		}, false
	}
	told := p.roster.now()
	return Report{
		Node: p.group.ID(), Group: n.cfg.Group, Version: n.cfg.Version, Started: p.started,
		Mode: p.mode(), Owned: p.group.Owned(), Wanted: p.group.Wanted(),
		Types: told.Types, Lacks: told.Lacks, Single: p.targets.single(p.roster.known()), Newer: told.Newer, Idle: p.roster.without(), Work: p.dispatcher.Stats(), Lanes: p.dispatcher.Lanes(),
		Databases: p.health.State().Sick(), Servers: p.health.Servers(), Hangs: p.health.Hanging(), Asked: p.hub.Asked(), Behind: p.generator.Behind().Seconds(),
	}, true
}

func (p *parts) mode() Mode {
	switch {
	case p.claimers != nil:
		return Rows
	case p.leaseOK():
		return Ownership
	case p.group.Owned() > 0:
		return Claim
	}
	return Waiting
}

// Status serves the node's Report as JSON: 200 while the node may deliver, 503
// while it is not running or waits for a lease. It may be mounted anywhere and
// serves before, during and after Run. With the parameter job_id, the Report says where
// that task is.
func (n *Node) Status() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report, _ := n.Report()
		report.Task = n.place(r.URL.Query().Get("job_id"))
		w.Header().Set("Content-Type", "application/json")
		if report.Mode == Waiting {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(report) // a client that went away is no fault of ours
	})
}

// place returns where a task is; nil if the text is no job_id of a table, or Run is not under way.
func (n *Node) place(jobID string) *dispatcher.Place {
	id, err := tocsin.ParseJobID(jobID)
	p := n.running.Load()
	if err != nil || p == nil {
		return nil
	}
	server := p.store.ServerOf(id.Table())
	if server < 0 {
		return nil
	}
	place := p.dispatcher.Place(server, id)
	return &place
}
