package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// figures is what a run measured, in order. They are printed as JSON.
type figures struct {
	run   string
	names []string
	value []any
}

func (f *figures) add(name string, value any) {
	f.names, f.value = append(f.names, name), append(f.value, value)
}

// late adds the quantiles of a lateness.
func (f *figures) late(name string, l Lateness) {
	f.add(name+"_p50_ms", l.Quantile(0.5).Milliseconds())
	f.add(name+"_p99_ms", l.Quantile(0.99).Milliseconds())
	f.add(name+"_max_ms", l.Quantile(1).Milliseconds())
	f.add(name+"_tasks", len(l))
}

// seconds adds a time in seconds, to the millisecond.
func (f *figures) seconds(name string, d time.Duration) {
	f.add(name+"_s", float64(d.Milliseconds())/1000)
}

// json keeps the order.
func (f *figures) json() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"run":%q`, f.run)
	for i, name := range f.names {
		value, err := json.Marshal(f.value[i])
		if err != nil {
			panic(err) // numbers, strings and plain structs only
		}
		fmt.Fprintf(&b, ",%q:%s", name, value)
	}
	return b.String() + "}"
}

func (f *figures) print(t *testing.T) {
	t.Helper()
	t.Logf("\nfigures %s", f.json())
}

// first is the first delivery of a task.
type first struct {
	delivery
	due time.Time // as entry.awaited
}

func (f first) late() time.Duration { return max(f.At.Sub(f.due), 0) }

// firsts gives the first deliveries of all tasks that were not changed.
func (s *scenario) firsts() (all []first) {
	s.t.Helper()
	by := s.byTask()
	for _, e := range s.log.entries {
		if of := by[e.JobID]; len(of) > 0 && e.Change == nil {
			all = append(all, first{of[0], e.awaited()})
		}
	}
	return all
}

// latenessOf gives the lateness of those that count, in order.
func latenessOf(all []first, counts func(first) bool) Lateness {
	var late Lateness
	for _, f := range all {
		if counts(f) {
			late = append(late, f.late())
		}
	}
	slices.Sort(late)
	return late
}

// dueIn reports whether it fell due in one of the spans.
func (f first) dueIn(spans ...span) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return !f.due.Before(s.from) && !f.due.After(s.to) })
}

// sight is how far from when it happened a begin may be seen here; callbackSight is how much later that of a callback.
const (
	sight         = 500 * time.Millisecond
	callbackSight = 3 * time.Second
)

// unclaimed counts the deliveries by nodes that neither owned the table, by the
// history, nor claimed the row. It fails the test if there are any but those in hand
// of a node that was frozen.
func (s *scenario) unclaimed(h *history) (n int) {
	s.t.Helper()
	claimedBy := map[tocsin.JobID]string{}
	for _, rows := range s.log.rows {
		claimedBy[rows[0].JobID] = rows[0].ClaimedBy
	}
	owned := h.tenures()
	frozen := verdict{evidence: s.log}
	for _, d := range s.all() {
		by := claimedBy[d.JobID]
		if ownedThen(owned[d.JobID.Table()], d) || isNode(by, d.Node) || frozen.frozen(d) || h.tornThen(d) {
			continue
		}
		if n++; n <= 3 {
			s.t.Errorf("table %d: neither owned nor claimed by its node: %s, claimed by %q; its key:%s", d.JobID.Table(), d, by, h.of(d.JobID.Table()))
		}
	}
	return n
}

// heard is how long a node may take to hear from etcd that its key was harmed, on a busy machine.
const heard = 5 * time.Second

// tornThen reports whether a hand had harmed the key of the delivery's table then, which its owner could not know. Another node may
// have heard of it first, and own the table already.
func (h *history) tornThen(d delivery) bool {
	return slices.ContainsFunc(h.byHand, func(s torn) bool {
		return s.table == d.JobID.Table() && d.At.After(s.from) && d.At.Before(s.to.Add(heard))
	})
}

// ownedThen reports whether the delivery's node owned the table when it began.
func ownedThen(of []tenure, d delivery) bool {
	later := sight
	if d.Callback {
		later = callbackSight
	}
	return slices.ContainsFunc(of, func(t tenure) bool {
		return isNode(t.owner, d.Node) && !d.At.Before(t.from.Add(-sight)) && (t.to.IsZero() || !d.At.After(t.to.Add(later)))
	})
}

// isNode reports whether an id is the node's, whose name may lack the incarnation.
func isNode(id, node string) bool { return id == node || strings.HasPrefix(id, node+"-") }
