// Package zsetpeer is a delay queue on Redis' sorted sets, as the literature on
// timeout centres with low latency has it, and its part in a contest.
//
//	put --> store --take--> prepare --ack--> gone
//	          ^                |
//	          +----- back -----+----> dead        a taker that never acknowledged, too often
//
// store holds ids by due time, prepare ids that were taken, by when they must be
// acknowledged, dead those that were taken too often; a hash holds the bodies, one
// more the counts of returns. Each arrow is one Lua script, so that an id is in
// one place at any moment. Times are Redis' own, in milliseconds, due times
// rounded up.
//
// A task is delivered at least once as long as Redis keeps what it answered,
// which depends on its appendfsync. A failure of Redis ends the taker that meets
// it and is an error of Quiet and Pause.
package zsetpeer
