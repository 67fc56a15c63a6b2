package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// trouble is what one fault did.
type trouble struct {
	What         string  `json:"what"`
	AffectedP99  int64   `json:"affected_p99_ms"`
	AffectedMax  int64   `json:"affected_max_ms"`
	AffectedN    int     `json:"affected_tasks"`
	OthersP99    int64   `json:"others_p99_ms"`
	OthersMax    int64   `json:"others_max_ms"`
	OthersN      int     `json:"others_tasks"`
	LateFor      float64 `json:"late_for_s"`      // from its begin until the last delivery that was late by more than a second
	LateForAfter float64 `json:"late_after_it_s"` // the same from its end on; 0: none
	Again        int     `json:"second_deliveries"`

	affected map[int]bool // tables; nil: all
	span     span         // of the fault itself
	until    time.Time    // what happens up to here counts
}

// String is its line.
func (tr trouble) String() string {
	return fmt.Sprintf("%s: affected p99 %d ms, max %d ms of %d, others p99 %d ms, max %d ms of %d, late for %.1f s, %.1f s after it, %d second deliveries",
		tr.What, tr.AffectedP99, tr.AffectedMax, tr.AffectedN, tr.OthersP99, tr.OthersMax, tr.OthersN, tr.LateFor, tr.LateForAfter, tr.Again)
}

// harm does a fault and lets the cluster recover.
func (s *scenario) harm(what string, step Step, affected map[int]bool, rest time.Duration) trouble {
	s.t.Helper()
	tr := trouble{What: what, affected: affected, span: span{from: time.Now()}}
	if err := s.Do(s.t.Context(), step); err != nil {
		s.t.Fatal(err)
	}
	tr.span.to = time.Now()
	s.pause(rest)
	tr.until = time.Now()
	return tr
}

// look fills in what the deliveries tell.
func (tr *trouble) look(all []first, again []second) {
	in := span{tr.span.from, tr.until.Add(-time.Second)} // what is due at the very end may meet the next fault
	hit := func(f first) bool { return tr.affected == nil || tr.affected[f.JobID.Table()] }
	affected := latenessOf(all, func(f first) bool { return f.dueIn(in) && hit(f) })
	others := latenessOf(all, func(f first) bool { return f.dueIn(in) && !hit(f) })
	tr.AffectedP99, tr.AffectedMax, tr.AffectedN = affected.Quantile(0.99).Milliseconds(), affected.Quantile(1).Milliseconds(), len(affected)
	tr.OthersP99, tr.OthersMax, tr.OthersN = others.Quantile(0.99).Milliseconds(), others.Quantile(1).Milliseconds(), len(others)
	for _, f := range all {
		if f.dueIn(in) && f.late() > time.Second {
			tr.LateFor = max(tr.LateFor, f.At.Sub(tr.span.from).Seconds())
			tr.LateForAfter = max(tr.LateForAfter, f.At.Sub(tr.span.to).Seconds())
		}
	}
	for _, a := range again {
		if a.again.At.After(in.from) && a.again.At.Before(in.to) {
			tr.Again++
		}
	}
}

// again finds all second deliveries.
func (s *scenario) again() (all []second) {
	s.t.Helper()
	for _, of := range s.byTask() {
		all = append(all, seconds(of)...)
	}
	return all
}

// troubles adds what faults did, and the calm beside them, and prints.
func (s *scenario) troubles(f *figures, h *history, r *Report, all []trouble) {
	s.t.Helper()
	firsts, again := s.firsts(), s.again()
	var spans []span
	for i := range all {
		all[i].look(firsts, again)
		spans = append(spans, span{all[i].span.from, all[i].until})
		s.t.Log(all[i])
	}
	s.worst(firsts)
	f.late("calm", latenessOf(firsts, func(d first) bool { return !d.dueIn(spans...) }))
	f.add("again_by_cause", r.Counts[lineAgain])
	f.add("faults", all)
	s.close(f, h, r)
}

// onServer gives the tables of a server.
func (s *scenario) onServer(server int) map[int]bool {
	on := map[int]bool{}
	for table := range s.opts.Layout.Total() {
		on[table] = s.opts.serverOf(table) == server
	}
	return on
}

// leader gives the number of the member that leads.
func (s *scenario) leader() int {
	s.t.Helper()
	client := s.dialEtcd()
	for i, e := range s.etcd {
		status, err := client.Status(s.t.Context(), e.Endpoint())
		if err != nil {
			s.t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			return i
		}
	}
	s.t.Fatal("no member leads")
	return 0
}

// TestClusterFaultsInTurn: four servers, three members of etcd and four nodes lose
// one of each, one after another.
func TestClusterFaultsInTurn(t *testing.T) {
	onlyLong(t)
	s := begin(t, Options{
		Servers: 4, Nodes: 4, Etcd: 3, Timing: asShipped, Layout: tocsin.Layout{Databases: 8, Tables: 128, Prefix: "chaos"},
	})
	h := s.watch()
	var all []trouble
	s.under(steady(0, 800), func(context.Context) error {
		s.pause(8 * time.Second)
		all = append(all,
			s.harm("etcd leader killed", Step{Fault: KillMember, Member: s.leader(), Length: 10 * time.Second}, nil, 8*time.Second),
			s.harm("server killed", Step{Fault: KillServer, Server: 1, Length: 8 * time.Second}, s.onServer(1), 15*time.Second),
			s.harm("node paused", Step{Fault: FreezeNode, Node: 2, Length: 20 * time.Second}, h.ownedBy(s.seats[2]), 15*time.Second))
		h.balance(t, 4)
		return nil
	})
	s.troubles(&figures{run: "faults in turn"}, h, s.verdict(), all)
}

// TestClusterFailsOver: nodes are killed and frozen in turn, again and again. The tasks of their tables wait for the end of the
// lease, and nodes that live keep theirs.
func TestClusterFailsOver(t *testing.T) {
	o := clustered(3)
	o.Layout.Tables = pick(16, 128)
	s := begin(t, o)
	h := s.watch()
	gone, rest := o.Timing.Lease+2*time.Second, pick(time.Second, 3*time.Second)
	var all []trouble
	load := steady(100, 300)
	load.Work, load.Types = 60, append(load.Types, "strict") // so that each fault meets deliveries
	s.under(load, func(context.Context) error {
		s.pause(pick(time.Second, 5*time.Second))
		for round := range pick(1, 5) {
			for i, fault := range []Fault{KillNode, FreezeNode} {
				node := (round + i) % 3
				all = append(all, s.harm(string(fault), Step{Fault: fault, Node: node, Length: gone}, h.ownedBy(s.seats[node]), rest))
				h.balance(t, 3)
			}
		}
		return nil
	})
	r, f := s.verdict(), &figures{run: "fail-over"}
	f.add("leases_lost_by_live_nodes", h.incarnations()-s.started()-len(all)/2)
	s.troubles(f, h, r, all)
	for _, tr := range all {
		if bound := o.Timing.Lease + 2*time.Second; long() && tr.AffectedMax > bound.Milliseconds() {
			t.Errorf("%s: a task was %d ms late", tr.What, tr.AffectedMax)
		}
	}
	s.secondsWereInHand(r)
}

// incarnations counts the ids under which nodes have owned tables.
func (h *history) incarnations() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := map[string]bool{}
	for _, c := range h.changes {
		if c.Owner != "" {
			ids[c.Owner] = true
		}
	}
	return len(ids)
}

// started counts the nodes' processes so far.
func (s *scenario) started() (n int) {
	for _, at := range s.seats {
		n += at.past
	}
	return n
}

// TestClusterPartitions: one node loses etcd, or one server, but not the other.
// Nobody delivers without owning the table or claiming the row.
func TestClusterPartitions(t *testing.T) {
	o := clustered(3)
	o.Servers, o.Etcd, o.Layout.Tables = 2, pick(1, 3), pick(16, 128)
	s := begin(t, o)
	h := s.watch()
	length, rest := pick(4*time.Second, 25*time.Second), pick(2*time.Second, 15*time.Second)
	load := steady(100, 600)
	load.Types = []string{"plain", "strict", "hook"}
	var all []trouble
	s.under(load, func(context.Context) error {
		s.pause(pick(time.Second, 5*time.Second))
		all = append(all, s.harm("node without etcd", Step{Fault: CutEtcd, Node: 0, Length: length}, h.ownedBy(s.seats[0]), rest))
		h.balance(t, 3)
		hers := h.ownedBy(s.seats[1])
		for table, on := range s.onServer(0) {
			if !on {
				delete(hers, table)
			}
		}
		all = append(all, s.harm("node without a server", Step{Fault: CutNode, Node: 1, Server: 0, Length: length}, hers, rest))
		h.balance(t, 3)
		return nil
	})
	s.troubles(&figures{run: "partitions"}, h, s.verdict(), all)
	for _, tr := range all {
		if long() && tr.OthersMax > 1000 {
			t.Errorf("%s: a task of another table was %d ms late", tr.What, tr.OthersMax)
		}
	}
}
