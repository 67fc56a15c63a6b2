package chaos

import (
	"fmt"
	"time"
)

// Causes of second deliveries that are no fault's name.
const (
	causeSweep    = "sweeper beside its owner"
	causeHandOver = "hand-over"
	causeNone     = "unexplained"
)

// aftermath is how long after its end a fault may still be why a task is delivered
// again: a lease, a claim and a recovery.
func (o Options) aftermath() time.Duration {
	return o.Timing.Lease + deliveryTimeout + 10*time.Second
}

// recovery is how long after its end a fault may still delay tasks: leases run out,
// tables move, and what was held up is caught up with.
func (o Options) recovery() time.Duration { return o.Timing.Lease + 4*time.Second }

// causeOf names what made a second delivery, the nearest thing first: what
// happened to the node of the first one, then to the task's server, then to etcd.
// A greedy sweeper's end is a kill -9: a row that it has claimed while the owner was
// delivering takes no outcome from the owner, and comes again when the claim runs out.
func causeOf(s second, at place, faults []incident, after time.Duration) string {
	for _, near := range []func(incident) bool{
		func(i incident) bool {
			return i.Fault == KillSweep && seatOf(s.first.Node) == "sweeper" && i.from.After(s.first.At) && i.from.Before(s.again.At)
		},
		func(i incident) bool { return i.hits(s.first.Node, KillNode, EndedNode, FreezeNode) },
		func(i incident) bool {
			return i.hits(s.first.Node, CutNode) && i.Server == at.server || i.hits(s.again.Node, FreezeNode)
		},
		func(i incident) bool { // an outcome that its server did not take outlasts any claim; an ack of the broker is lost at once
			return i.harms(at) && (i.Fault.target() != ofBroker || i.touches(s.first.At, s.first.At.Add(deliveryTimeout), callbackBefore))
		},
		func(i incident) bool { return i.Fault == LowSweep && (s.swept() || s.ranOut) },
		func(i incident) bool { return i.hits(s.first.Node, CutEtcd, TermNode) },
		func(i incident) bool { return i.Fault == StopEtcd || i.Fault == KillMember },
	} {
		for _, i := range faults {
			if near(i) && i.touches(s.first.At, s.again.At, after) {
				return string(i.Fault)
			}
		}
	}
	return farCause(s, faults, after)
}

// farCause names what is left: tables moved, or a sweeper was about.
func farCause(s second, faults []incident, after time.Duration) string {
	if s.swept() {
		return causeSweep
	}
	for _, i := range faults {
		switch i.Fault {
		case KillNode, EndedNode, FreezeNode, TermNode, JoinNode, CutEtcd:
			if s.first.Node != s.again.Node && i.touches(s.first.At, s.again.At, after) {
				return causeHandOver
			}
		}
	}
	return causeNone
}

// swept reports whether a sweeper made one of the two.
func (s second) swept() bool {
	return seatOf(s.first.Node) == "sweeper" || seatOf(s.again.Node) == "sweeper"
}

// delays reports whether the incident may delay the tasks of a place: a fault of
// another server or database must not.
func (i incident) delays(at place) bool {
	switch i.Fault.target() {
	case ofNode:
		return i.Fault != CutNode || i.Server == at.server
	case ofServer, ofDatabase, ofBroker:
		return i.harms(at)
	case ofShop:
		return i.Shop+1 == at.shop
	case ofEtcd, ofActive, ofWorkers:
		return true
	}
	return false
}

// hits reports whether the fault is one of these, on the seat of a node.
func (i incident) hits(node string, faults ...Fault) bool {
	for _, f := range faults {
		if i.Fault == f && seatOf(node) == i.seat() {
			return true
		}
	}
	return false
}

// seat names the seat of a fault of nodes or workers.
func (i incident) seat() string {
	if i.Fault.target() == ofWorker {
		return fmt.Sprintf("w%d", i.Worker+1)
	}
	return fmt.Sprintf("n%d", i.Node+1)
}

// harms reports whether it is a fault of this server, database or broker, for everybody.
func (i incident) harms(at place) bool {
	switch i.Fault.target() {
	case ofServer:
		return i.Server == at.server
	case ofDatabase:
		return i.Database == at.database
	case ofBroker:
		return at.broker
	}
	return false
}
