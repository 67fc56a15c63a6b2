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

// The faults. Each ends by itself after its Length; a killed process is started
// again then, in the same seat.
const (
	KillNode     Fault = "kill -9 node"
	FreezeNode   Fault = "freeze node"
	TermNode     Fault = "SIGTERM node"
	CutEtcd      Fault = "cut node from etcd"
	CutNode      Fault = "cut node from server"
	KillServer   Fault = "kill -9 server"
	ReadOnly     Fault = "server read_only"
	CutServer    Fault = "cut server"
	SlowServer   Fault = "slow server"
	Reset        Fault = "reset connections"
	LockTable    Fault = "lock table"
	FreezeServer Fault = "freeze server"
	WrongCluster Fault = "wrong cluster id"  // in the layout row of one database
	NoLayout     Fault = "layout table away" // of one database
	StopEtcd     Fault = "kill -9 etcd"
	LowSweep     Fault = "sweep --grace 0s"

	// Those of outboxes. The relay that is active is in a node or in a process of its own.
	KillShop     Fault = "kill -9 business server"
	KillActive   Fault = "kill -9 active relay"
	FreezeActive Fault = "freeze active relay" // for longer than its server waits for it: another is active when it goes on
	TwoRelays    Fault = "relay without the lock"

	// Those of the message broker.
	KillBroker   Fault = "kill -9 broker"
	FreezeBroker Fault = "freeze broker"
	KillBoth     Fault = "kill -9 broker and node"

	// Those of workers that ask for tasks.
	KillWorker   Fault = "kill -9 worker"
	FreezeWorker Fault = "freeze worker"
	CutAnswers   Fault = "cut answers"         // of one node to workers, half-way
	MoveWorkers  Fault = "workers at one node" // all of them ask it, and no other

	// Those that no schedule has.
	EndedNode  Fault = "node ended by itself" // a handler may do it
	JoinNode   Fault = "node joins"
	KillSweep  Fault = "kill -9 sweeper"                 // LowSweep does it at its begin and end
	MoveServer Fault = "server read_only, then replaced" // it is done once
	SickServer Fault = "sick server"                     // the matrix has many of that kind
	FullDisk   Fault = "full disk"                       // of a server's binary log, which is on a small one
	FreezeEtcd Fault = "freeze etcd"
	KillMember Fault = "kill -9 etcd member" // needs three members
)

// target is what a fault hits, and no other fault at the same time.
type target string

const (
	ofNode     target = "n"
	ofServer   target = "db"
	ofDatabase target = "database"
	ofEtcd     target = "etcd"
	ofSweeper  target = "sweeper"
	ofShop     target = "business server"
	ofActive   target = "active relay"
	ofSpare    target = "spare relay"
	ofBroker   target = "broker"
	ofWorker   target = "w"
	ofAnswers  target = "answers of n"
	ofWorkers  target = "workers"
)

// target returns what the fault hits.
func (f Fault) target() target {
	switch f {
	case KillNode, FreezeNode, TermNode, CutEtcd, CutNode, EndedNode, JoinNode:
		return ofNode
	case KillServer, ReadOnly, CutServer, SlowServer, Reset, LockTable, FreezeServer, MoveServer, SickServer, FullDisk:
		return ofServer
	case WrongCluster, NoLayout:
		return ofDatabase
	case StopEtcd, FreezeEtcd, KillMember:
		return ofEtcd
	case LowSweep, KillSweep:
		return ofSweeper
	case KillShop:
		return ofShop
	case KillActive, FreezeActive:
		return ofActive
	case KillBroker, FreezeBroker, KillBoth:
		return ofBroker
	case KillWorker, FreezeWorker:
		return ofWorker
	case CutAnswers:
		return ofAnswers
	case MoveWorkers:
		return ofWorkers
	}
	return ofSpare
}

// Step is one fault of a schedule.
type Step struct {
	At       time.Duration // from the start of the run
	Length   time.Duration
	Fault    Fault
	Node     int           // of the node faults, KillBoth, CutAnswers and MoveWorkers; relays follow the nodes
	Worker   int           // of KillWorker and FreezeWorker
	Server   int           // of the server faults
	Member   int           // of KillMember
	Table    int           // of LockTable: table number
	Database int           // of WrongCluster and NoLayout
	Shop     int           // of KillShop, KillActive and FreezeActive: the business server
	By       time.Duration // of SlowServer: latency
}

// String is a line of the schedule.
func (s Step) String() string {
	what := string(s.Fault)
	if s.Fault == KillBoth {
		what += fmt.Sprintf(", n%d", s.Node+1)
	}
	switch s.Fault.target() {
	case ofNode, ofAnswers, ofWorkers:
		what += fmt.Sprintf(", n%d", s.Node+1)
	case ofWorker:
		what += fmt.Sprintf(", w%d", s.Worker+1)
	case ofDatabase:
		what += fmt.Sprintf(", database %d", s.Database)
	case ofShop, ofActive:
		what += fmt.Sprintf(", business server %d", s.Shop)
	}
	if s.Fault == LockTable {
		what += fmt.Sprintf(", table %d", s.Table)
	}
	if t := s.Fault.target(); t == ofServer || t == ofDatabase || s.Fault == CutNode {
		what += fmt.Sprintf(", db%d", s.Server)
	}
	if s.Fault == SlowServer {
		what += fmt.Sprintf(", by %s", s.By)
	}
	return fmt.Sprintf("%8.1fs %+7.1fs  %s", s.At.Seconds(), s.Length.Seconds(), what)
}

// target names what no other fault hits at the same time.
func (s Step) target() string {
	switch t := s.Fault.target(); t {
	case ofNode, ofAnswers:
		return fmt.Sprint(t, s.Node)
	case ofWorker:
		return fmt.Sprint(t, s.Worker)
	case ofServer, ofDatabase:
		return fmt.Sprint(ofServer, s.Server)
	case ofShop:
		return fmt.Sprint(t, s.Shop)
	default:
		return string(t)
	}
}

// shape bounds a fault's length, and says how often it happens.
type shape struct {
	fault       Fault
	weight      int
	least, most time.Duration
}

// taskShapes are the faults of a cluster to which tasks are added directly. Frozen nodes and etcd are away
// for less and for more than a lease.
var taskShapes = []shape{
	{KillNode, 4, 500 * time.Millisecond, 6 * time.Second},
	{FreezeNode, 4, time.Second, 12 * time.Second},
	{TermNode, 2, time.Second, 4 * time.Second},
	{CutEtcd, 2, 2 * time.Second, 15 * time.Second},
	{CutNode, 2, 2 * time.Second, 12 * time.Second},
	{KillServer, 2, 500 * time.Millisecond, 6 * time.Second},
	{ReadOnly, 2, time.Second, 6 * time.Second},
	{CutServer, 2, 2 * time.Second, 15 * time.Second},
	{SlowServer, 2, 5 * time.Second, 15 * time.Second},
	{Reset, 2, 500 * time.Millisecond, 2 * time.Second},
	{FreezeServer, 2, 2 * time.Second, 10 * time.Second},
	{WrongCluster, 1, closedAfter + 2*time.Second, closedAfter + 6*time.Second},
	{NoLayout, 1, closedAfter + 2*time.Second, closedAfter + 6*time.Second},
	{LockTable, 1, 10 * time.Second, 10 * time.Second},
	{StopEtcd, 2, 3 * time.Second, 20 * time.Second},
	{LowSweep, 1, 5 * time.Second, 10 * time.Second},
}

// pastLock is how long the active relay is frozen at least: its server ends its session, and another takes the lock.
const pastLock = outbox.WaitTimeout + 3*time.Second

// outboxShapes are the faults of a cluster with outboxes. There are fewer, so that each has time without others.
var outboxShapes = []shape{
	{KillNode, 2, 500 * time.Millisecond, 4 * time.Second},
	{FreezeNode, 2, time.Second, pastLock},
	{KillServer, 3, 500 * time.Millisecond, 6 * time.Second},
	{KillShop, 3, 500 * time.Millisecond, 6 * time.Second},
	{KillActive, 4, 500 * time.Millisecond, 3 * time.Second},
	{FreezeActive, 3, pastLock, pastLock + 4*time.Second},
	{TwoRelays, 3, 5 * time.Second, 15 * time.Second},
}

// timerShapes are the faults of a cluster with schedules. A frozen node is frozen past its lease.
var timerShapes = []shape{
	{KillNode, 4, 500 * time.Millisecond, 6 * time.Second},
	{FreezeNode, 4, 5 * time.Second, 12 * time.Second},
	{TermNode, 3, time.Second, 4 * time.Second},
	{KillServer, 4, 500 * time.Millisecond, 6 * time.Second},
	{StopEtcd, 3, 3 * time.Second, 20 * time.Second},
}

// brokerShapes are the faults of a cluster whose callbacks go to a message broker.
var brokerShapes = []shape{
	{KillBroker, 4, 500 * time.Millisecond, 6 * time.Second},
	{KillNode, 4, 500 * time.Millisecond, 6 * time.Second},
	{KillBoth, 4, 500 * time.Millisecond, 6 * time.Second},
	{FreezeBroker, 1, time.Second, 8 * time.Second},
}

// pullShapes are the faults of a cluster whose tasks workers ask for. A frozen worker is away for longer than a lease.
var pullShapes = []shape{
	{KillWorker, 4, 500 * time.Millisecond, 6 * time.Second},
	{FreezeWorker, 4, pullLease + time.Second, 3 * pullLease},
	{CutAnswers, 4, time.Second, 6 * time.Second},
	{KillNode, 3, 500 * time.Millisecond, 6 * time.Second},
	{FreezeNode, 2, time.Second, 12 * time.Second},
	{TermNode, 3, time.Second, 6 * time.Second},
	{MoveWorkers, 2, 5 * time.Second, 20 * time.Second},
	{KillServer, 1, 500 * time.Millisecond, 6 * time.Second},
}

// shapes are the faults of the options.
func (o Options) shapes() []shape {
	if o.Broker != "" {
		return brokerShapes
	}
	if o.Workers > 0 {
		return pullShapes
	}
	if o.Runs {
		return timerShapes
	}
	if o.Shops > 0 {
		return outboxShapes
	}
	return taskShapes
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
		step := drawStep(rng, at, o)
		if at+calmEnd > length {
			break
		}
		if o.NoEtcd && (step.Fault == CutEtcd || step.Fault == StopEtcd) || step.At+step.Length+calmEnd > length || busy[step.target()] > at {
			continue
		}
		busy[step.target()] = at + step.Length + recovering
		steps = append(steps, step)
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return steps
}

// drawStep draws the same number of values for each step, used or not.
func drawStep(rng *rand.Rand, at time.Duration, o Options) Step {
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
	if o.Workers > 0 {
		step.Worker = rng.IntN(o.Workers)
	}
	for _, s := range o.shapes() {
		if pick -= s.weight; pick < 0 {
			step.Fault = s.fault
			step.Length = (s.least + time.Duration(share*float64(s.most-s.least))).Round(100 * time.Millisecond)
			step.Database = o.Layout.DatabaseOf(step.Table)
			if s.fault == LockTable || s.fault.target() == ofDatabase {
				step.Server = o.serverOf(step.Table)
			}
			return step
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
