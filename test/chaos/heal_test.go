package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestClusterHealsByItself: what a hand does to keys, a quick restart, a compaction.
func TestClusterHealsByItself(t *testing.T) {
	o := clustered(3)
	o.OneName, o.Layout.Tables = true, pick(16, 128)
	s := begin(t, o)
	h, client := s.watch(), s.dialEtcd()
	f := &figures{run: "heals"}
	s.under(steady(100, 600), func(context.Context) error {
		s.pause(time.Second)
		f.seconds("key_deleted", s.healed(h, func(table int) {
			s.byHand(client.Delete(t.Context(), s.keyOf(table)))
		}))
		f.seconds("key_overwritten", s.healed(h, func(table int) {
			s.byHand(client.Put(t.Context(), s.keyOf(table), "whoever"))
		}))
		f.seconds("compacted_while_cut_off", s.compacted(h, client))
		f.seconds("restarted_under_its_name", s.restarted(h))
		s.pause(pick(time.Second, 5*time.Second))
		return nil
	})
	r := s.verdict()
	firsts := s.firsts()
	f.late("all", latenessOf(firsts, func(first) bool { return true }))
	s.worst(firsts)
	f.add("again_by_cause", r.Counts[lineAgain])
	s.close(f, h, r)
	s.secondsWereInHand(r)
}

// keyOf is the key of a table.
func (s *scenario) keyOf(table int) string { return fmt.Sprintf("%stables/%d", s.keysOf(), table) }

// byHand fails the test if an operator's write was refused.
func (s *scenario) byHand(_ any, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// healed harms the key of a table of the first node, and gives how long it took
// until a node owned the table again.
func (s *scenario) healed(h *history, harm func(table int)) time.Duration {
	s.t.Helper()
	table := anyOf(h.ownedBy(s.seats[0]))
	_, seen := h.snapshot()
	begin := time.Now()
	harm(table)
	at := s.ownedAgain(h, table, seen)
	h.byHand = append(h.byHand, torn{table, span{begin, at}})
	return at.Sub(begin)
}

// ownedAgain waits until a node owns the table by a change after the first seen
// ones, and tells when that was.
func (s *scenario) ownedAgain(h *history, table, seen int) (at time.Time) {
	s.t.Helper()
	h.await(s.t, fmt.Sprintf("an owner of table %d", table), func() bool {
		for _, c := range h.changes[seen:] {
			if c.Table == table && c.Owner != "" && c.Owner != byHand {
				at = c.At
				return true
			}
		}
		return false
	})
	h.balance(s.t, len(s.seats))
	return at
}

// anyOf gives one of the tables.
func anyOf(tables map[int]bool) int {
	for table := range tables {
		return table
	}
	return 0
}

// compacted cuts a node off for less than its lease, deletes a key of it meanwhile,
// and compacts that away: it can learn of it by a full read alone. It gives how long
// after the cut the table was owned again.
func (s *scenario) compacted(h *history, client *clientv3.Client) time.Duration {
	s.t.Helper()
	table := anyOf(h.ownedBy(s.seats[0]))
	_, seen := h.snapshot()
	length := s.opts.Timing.Lease * 2 / 5
	done := make(chan error, 1)
	go func() { done <- s.Do(s.t.Context(), Step{Fault: CutEtcd, Node: 0, Length: length}) }()
	s.pause(length / 4)
	resp, err := client.Delete(s.t.Context(), s.keyOf(table))
	s.byHand(resp, err)
	s.byHand(client.Put(s.t.Context(), "/elsewhere", "so that there is something to compact"))
	s.byHand(client.Compact(s.t.Context(), resp.Header.Revision+1))
	if err := <-done; err != nil {
		s.t.Fatal(err)
	}
	mended := time.Now()
	at := s.ownedAgain(h, table, seen)
	h.byHand = append(h.byHand, torn{table, span{mended.Add(-length), at}})
	return at.Sub(mended)
}

// restarted kills a node and starts it at once under the same name. It gives how long
// it took until nodes that live shared all tables evenly.
func (s *scenario) restarted(h *history) time.Duration {
	s.t.Helper()
	before, seen := h.snapshot()
	begin := time.Now()
	end := s.log.begin(Step{Fault: KillNode, Node: 0})
	s.seats[0].kill()
	if err := s.sit(s.seats[0]); err != nil {
		s.t.Fatal(err)
	}
	end()
	dead := before[anyOf(h.ownedBy(s.seats[0]))]
	h.await(s.t, "the end of the dead node's keys", func() bool { return h.counts[dead] == 0 })
	h.balance(s.t, len(s.seats))
	r := h.since(begin, before, seen)
	s.t.Log("restarted: ", r)
	return r.span.to.Sub(begin)
}
