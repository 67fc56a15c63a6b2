package schedule

import (
	"fmt"
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
	Ended    State = "ended"    // no run is left to make; the last ones may be to come
)

// States are all states.
var States = []State{Active, Inactive, Paused, Ended}

// Schedule is a schedule as it stands in its database, with the defaults filled in. Times are the database's.
type Schedule struct {
	Definition

	ID         tocsin.JobID `json:"schedule_id"`
	Table      int          `json:"table_no"` // of its runs
	State      State        `json:"state"`
	Reason     string       `json:"reason,omitempty"` // why it is paused or has ended
	Revision   uint32       `json:"revision"`         // grows with each change
	Anchor     time.Time    `json:"anchor"`           // @every counts from it: the start, or else the activation
	MadeUntil  time.Time    `json:"made_until"`       // fire times up to it are made or passed over
	NextFire   time.Time    `json:"next_fire,omitzero"`
	Failures   int          `json:"failures"`    // failed runs in a row
	Made       uint64       `json:"made"`        // runs made for fire times
	PassedOver uint64       `json:"passed_over"` // fire times that were missed, and no run was made for
	Created    time.Time    `json:"created"`
	Modified   time.Time    `json:"modified"`
	Last       *LastRun     `json:"last_run,omitempty"` // of a Query with Last; nil: its history is empty
	ReadAt     time.Time    `json:"-"`                  // when it was read, by its database's clock

	open *OpenRun // of one that has ended: its next run to be delivered, if Get found one
}

// LastRun is the latest entry in the history of a schedule.
type LastRun struct {
	JobID      tocsin.JobID `json:"job_id"`
	Outcome    string       `json:"outcome"` // one of those that an attempt of a task may have
	Started    time.Time    `json:"started"`
	LatenessMS int64        `json:"lateness_ms"`
	DurationMS int64        `json:"duration_ms"`
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
	if err := askable(s.Name, after, n); err != nil {
		return nil, err
	}
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

// lastFires returns the last fire times of a schedule that has ended: those whose runs are made and not due yet. Empty: all were due.
func (s Schedule) lastFires() []Fire {
	times, err := s.Times()
	if err != nil || s.State != Ended {
		return nil
	}
	fires, _ := s.Following(s.ReadAt.Add(-times.Offset()), MaxRuns)
	return fires
}

const dueText = "2006-01-02 15:04:05.000Z"

// ending says why a schedule has ended, and what is still to come: its last runs are made ahead.
func (s Schedule) ending() string {
	switch fires := s.lastFires(); {
	case len(fires) == MaxRuns:
		return "its last runs are made, and are to come"
	case len(fires) > 0:
		return "its last run is made, and is due " + fires[len(fires)-1].Due.Format(dueText)
	case s.open != nil && s.open.Status == tocsin.Claimed:
		return fmt.Sprintf("no fire time is left, and its run %s is in delivery", s.open.JobID)
	case s.open != nil:
		return fmt.Sprintf("no fire time is left, and its run %s waits since %s", s.open.JobID, s.open.Due.Format(dueText))
	}
	return "no fire time is left"
}

// Stands says in a few words how the schedule stands: its state, and why it makes no runs.
func (s Schedule) Stands() string {
	switch {
	case s.State == Ended:
		return "ended: " + s.ending()
	case s.State == Active || s.Reason == "":
		return string(s.State)
	}
	return string(s.State) + ": " + s.Reason
}

// Fires returns when a schedule fires next, or fired if nothing made that run: NextFire is that of the next run to
// make, up to 20 minutes after those that are pending. One that has ended may have fire times to come, whose runs are made.
// Zero: it does not fire any more, or not while it is inactive or paused.
func (s Schedule) Fires() time.Time {
	if fires := s.lastFires(); len(fires) > 0 {
		return fires[0].Time
	}
	if s.State != Active || s.NextFire.Before(s.ReadAt) {
		return s.NextFire
	}
	fires, err := s.Following(s.ReadAt, 1)
	if err != nil || len(fires) == 0 {
		return s.NextFire
	}
	return fires[0].Time
}
