package model

import "fmt"

// The second model has one table and its owners: who may write the owner row over whom, even after etcd was wiped, or
// restored from a snapshot. Nodes get new names each time they register, like their ids.
//
//	node --check the epoch, register, create the key--> etcd: revision, epoch, key of the table, pause
//	  |                                                   wiped, restored, leases ended
//	  +--write the owner row, if its revision is higher--> MySQL: node, epoch, revision
//
// Its promises: the row never goes from a later owner back to an earlier one; two nodes never act on the table at once;
// the row names the node that acts; and the table always reaches such an owner again.

// nodesOfFence is how many nodes play.
const nodesOfFence = 2

// stage is how far a node has come.
type stage uint8

const (
	absent    stage = iota // not registered
	reading                // has read the owner rows
	reserving              // wants a new epoch
	ready                  // can register
	member                 // registered
	taking                 // its owner row is being written
	late                   // the owner row has a higher revision
	proving                // has reserved an epoch because of that
	acting                 // works on the table
	claiming               // its lease can't be proven: it claims rows, if the owner row names it
)

// revision is that of an owner row.
type revision struct{ epoch, created uint8 }

// ownerKey is the table's key in etcd; node 0 means that there is none.
type ownerKey struct {
	node, created uint8
	born          uint8 // how many keys were created before, in all lives of etcd
}

// ownerRow is the row in MySQL; node 0 means that there is none.
type ownerRow struct {
	node uint8
	revision
	born uint8
}

// fenceNode is a node. Its key and row are its current or last ones.
type fenceNode struct {
	stage  stage
	trusts bool     // in its lease, by its own clock
	life   uint8    // of the etcd that has its lease
	seen   revision // highest of the owner rows, as read
	known  bool     // there were owner rows
	was    uint8    // revision at which the epoch began, as read
	wants  uint8    // epoch that it has reserved
	key    ownerKey
	row    ownerRow // the one that it writes
	behind ownerRow // written by a former life, still under way
}

// fences is one state of the world.
type fences struct {
	life     uint8 // of etcd
	now      uint8 // its revision
	epoch    uint8 // 0: there is none
	epochAt  uint8 // revision at which it began
	settles  bool  // the key that keeps nodes from planning exists
	key      ownerKey
	born     uint8
	row      ownerRow
	reserved uint8 // highest epoch reserved in MySQL
	nodes    [nodesOfFence]fenceNode
	left     fenceFaults
}

// fenceFaults are the faults that may still happen.
type fenceFaults struct {
	wipes, restores, losses, unread, handOvers uint8
	others                                     uint8 // writes of others to the same etcd
}

// FenceGuard is a rule of the fence. Each can be switched off to show what it prevents.
type FenceGuard uint8

// The guards.
const (
	EpochFirst    FenceGuard = iota // a later epoch is higher, whatever its revision
	EpochMissing                    // an etcd without an epoch gets one
	EpochAhead                      // owner rows ahead of etcd begin an epoch
	EpochProven                     // a higher owner row, while the node's own key exists, begins an epoch
	EpochChecked                    // a node that registers has checked the current epoch
	EpochReserved                   // an epoch is reserved in MySQL before etcd has it
	Settle                          // after a new epoch nobody plans for a TTL
	HigherWins                      // an owner row is written only over a lower one
	fenceGuards
)

var fenceGuardNames = [fenceGuards]string{
	"epochs order rows before revisions", "an etcd without an epoch gets one", "owner rows ahead of etcd begin an epoch",
	"an overtaken owner whose key stands begins an epoch", "the epoch that was checked stands at the registration",
	"an epoch is reserved in MySQL before etcd has it", "nobody plans for a TTL after a new epoch",
	"a row is written over a lower one only",
}

// fenceWorld makes the steps.
type fenceWorld struct {
	name   string
	faults fenceFaults
	off    [fenceGuards]bool
	steps[fences]
}

func (w *fenceWorld) start() fences { return fences{life: 1, left: w.faults} }

func (w *fenceWorld) emit(s *fences, who int, what string, progress bool, change func(*fences) string) {
	w.steps.emit(s, who, what, progress, change)
	if last := &w.out[len(w.out)-1]; last.bad == "" {
		last.bad = last.to.broken()
	}
}

// broken returns the promise that a state breaks.
func (s *fences) broken() string {
	acts := 0
	for i := range s.nodes {
		if s.nodes[i].stage == acting && s.nodes[i].trusts {
			acts++
		}
	}
	if acts > 1 {
		return "TWO OWNERS act on the table"
	}
	return ""
}

func (w *fenceWorld) moves(s *fences) []step[fences] {
	w.out = w.out[:0]
	w.etcd(s)
	for i := range s.nodes {
		w.node(s, i)
	}
	return w.out
}

// etcd adds the steps of etcd itself.
func (w *fenceWorld) etcd(s *fences) {
	if s.left.others > 0 {
		w.emit(s, nobody, "others write to etcd", false, func(t *fences) string { t.left.others--; t.now++; return "" })
	}
	if s.left.wipes > 0 {
		w.emit(s, nobody, "etcd is wiped", false, func(t *fences) string { t.left.wipes--; t.forget(0); return "" })
	}
	if s.left.restores > 0 && s.stopped() && s.now > 1 {
		w.emit(s, nobody, "etcd is restored from an older snapshot", false, func(t *fences) string { t.left.restores--; t.forget(s.now / 2); return "" })
	}
	if s.settles && !s.trusted(s.life) { // past leases are trusted for less than a TTL
		w.emit(s, nobody, "the pause is over", true, func(t *fences) string { t.settles = false; return "" })
	}
}

// forget begins another life of etcd, at a past revision. All leases are gone, and the keys under them.
func (s *fences) forget(now uint8) {
	s.life++
	s.now, s.settles, s.key = now, false, ownerKey{}
	if s.epochAt > now {
		s.epoch, s.epochAt = 0, 0
	}
}

// trusted reports whether a node trusts a lease from a life of etcd before this one.
func (s *fences) trusted(life uint8) bool {
	for i := range s.nodes {
		if s.nodes[i].trusts && s.nodes[i].life < life {
			return true
		}
	}
	return false
}

// stopped reports whether no node runs: operators are told to stop all nodes before they restore etcd.
func (s *fences) stopped() bool { return s.nodes == [nodesOfFence]fenceNode{} }

// higher reports whether a revision is above another.
func (w *fenceWorld) higher(a, b revision) bool {
	if a.epoch != b.epoch && !w.off[EpochFirst] {
		return a.epoch > b.epoch
	}
	return a.created > b.created
}

// write writes an owner row, if it may.
func (w *fenceWorld) write(s *fences, row ownerRow) string {
	switch {
	case s.row.node != 0 && !w.higher(row.revision, s.row.revision) && !w.off[HigherWins]:
		return ""
	case row.born < s.row.born:
		return "BACK: an earlier owner's name replaces a later owner's"
	}
	s.row = row
	return ""
}

// settled reports whether a node acts and the owner row names it.
func (w *fenceWorld) settled(s *fences) bool {
	for i := range s.nodes {
		if n := &s.nodes[i]; n.stage == acting && n.trusts && s.row.born == n.key.born && s.row.node == uint8(i+1) {
			return true
		}
	}
	return false
}

func (w *fenceWorld) stuck(*fences) string {
	return "FENCED OUT: the owner row never names an owner who acts"
}

func (w *fenceWorld) first(*fences) string { return "nobody has the table" }

func (w *fenceWorld) line(mv *step[fences]) string {
	t := &mv.to
	return fmt.Sprintf("%-60s etcd: revision %d, epoch %d, key of %d; row: node %d, epoch %d, revision %d",
		named("node", mv.who)+mv.what, t.now, t.epoch, t.key.node, t.row.node, t.row.epoch, t.row.created)
}

// String names the play.
func (w *fenceWorld) String() string { return w.name }
