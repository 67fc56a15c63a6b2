package sweeper

import (
	"maps"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/duequeue"
)

// types are the biz types of the tests.
var types = []biztype.Policy{
	{Name: "a", Number: 1, Group: "g"},
	{Name: "hang", Number: 2, Group: "g"},
	{Name: "b", Number: 3, Group: "g"},
	{Name: "foreign", Number: 4, Group: "g"},
}

// intake has lanes of one server with room for a few entries. Each look at a lane
// settles one entry of each type that does not hang. Of a type that hangs, four
// entries stay in delivery.
type intake struct {
	room      int
	elsewhere int           // every n-th entry goes elsewhere; 0: none
	settled   func(all int) // called for each settled entry
	full      func()        // called for a look at a full lane

	mu      sync.Mutex
	hangs   map[uint64]bool
	paused  map[uint64]bool
	held    map[uint64][]tocsin.JobID
	most    map[uint64]int // most entries held at once
	got     map[tocsin.JobID]int
	out     map[uint64]Counts
	dropped map[int]bool
	all     int
}

// inDelivery is how many entries of a hanging type are in delivery.
const inDelivery = 4

func newIntake(room int) *intake {
	return &intake{
		room: room, settled: func(int) {}, full: func() {}, hangs: map[uint64]bool{}, paused: map[uint64]bool{}, held: map[uint64][]tocsin.JobID{},
		most: map[uint64]int{}, got: map[tocsin.JobID]int{}, out: map[uint64]Counts{}, dropped: map[int]bool{},
	}
}

func (in *intake) Set(tables []int, as *duequeue.Access) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, table := range tables {
		in.dropped[table] = as == nil
	}
	if as != nil {
		return
	}
	for t, ids := range in.held {
		in.held[t] = ids[:min(len(ids), inDelivery)]
	}
}

func (in *intake) Offer(_ int, entries []duequeue.Entry) (refused []duequeue.Entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, e := range entries {
		if len(in.held[e.Type]) == in.room || in.paused[e.Type] || in.dropped[e.JobID.Table()] {
			refused = append(refused, e)
			continue
		}
		in.held[e.Type] = append(in.held[e.Type], e.JobID)
		in.most[e.Type] = max(in.most[e.Type], len(in.held[e.Type]))
		in.got[e.JobID]++
	}
	return refused
}

func (in *intake) Lane(_ int, bizType uint64) (held, room int, open bool) {
	for _, p := range types {
		if n := in.settle(1, p.Number); n > 0 {
			in.settled(n)
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if held = len(in.held[bizType]); held == in.room {
		in.full()
	}
	return held, in.room - held, !in.paused[bizType] && bizType != 4
}

// settle ends n entries of a type that does not hang, all for 0. It returns how many
// were ever settled, or 0 if none was now.
func (in *intake) settle(n int, bizType uint64) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	ids := in.held[bizType]
	if len(ids) == 0 || in.hangs[bizType] || in.paused[bizType] {
		return 0
	}
	if n == 0 {
		n = len(ids)
	}
	in.held[bizType] = ids[n:]
	for range n {
		if in.all++; in.elsewhere > 0 && in.all%in.elsewhere == 0 {
			continue
		}
		out := in.out[bizType]
		out.Delivered++
		in.out[bizType] = out
	}
	return in.all
}

func (in *intake) outcomes() map[uint64]Counts {
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.out)
}

func (in *intake) pause(bizType uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.paused[bizType] = true
}

func (in *intake) isPaused(bizType uint64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.paused[bizType]
}

// release ends the hang of a type.
func (in *intake) release(bizType uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hangs[bizType] = false
}
