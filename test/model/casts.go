package model

// Casts are the searches that together cover the protocol, the quick ones first. Faults, hand-overs and what the user
// does multiply, so no cast has all of them.
func Casts() []Cast {
	var (
		nodes    = [maxActors]Role{Node, Node}
		both     = [maxActors]Role{Node, Sweeper}
		sweepers = [maxActors]Role{Sweeper, Sweeper}
		crowd    = [maxActors]Role{Node, Node, Sweeper}
		swept    = [maxActors]Role{Node, Sweeper, Sweeper}
		claimers = [maxActors]Role{Claimer, Claimer}
		open     = [maxActors]Role{Claimer, Claimer, Sweeper}
		three    = [maxActors]Role{Claimer, Claimer, Claimer}
	)
	return []Cast{
		{Name: "two nodes and a sweeper, a hand-over", Roles: crowd, HandOvers: 1},
		{Name: "two nodes, a hand-over, a reschedule, a redrive", Roles: nodes, HandOvers: 1, Reschedules: 1, Redrives: 1, Breaks: true},
		{Name: "two nodes, a reschedule in the same millisecond", Roles: nodes, Coincide: true, Reschedules: 1},
		{Name: "two nodes, a hand-over in the same millisecond", Roles: nodes, Coincide: true, HandOvers: 1},
		{Name: "two nodes, a redrive in the same millisecond", Roles: nodes, Coincide: true, Redrives: 1},
		{Name: "two nodes, a redrive with the same key in the same millisecond", Roles: nodes, Coincide: true, Redrives: 1, SameKey: true},
		{Name: "node and sweeper, a redrive with the same key of what is claimed too", Roles: both, Breaks: true, Redrives: 1, SameKey: true},
		{Name: "two claimers, strict, a fault, a redrive with the same key", Roles: claimers, Strict: true, Faults: 1, Redrives: 1, SameKey: true},
		{Name: "two nodes, a fault in the same millisecond", Roles: nodes, Coincide: true, Faults: 1},
		{Name: "node and sweeper, a fault in the same millisecond", Roles: both, Coincide: true, Faults: 1},
		{Name: "node and sweeper, handlers with transactions and late successes", Roles: both, Faults: 1, InTx: true, Late: true},
		{Name: "node and sweeper, strict, two faults", Roles: both, Strict: true, Faults: 2},
		{Name: "two nodes, strict, two faults", Roles: nodes, Strict: true, Faults: 2},
		{Name: "two nodes, a hand-over and a fault", Roles: nodes, HandOvers: 1, Faults: 1},
		{Name: "two nodes, a fault, a reschedule, a redrive", Roles: nodes, Faults: 1, Reschedules: 1, Redrives: 1},
		{Name: "node and sweeper, a fault, a reschedule, a redrive", Roles: both, Faults: 1, Reschedules: 1, Redrives: 1},
		{Name: "node and sweeper, two faults", Roles: both, Faults: 2},
		{Name: "two nodes, two faults", Roles: nodes, Faults: 2},
		{Name: "two nodes, strict, all of it once", Roles: nodes, Strict: true, HandOvers: 1, Faults: 1, Reschedules: 1, Redrives: 1},
		{Name: "node and sweeper, a reschedule, a redrive of what is claimed too", Roles: both, Breaks: true, Reschedules: 1, Redrives: 1},
		{Name: "two sweepers, two faults, a reschedule", Roles: sweepers, Faults: 2, Reschedules: 1},
		{Name: "two nodes and a sweeper, a fault", Roles: crowd, Faults: 1},
		{Name: "node and two sweepers, a fault", Roles: swept, Faults: 1},
		{Name: "two claimers, a fault, a reschedule, a redrive", Roles: claimers, Faults: 1, Reschedules: 1, Redrives: 1},
		{Name: "two claimers, a reschedule, a redrive of what is claimed too", Roles: claimers, Breaks: true, Reschedules: 1, Redrives: 1},
		{Name: "two claimers, two faults", Roles: claimers, Faults: 2},
		{Name: "two claimers, a fault in the same millisecond", Roles: claimers, Coincide: true, Faults: 1, Reschedules: 1, Breaks: true},
		{Name: "two claimers, handlers with transactions and late successes", Roles: claimers, Faults: 1, InTx: true, Late: true, Breaks: true},
		{Name: "three claimers, a fault", Roles: three, Faults: 1},
		{Name: "two claimers and a sweeper, a fault", Roles: open, Faults: 1},
	}
}
