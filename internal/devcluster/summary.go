package devcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
)

// Summary of a run of `tocsin dev`: counts by status are read from the tables,
// lateness and doubles are what handler and receiver saw.
type Summary struct {
	Tasks     int           `json:"tasks"`               // added
	Delivered int           `json:"delivered"`           // done, by the tables
	Unsettled int           `json:"unsettled"`           // pending or claimed, by the tables
	Dead      int           `json:"dead"`                // by the tables
	Seen      int           `json:"seen"`                // tasks that handler or receiver saw
	Again     int           `json:"seen_more_than_once"` // of those
	Early     int           `json:"early"`               // deliveries before their time
	Lateness  Lateness      `json:"lateness_ms"`         //
	Nodes     []NodeSummary `json:"nodes"`               //
	Layout    string        `json:"layout"`              //
	Seconds   Phases        `json:"seconds"`             //

	Prometheus string `json:"prometheus,omitempty"` // its URL, if it watches

	tables string // what a node does with its tables
}

// Lateness in milliseconds.
type Lateness struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// NodeSummary is one node's share.
type NodeSummary struct {
	Name      string `json:"name"`
	Delivered int    `json:"delivered"`
	Tables    int    `json:"tables"`
}

// Phases of the run, in seconds.
type Phases struct {
	Servers float64 `json:"servers"` // MariaDB and etcd up
	Schema  float64 `json:"schema"`  // all tables created
	Nodes   float64 `json:"nodes"`   // all tables owned
	Insert  float64 `json:"insert"`  // all tasks added
	Total   float64 `json:"total"`
}

// OK reports whether every task was delivered, none early.
func (s Summary) OK() bool { return s.Delivered == s.Tasks && s.Early == 0 }

// String is the summary for people.
func (s Summary) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("delivered", "%d of %d tasks (%d dead, %d not settled)", s.Delivered, s.Tasks, s.Dead, s.Unsettled)
	line("lateness", "p50 %.1f ms, p99 %.1f ms, max %.1f ms; %d early", s.Lateness.P50, s.Lateness.P99, s.Lateness.Max, s.Early)
	line("seen twice", "%d", s.Again)
	for _, n := range s.Nodes {
		line("node", "%s delivered %d and %s %d tables", n.Name, n.Delivered, s.tables, n.Tables)
	}
	line("layout", "%s", s.Layout)
	line("took", "servers %.1f s, schema %.1f s, nodes %.1f s, insert %.1f s, in all %.1f s",
		s.Seconds.Servers, s.Seconds.Schema, s.Seconds.Nodes, s.Seconds.Insert, s.Seconds.Total)
	return b.String()
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Summary reads the tables and the record. Call it after AwaitSeen: it waits
// until what was seen is settled too, or ctx ends.
func (c *Cluster) Summary(ctx context.Context, tasks int) (Summary, error) {
	db, err := store.Open(c.Config)
	if err != nil {
		return Summary{}, err
	}
	s := Summary{Tasks: tasks, Layout: c.Config.Layout.String(), Seconds: c.phases, tables: "owns"}
	if c.opts.NoEtcd {
		s.tables = "looks first at"
	}
	settled := func() bool {
		err = s.count(ctx, db)
		return err != nil || s.Unsettled == 0
	}
	if waitErr := c.await(ctx, settled); waitErr != nil && !errors.Is(waitErr, context.DeadlineExceeded) {
		err = errors.Join(err, waitErr)
	}
	s.observed(c.Recorder.Observed(), c.nodes.Nodes, c.names)
	s.Seconds.Total = time.Since(c.started).Seconds()
	return s, errors.Join(err, db.Close())
}

// count reads the tables.
func (s *Summary) count(ctx context.Context, db *store.Store) error {
	n, err := Count(ctx, db)
	s.Delivered, s.Unsettled, s.Dead = n.Done, n.Pending+n.Claimed, n.Dead
	return err
}

func (s *Summary) observed(o Observed, nodes []*node.Node, names []string) {
	s.Seen, s.Again, s.Early = o.Distinct, o.Again, o.Early
	s.Lateness = Lateness{P50: millis(o.P50), P99: millis(o.P99), Max: millis(o.Max)}
	for i, n := range nodes {
		report, _ := n.Report()
		s.Nodes = append(s.Nodes, NodeSummary{Name: names[i], Delivered: o.ByNode[names[i]], Tables: report.Owned})
	}
}
