package why

import (
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// State is where a task is, in one word.
type State string

// The states of a task that no node will touch again, or that there is none of.
const (
	Done      State = "done"
	Cancelled State = "cancelled"
	Dead      State = "dead"
	Gone      State = "gone" // purged, or never there
)

// The states of a task that has its time before it.
const (
	NotDue  State = "not_due"
	Retry   State = "retry"   // an attempt failed
	Snoozed State = "snoozed" // its handler asked for a later time
)

// The states of a task that a process has.
const (
	Claimed    State = "claimed"
	RunOut     State = "claim_run_out"
	InDelivery State = "in_delivery"
	Unsettled  State = "unsettled" // delivered, and the outcome is not stored yet
)

// The states of a task that is due and waits.
const (
	UnknownType State = "unknown_type"
	Paused      State = "paused"
	NoHandler   State = "no_handler"
	NoSecret    State = "no_secret"
	StandIn     State = "stand_in"      // its table's owner lacks the type, and another node delivers it
	Newer       State = "newer_payload" // no node of its group reads the version of its payload
	NoOwner     State = "no_owner"
	NoEtcd      State = "no_etcd" // its table's owner can't be known, and nobody can take the table
	Refused     State = "database_refused"
	OlderCopy   State = "older_copy"
	Away        State = "server_away"
	Hangs       State = "server_hangs"
	ReadOnly    State = "server_read_only" // or without room
	TargetAway  State = "target_away"
	TargetBusy  State = "target_busy" // it has answered how long it wants to rest
	LaneFull    State = "lane_full"
	RateLimited State = "rate_limited"
	Turn        State = "key_busy" // others of its biz_id go first
	Queued      State = "queued"   // its turn comes next
	Unseen      State = "unseen"   // its table's owner has not found it yet
	Overdue     State = "overdue"  // a sweep takes it
	Due         State = "due"      // nothing is known to be in its way
)

// Answer is what is known of a task.
type Answer struct {
	JobID   tocsin.JobID `json:"job_id"`
	State   State        `json:"state"`
	Says    string       `json:"says"`           // the state, in a sentence
	Also    []string     `json:"also"`           // further sentences
	Unasked []string     `json:"not_asked"`      // what could not be asked, and why
	Table   string       `json:"table"`          // full name, "toc_3.task_0517"
	Server  string       `json:"server"`         // in the config
	Group   string       `json:"group"`          // of its biz type; "": not known
	Owner   string       `json:"owner"`          // id of the node that owns the table, or looks at it first; "": nobody, or not known
	Task    *tocsin.Info `json:"task"`           // the row; null: there is none, or it could not be read
	When    time.Time    `json:"when,omitzero"`  // until when it waits or is claimed, or when it was settled
	Since   time.Time    `json:"since,omitzero"` // since when the state lasts, if that is known
}

// set makes a state the answer, if none was found before; otherwise its sentence is added.
func (a *Answer) set(state State, format string, args ...any) bool {
	says := fmt.Sprintf(format, args...)
	if a.State != "" {
		a.Also = append(a.Also, says)
		return false
	}
	a.State, a.Says = state, says
	return true
}

func (a *Answer) also(format string, args ...any) {
	a.Also = append(a.Also, fmt.Sprintf(format, args...))
}

func (a *Answer) notAsked(what string, err error) {
	a.Unasked = append(a.Unasked, what+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
}

// timeText is how a time stands in a sentence: UTC, as in the tables.
const timeText = "2006-01-02 15:04:05.000Z"

// at writes a time, and how far it is from now.
func (f *Facts) at(t time.Time) string {
	return t.UTC().Format(timeText) + " (" + f.away(t) + ")"
}

// away writes how far a time is from now.
func (f *Facts) away(t time.Time) string {
	if d := t.Sub(f.Now); d > 0 {
		return "in " + Short(d)
	}
	return Short(f.Now.Sub(t)) + " ago"
}

// Short writes a duration in no more detail than people want.
func Short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
