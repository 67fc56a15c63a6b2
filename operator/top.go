package operator

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/dispatcher"
)

// Activity is what the nodes of a cluster deliver now, by biz type: what `tocsin top` shows.
//
// A rate is the growth of a counter between two samples of the same process. A node with one sample, or whose counters fell because
// it was restarted, has no rate yet. A node that does not answer is in Nodes with its error, and adds to no sum.
type Activity struct {
	At      time.Time       `json:"at"`
	Seconds float64         `json:"seconds"` // that the rates are of; 0: there are none yet
	Total   Rates           `json:"total"`
	Types   []TypeActivity  `json:"biz_types"` // overdue ones first, then the busiest
	Nodes   []NodeActivity  `json:"nodes"`     // by group and id
	Servers []ServerTrouble `json:"servers"`   // that are in trouble, by name
	Groups  []Unserved      `json:"groups_without_nodes"`
	Notes   []string        `json:"notes"` // what could not be read
}

// ServerTrouble is a MySQL server that hangs, that nodes do not reach, or whose overdue figures are old.
type ServerTrouble struct {
	Name    string  `json:"name"`
	Away    int     `json:"unreached_by"`            // nodes
	Waiting float64 `json:"waiting_seconds"`         // of the oldest statement without an answer
	Figures float64 `json:"overdue_figures_seconds"` // their age
}

// Unserved is a group that has biz types and no node.
type Unserved struct {
	Name  string `json:"name"`
	Types int    `json:"biz_types"`
}

// From when on a server hangs, and overdue figures are old: they are measured once a minute.
const (
	hangs = 5 * time.Second
	stale = 2 * time.Minute
)

// Rates are per second.
type Rates struct {
	Delivered float64 `json:"delivered_per_second"`
	Failed    float64 `json:"failed_per_second"` // attempts, those that made their task dead included
	Dead      float64 `json:"dead_per_second"`
}

func (r *Rates) add(o Rates) {
	r.Delivered, r.Failed, r.Dead = r.Delivered+o.Delivered, r.Failed+o.Failed, r.Dead+o.Dead
}

// TypeActivity is one biz type over all nodes.
type TypeActivity struct {
	Name string `json:"name"`
	Rates
	Late50    *float64 `json:"late_50_seconds"` // half of the deliveries began at most so late; null: there was none, or some were later than an hour
	Late99    *float64 `json:"late_99_seconds"`
	Running   int      `json:"running"`
	Limit     int      `json:"limit"`
	Queued    int      `json:"queued"`
	State     string   `json:"state"`               // open, full, limited, busy, paused, away, lacking: the worst of its nodes; no_worker: of a pull type, no worker asks
	Throttled float64  `json:"throttled,omitempty"` // deliveries a second of the nodes to which its target has said later; 0: it has not
	Waiters   *int     `json:"waiters,omitempty"`   // workers that wait for tasks; null: it is no pull type
	Overdue   *float64 `json:"overdue"`             // null: no node measures it yet
	Age       float64  `json:"overdue_seconds"`     // of the oldest overdue task
	Drain     *float64 `json:"drain_seconds"`       // until none is overdue; null: not known, or never

	able bool // a node can deliver it
}

// NodeActivity is one node.
type NodeActivity struct {
	ID      string `json:"id"`
	Group   string `json:"group,omitempty"`
	Address string `json:"address"`
	Error   string `json:"error,omitempty"` // it does not answer; the rest is zero
	Mode    string `json:"mode"`
	Tables  int    `json:"tables"`
	Wanted  int    `json:"wanted"`
	Rates
	Open      int     `json:"in_hand"`
	Unsettled int     `json:"unsettled"`
	Oldest    float64 `json:"unsettled_seconds"`
}

// noWorker is the State of a pull type that no worker asks for.
const noWorker = string(StateNoWorker)

// laneOrder are all words for a lane, from good to bad.
var laneOrder = []string{"open", "full", "limited", "busy", "paused", "away", "lacking"}

// typeSum is a biz type while it is added up.
type typeSum struct {
	TypeActivity
	late []bucket
}

// between compares the samples of all nodes with those of a while ago. Both have the same keys for the same nodes.
func between(before, now map[string]nodeSample, at time.Time) Activity {
	v := Activity{At: at, Types: []TypeActivity{}, Nodes: []NodeActivity{}, Servers: inTrouble(now), Groups: unserved(now), Notes: []string{}}
	types := map[string]*typeSum{}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		v.add(types, before[key], now[key])
	}
	for _, s := range types {
		if s.Waiters != nil && !s.able && s.State == laneOrder[0] {
			s.State = noWorker
		}
		s.Late50, s.Late99 = quantile(s.late, .5), quantile(s.late, .99)
		v.Types = append(v.Types, s.TypeActivity)
	}
	slices.SortFunc(v.Types, func(a, b TypeActivity) int {
		return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(b.Delivered+b.Failed, a.Delivered+a.Failed), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(v.Nodes, func(a, b NodeActivity) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.ID, b.ID)) })
	return v
}

// inTrouble returns those that are in trouble.
func inTrouble(now map[string]nodeSample) []ServerTrouble {
	all := map[string]ServerTrouble{}
	for _, sample := range now {
		for name, is := range sample.Servers {
			s := all[name]
			s.Name, s.Waiting, s.Figures = name, max(s.Waiting, is.Waiting.Seconds()), max(s.Figures, is.Figures.Seconds())
			if is.Away {
				s.Away++
			}
			all[name] = s
		}
	}
	troubled := []ServerTrouble{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if s := all[name]; s.Away > 0 || s.Waiting >= hangs.Seconds() || s.Figures >= stale.Seconds() {
			troubled = append(troubled, s)
		}
	}
	return troubled
}

// unserved returns the groups without nodes. A node that does not answer counts.
func unserved(now map[string]nodeSample) []Unserved {
	types := map[string]int{}
	for _, sample := range now {
		for group, n := range sample.Groups {
			types[group] = max(types[group], n)
		}
	}
	for _, sample := range now {
		delete(types, sample.Group)
	}
	all := []Unserved{}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if types[name] > 0 {
			all = append(all, Unserved{name, types[name]})
		}
	}
	return all
}

// add adds one node.
func (v *Activity) add(types map[string]*typeSum, was, is nodeSample) {
	n := NodeActivity{
		ID: is.Node, Group: is.Group, Address: is.Address, Mode: is.Mode, Tables: is.Tables, Wanted: is.Wanted,
		Open: is.Open, Unsettled: is.Unsettled, Oldest: is.Oldest.Seconds(),
	}
	if is.Err != nil {
		n.Error = OneLine(is.Err)
	}
	seconds := is.At.Sub(was.At).Seconds()
	same := is.Err == nil && was.Err == nil && was.Node == is.Node && !was.At.IsZero() && seconds > 0
	for name, t := range is.Types {
		s := types[name]
		if s == nil {
			s = &typeSum{TypeActivity: TypeActivity{Name: name, State: laneOrder[0]}}
			types[name] = s
		}
		s.occupy(t)
		if old, known := was.Types[name]; same && known && !t.fellFrom(old) {
			rates := t.since(old, seconds)
			s.add(rates)
			n.add(rates)
			s.late = grown(s.late, old.Late, t.Late)
		}
	}
	if same {
		v.Seconds = max(v.Seconds, seconds)
	}
	v.Total.add(n.Rates)
	v.Nodes = append(v.Nodes, n)
}

// occupy adds what a node has in hand, and what it measured.
func (s *typeSum) occupy(t typeSample) {
	s.Running, s.Limit, s.Queued, s.Throttled = s.Running+t.Running, s.Limit+t.Limit, s.Queued+t.Queued, s.Throttled+t.Throttle
	state := string(dispatcher.LaneStates[min(max(t.State, 0), len(dispatcher.LaneStates)-1)])
	if state == "open" && t.Limit > 0 && t.Running >= t.Limit {
		state = "full"
	}
	if t.Lacks && state != "paused" {
		state = "lacking"
	}
	s.able = s.able || state != "lacking" && !t.Lacks && t.Limit > 0
	if t.Waiters != nil {
		n := *t.Waiters
		if s.Waiters != nil {
			n += *s.Waiters
		}
		if s.Waiters = &n; state == "lacking" && !t.Lacks { // workers may ask other nodes
			state = laneOrder[0]
		}
	}
	if slices.Index(laneOrder, state) > slices.Index(laneOrder, s.State) {
		s.State = state
	}
	if !t.Measured {
		return
	}
	s.Overdue, s.Age = &t.Overdue, max(s.Age, t.Age.Seconds())
	if !math.IsNaN(t.Drain) && !math.IsInf(t.Drain, 0) {
		s.Drain = &t.Drain
	}
}

// fellFrom reports whether the counters are those of another process.
func (t typeSample) fellFrom(old typeSample) bool {
	return t.Done < old.Done || t.Retried < old.Retried || t.Dead < old.Dead
}

// since returns the rates between two samples.
func (t typeSample) since(old typeSample, seconds float64) Rates {
	return Rates{
		Delivered: (t.Done - old.Done) / seconds,
		Failed:    (t.Retried - old.Retried + t.Dead - old.Dead) / seconds,
		Dead:      (t.Dead - old.Dead) / seconds,
	}
}

// grown adds to the sum how much each bucket has grown. Nodes have the same buckets; those of another program are left out.
func grown(sum, old, now []bucket) []bucket {
	if sum == nil {
		sum = make([]bucket, len(now))
		for i, b := range now {
			sum[i].Within = b.Within
		}
	}
	if len(old) != len(now) || len(sum) != len(now) {
		return sum
	}
	for i := range now {
		sum[i].Count += now[i].Count - old[i].Count
	}
	return sum
}

// quantile returns the bound, in seconds, of the bucket that holds the quantile; nil if there is none.
func quantile(buckets []bucket, q float64) *float64 {
	if len(buckets) == 0 {
		return nil
	}
	total := buckets[len(buckets)-1].Count
	for _, b := range buckets {
		if total > 0 && b.Count >= q*total && b.Within != never {
			seconds := b.Within.Seconds()
			return &seconds
		}
	}
	return nil
}
