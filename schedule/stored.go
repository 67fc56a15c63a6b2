package schedule

import (
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// schema is the schema version that brought the table.
const schema = 3

// State says whether a schedule makes runs.
type State string

// The states.
const (
	Active   State = "active"
	Inactive State = "inactive" // deactivated by hand
	Paused   State = "paused"   // after failed runs; Reason says of which
	Ended    State = "ended"    // no fire time is left
)

// Schedule is a schedule as it stands in its database, with the defaults filled in. Times are the database's.
type Schedule struct {
	Definition

	ID         tocsin.JobID `json:"schedule_id"`
	Table      int          `json:"table_no"` // of its runs
	State      State        `json:"state"`
	Reason     string       `json:"reason,omitempty"` // why it is paused or has ended
	Revision   uint32       `json:"revision"`         // grows with each change
	Anchor     time.Time    `json:"anchor"`           // @every counts from it
	MadeUntil  time.Time    `json:"made_until"`       // fire times up to it are made or passed over
	NextFire   time.Time    `json:"next_fire,omitzero"`
	Failures   int          `json:"failures"`    // failed runs in a row
	Made       uint64       `json:"made"`        // runs made for fire times
	PassedOver uint64       `json:"passed_over"` // fire times that were missed, and no run was made for
	Created    time.Time    `json:"created"`
	Modified   time.Time    `json:"modified"`
	ReadAt     time.Time    `json:"-"` // when it was read, by its database's clock
}

// Fire is one fire time: its nominal time, and when its run is due, later by the jitter.
type Fire struct {
	Time time.Time `json:"time"`
	Due  time.Time `json:"due"`
}

// Times returns when the schedule fires.
func (s Schedule) Times() (*firetimes.Times, error) {
	times, err := firetimes.Parse(s.spec(s.Anchor, uint64(s.ID)))
	if err != nil {
		return nil, invalid(s.Name, "%s", err)
	}
	return times, nil
}

// Following returns the fire times after a time, at most n. They are those that an active schedule would have, whatever
// its state.
func (s Schedule) Following(after time.Time, n int) ([]Fire, error) {
	times, err := s.Times()
	if err != nil {
		return nil, err
	}
	all := []Fire{}
	for _, t := range following(times, after, n) {
		all = append(all, Fire{Time: t, Due: t.Add(times.Offset())})
	}
	return all, nil
}
