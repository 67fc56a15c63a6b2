package top

import "time"

// Sample is what one node exported at one time.
type Sample struct {
	Node    string // id, or the address if it does not tell
	Group   string // "": not known
	Address string
	Err     error // why it could not be asked; the rest is zero then

	At        time.Time
	Mode      string
	Tables    int // that it owns, or looks at first
	Wanted    int // that it should own
	Open      int // tasks in delivery, or waiting to be settled
	Unsettled int
	Oldest    time.Duration // for how long the oldest outcome has waited to be settled
	Types     map[string]TypeSample
	Servers   map[string]ServerSample
	Groups    map[string]int // biz types of other groups that are not paused
}

// ServerSample is what a node exported of one MySQL server.
type ServerSample struct {
	Away    bool          // it did not answer this node
	Waiting time.Duration // how long the oldest statement has waited for an answer
	Figures time.Duration // age of the overdue figures, if this node measures them
}

// TypeSample is what a node exported of one biz type. The counters grow from the start of the process.
type TypeSample struct {
	Done, Retried, Snoozed, Dead float64
	Late                         []Bucket // ascending

	Queued, Running, Limit int
	State                  int // of the lane, as tocsin_dispatcher_lane_state has it

	Measured bool // this node measures the backlog of the type
	Overdue  float64
	Age      time.Duration // of the oldest overdue task
	Drain    float64       // seconds; NaN: not known, +Inf: never
}

// Bucket counts the deliveries that began at most so late.
type Bucket struct {
	Within time.Duration // Never for all
	Count  float64
}

// Never is the Within of the bucket that holds all deliveries.
const Never = time.Duration(1<<63 - 1)
