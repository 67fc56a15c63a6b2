package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/outbox"
)

// Fault is a kind of harm.
type Fault string

// The faults. Each ends by itself after its Length; a killed node is started
// again then, in the same seat.
const (
	KillNode     Fault = "kill -9 node"
	FreezeNode   Fault = "freeze node"
	TermNode     Fault = "SIGTERM node"
	CutEtcd      Fault = "cut node from etcd"
	CutNode      Fault = "cut node from server"
	EndedNode    Fault = "node ended by itself" // not in schedules: a handler may do it
	KillSweep    Fault = "kill -9 sweeper"      // not in schedules: LowSweep does it at its begin and end
	KillServer   Fault = "kill -9 server"
	ReadOnly     Fault = "server read_only"
	MoveServer   Fault = "server read_only, then replaced" // not in schedules: it is done once
	CutServer    Fault = "cut server"
	SlowServer   Fault = "slow server"
	Reset        Fault = "reset connections"
	LockTable    Fault = "lock table"
	FreezeServer Fault = "freeze server"
	WrongCluster Fault = "wrong cluster id"  // in the layout row of one database
	NoLayout     Fault = "layout table away" // of one database
	StopEtcd     Fault = "kill -9 etcd"
	JoinNode     Fault = "node joins"          // not in schedules
	KillMember   Fault = "kill -9 etcd member" // not in schedules: needs three members
	LowSweep     Fault = "sweep --grace 0s"
	SickServer   Fault = "sick server" // not in schedules: the matrix has many of that kind
)

// The faults of outboxes, in schedules of clusters that have some. The relay that is active is in a node or in a process
// of its own.
const (
	KillShop     Fault = "kill -9 business server"
	KillActive   Fault = "kill -9 active relay"
	FreezeActive Fault = "freeze active relay" // for longer than its server waits for it: another is active when it goes on
	TwoRelays    Fault = "relay without the lock"
	KillRelay    Fault = "kill -9 relay" // not in schedules: KillActive does it if the active relay is no node's
	FreezeRelay  Fault = "freeze relay"  // nor this: FreezeActive does it
)

// Step is one fault of a schedule.
type Step struct {
	At       time.Duration // from the start of the run
	Length   time.Duration
	Fault    Fault
	Node     int           // of the node faults
	Server   int           // of the server faults
	Member   int           // of KillMember
	Table    int           // of LockTable: table number
	Database int           // of WrongCluster and NoLayout
	Shop     int           // of KillShop, KillActive and FreezeActive: the business server
	Relay    int           // of KillRelay and FreezeRelay
	By       time.Duration // of SlowServer: latency
}

// String is a line of the schedule.
func (s Step) String() string {
	what := string(s.Fault)
	switch s.Fault {
	case KillNode, FreezeNode, TermNode, CutEtcd:
		what += fmt.Sprintf(", n%d", s.Node+1)
	case CutNode:
		what += fmt.Sprintf(", n%d, db%d", s.Node+1, s.Server)
	case SlowServer:
		what += fmt.Sprintf(", db%d, by %s", s.Server, s.By)
	case LockTable:
		what += fmt.Sprintf(", table %d", s.Table)
	case WrongCluster, NoLayout:
		what += fmt.Sprintf(", database %d, db%d", s.Database, s.Server)
	case KillShop, KillActive, FreezeActive:
		what += fmt.Sprintf(", business server %d", s.Shop)
	case FreezeServer, KillServer, ReadOnly, MoveServer, CutServer, Reset, SickServer:
		what += fmt.Sprintf(", db%d", s.Server)
	}
	return fmt.Sprintf("%8.1fs %+7.1fs  %s", s.At.Seconds(), s.Length.Seconds(), what)
}

// shape bounds a fault's length.
type shape struct {
	fault       Fault
	weight      int
	least, most time.Duration
	target      func(Step) string // what no other fault hits at the same time
}

func ofNode(s Step) string   { return fmt.Sprint("node ", s.Node) }
func ofServer(s Step) string { return fmt.Sprint("server ", s.Server) }
func ofEtcd(Step) string     { return "etcd" }
func ofSweeper(Step) string  { return "sweeper" }
func ofShop(s Step) string   { return fmt.Sprint("shop ", s.Shop) }
func ofActive(Step) string   { return "active" }
func ofSpare(Step) string    { return "spare" }

// shapes are all faults and how often they happen. Frozen nodes and etcd are away
// for less and for more than a lease.
var shapes = []shape{
	{KillNode, 4, 500 * time.Millisecond, 6 * time.Second, ofNode},
	{FreezeNode, 4, time.Second, 12 * time.Second, ofNode},
	{TermNode, 2, time.Second, 4 * time.Second, ofNode},
	{CutEtcd, 2, 2 * time.Second, 15 * time.Second, ofNode},
	{CutNode, 2, 2 * time.Second, 12 * time.Second, ofNode},
	{KillServer, 2, 500 * time.Millisecond, 6 * time.Second, ofServer},
	{ReadOnly, 2, time.Second, 6 * time.Second, ofServer},
	{CutServer, 2, 2 * time.Second, 15 * time.Second, ofServer},
	{SlowServer, 2, 5 * time.Second, 15 * time.Second, ofServer},
	{Reset, 2, 500 * time.Millisecond, 2 * time.Second, ofServer},
	{FreezeServer, 2, 2 * time.Second, 10 * time.Second, ofServer},
	{WrongCluster, 1, closedAfter + 2*time.Second, closedAfter + 6*time.Second, ofServer},
	{NoLayout, 1, closedAfter + 2*time.Second, closedAfter + 6*time.Second, ofServer},
	{LockTable, 1, 10 * time.Second, 10 * time.Second, ofServer},
	{StopEtcd, 2, 3 * time.Second, 20 * time.Second, ofEtcd},
	{LowSweep, 1, 5 * time.Second, 10 * time.Second, ofSweeper},
}

// pastLock is how long the active relay is frozen at least: its server ends its session, and another takes the lock.
const pastLock = outbox.WaitTimeout + 3*time.Second

// outboxShapes are the faults of a cluster with outboxes. There are fewer, so that each has time without others.
var outboxShapes = []shape{
	{KillNode, 2, 500 * time.Millisecond, 4 * time.Second, ofNode},
	{FreezeNode, 2, time.Second, pastLock, ofNode},
	{KillServer, 3, 500 * time.Millisecond, 6 * time.Second, ofServer},
	{KillShop, 3, 500 * time.Millisecond, 6 * time.Second, ofShop},
	{KillActive, 4, 500 * time.Millisecond, 3 * time.Second, ofActive},
	{FreezeActive, 3, pastLock, pastLock + 4*time.Second, ofActive},
	{TwoRelays, 3, 5 * time.Second, 15 * time.Second, ofSpare},
}

// timerShapes are the faults of a cluster with schedules. A frozen node is frozen past its lease.
var timerShapes = []shape{
	{KillNode, 4, 500 * time.Millisecond, 6 * time.Second, ofNode},
	{FreezeNode, 4, 5 * time.Second, 12 * time.Second, ofNode},
	{TermNode, 3, time.Second, 4 * time.Second, ofNode},
	{KillServer, 4, 500 * time.Millisecond, 6 * time.Second, ofServer},
	{StopEtcd, 3, 3 * time.Second, 20 * time.Second, ofEtcd},
}

// shapes are the faults of the options.
func (o Options) shapes() []shape {
	if o.Runs {
		return timerShapes
	}
	if o.Shops > 0 {
		return outboxShapes
	}
	return shapes
}

// The pace of a schedule.
const (
	calmBegin  = 5 * time.Second  // before the first fault
	calmEnd    = 10 * time.Second // after the last
	gapMost    = 9 * time.Second  // between the beginnings of two faults
	recovering = 3 * time.Second  // before a target is hit again
)

// NewSchedule draws faults for a run of the given length. The same arguments give
// the same schedule. No target has two faults at once.
func NewSchedule(seed uint64, length time.Duration, o Options) []Step {
	o = o.withDefaults()
	rng := rand.New(rand.NewPCG(seed, 0x70c51))
	busy := map[string]time.Duration{}
	var steps []Step
	gaps := time.Duration(1)
	if o.Shops > 0 || o.Runs {
		gaps = 2
	}
	for at := calmBegin; ; at += gaps * draw(rng, time.Second, gapMost) {
		step, target := drawStep(rng, at, o)
		if at+calmEnd > length {
			break
		}
		if o.NoEtcd && (step.Fault == CutEtcd || step.Fault == StopEtcd) || step.At+step.Length+calmEnd > length || busy[target] > at {
			continue
		}
		busy[target] = at + step.Length + recovering
		steps = append(steps, step)
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return steps
}

// drawStep draws the same number of values for each step, used or not.
func drawStep(rng *rand.Rand, at time.Duration, o Options) (Step, string) {
	sum := 0
	for _, s := range o.shapes() {
		sum += s.weight
	}
	pick := rng.IntN(sum)
	step := Step{At: at, Node: rng.IntN(o.Nodes), Server: rng.IntN(o.Servers), Table: rng.IntN(o.Layout.Total())}
	step.By = draw(rng, 200*time.Millisecond, 5*time.Second)
	share := rng.Float64()
	if o.Shops > 0 {
		step.Shop = rng.IntN(o.Shops)
	}
	for _, s := range o.shapes() {
		if pick -= s.weight; pick < 0 {
			step.Fault = s.fault
			step.Length = (s.least + time.Duration(share*float64(s.most-s.least))).Round(100 * time.Millisecond)
			step.Database = o.Layout.DatabaseOf(step.Table)
			if slices.Contains([]Fault{LockTable, WrongCluster, NoLayout}, s.fault) {
				step.Server = o.serverOf(step.Table)
			}
			return step, s.target(step)
		}
	}
	panic("the weights add up to more than their sum")
}

// draw gives a time from least to most, in tenths of a second.
func draw(rng *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(rng.Int64N(int64(most-least)))).Round(100 * time.Millisecond)
}

// Text is the schedule, a line a fault.
func Text(steps []Step) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9s %8s  %s\n", "at", "for", "fault")
	for _, s := range steps {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}
