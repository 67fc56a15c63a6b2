package node

import (
	"time"

	"github.com/tocsinhq/tocsin/sweeper"
)

// SweepResult counts what a sweep found and did.
type SweepResult struct {
	Tables     int            `json:"tables"`      // read without an error
	Overdue    int            `json:"overdue"`     // tasks found past their grace time, of all types
	Claimed    int            `json:"claimed"`     // by this sweep, whatever became of them
	Delivered  int            `json:"delivered"`   // completed
	Retried    int            `json:"retried"`     // failed or snoozed: due again later
	Dead       int            `json:"dead"`        // buried, or their last attempt failed
	Skipped    int            `json:"skipped"`     // runs of schedules that are not delivered, by their schedules' policies
	Elsewhere  int            `json:"elsewhere"`   // claimed, settled, cancelled or rescheduled by another meanwhile
	CutOff     int            `json:"cut_off"`     // left because the time was over, or the sweep was told to end
	InDelivery int            `json:"in_delivery"` // in progress when the time of a resident sweep was over; they go on
	Left       map[string]int `json:"left"`        // overdue and not delivered: by biz type and reason, "order.close (paused)"
	Unread     int            `json:"unread"`      // tables not read to their end: more may be left
	Made       int            `json:"made"`        // runs of schedules whose fire times had passed, and no node had made them
	Recovered  int            `json:"recovered"`   // run-out claims given back
	Buried     int            `json:"buried"`      // part of these: dead after the last crash
	Failed     []string       `json:"failed"`      // servers that could not be swept in full
	TimedOut   bool           `json:"timed_out"`   // its time was over
	Stopped    bool           `json:"stopped"`     // it was told to end
	Upkeep     map[string]int `json:"upkeep"`      // what was done beside delivering: runs_made, alarms_raised, runs_recorded and the like, as docs/operations.md lists them
	Took       time.Duration  `json:"took_ns"`
}

// resultOf is the engine's result.
func resultOf(r sweeper.Result) SweepResult {
	return SweepResult{
		Tables: r.Tables, Overdue: r.Overdue, Claimed: r.Claimed, Delivered: r.Delivered, Retried: r.Retried, Dead: r.Dead, Skipped: r.Skipped,
		Elsewhere: r.Elsewhere, CutOff: r.CutOff, InDelivery: r.InDelivery, Left: r.Left, Unread: r.Unread, Made: r.Made,
		Recovered: r.Recovered, Buried: r.Buried, Failed: r.Failed, TimedOut: r.TimedOut, Stopped: r.Stopped, Upkeep: r.Upkeep, Took: r.Took,
	}
}

// engine returns the result in the words of the engine.
func (r SweepResult) engine() sweeper.Result {
	return sweeper.Result{
		Tables: r.Tables, Overdue: r.Overdue, Claimed: r.Claimed, Counts: sweeper.Counts{Delivered: r.Delivered, Retried: r.Retried, Dead: r.Dead, Skipped: r.Skipped},
		Elsewhere: r.Elsewhere, CutOff: r.CutOff, InDelivery: r.InDelivery, Left: r.Left, Unread: r.Unread, Made: r.Made,
		Recovered: r.Recovered, Buried: r.Buried, Failed: r.Failed, TimedOut: r.TimedOut, Stopped: r.Stopped, Upkeep: r.Upkeep, Took: r.Took,
	}
}

// LeftTotal is the number of overdue tasks that were left where they are.
func (r SweepResult) LeftTotal() int { return r.engine().LeftTotal() }

// Err names the overdue tasks that were left, except those of paused biz types; nil
// if there are none.
func (r SweepResult) Err() error { return r.engine().Err() }

// String is the summary line.
func (r SweepResult) String() string { return r.engine().String() }
