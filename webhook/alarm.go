package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Alarm is the payload of a task that tells people what only they can mend. A biz type whose policy names another one under
// alarm.to has its alarms delivered as tasks of that one: as callbacks, see AlarmOf, or to a Go handler of a
// tocsin.Define[webhook.Alarm]. Their biz_id is the number of the biz type that the alarm is about.
type Alarm struct {
	Kind      string         `json:"kind"`                 // "dead": tasks became dead; "missed": a schedule missed runs, or was paused after failures
	BizType   string         `json:"biz_type"`             // that the alarm is about
	Count     int            `json:"count"`                // tasks, or runs, since the alarm before
	AtLeast   bool           `json:"at_least,omitempty"`   // there may be more: not all could be counted
	Since     time.Time      `json:"since"`                // UTC; of the alarm before, or a day ago
	Until     time.Time      `json:"until"`                // UTC; what came later is in the next alarm
	JobIDs    []tocsin.JobID `json:"job_ids,omitempty"`    // some of the dead tasks, at most 5
	LastError string         `json:"last_error,omitempty"` // of one of them
	Runs      []string       `json:"runs,omitempty"`       // some of the missed runs, at most 5: schedule, time, and why
	Do        []string       `json:"do"`                   // commands to look at it, and to mend it

	// Unread names databases that could not be read, with the time from which on the next alarm counts their dead tasks.
	Unread map[string]time.Time `json:"unread,omitempty"`
}

// AlarmOf returns the alarm that a task carries.
func AlarmOf(task Task) (Alarm, error) {
	var a Alarm
	if err := json.Unmarshal([]byte(task.Payload), &a); err != nil {
		return Alarm{}, fmt.Errorf("task %s carries no alarm: %w", task.JobID, err)
	}
	if a.Kind == "" || a.BizType == "" {
		return Alarm{}, errors.New("task " + task.JobID.String() + " carries no alarm: want kind and biz_type")
	}
	return a, nil
}

// String is the alarm in a few lines, for a chat.
func (a Alarm) String() string {
	many := fmt.Sprint(a.Count)
	if a.AtLeast {
		many = "at least " + many
	}
	what := "dead tasks"
	if a.Kind != "dead" {
		what = "missed runs"
	}
	lines := []string{fmt.Sprintf("%s: %s: %s since %s", a.BizType, what, many, a.Since.Format(time.RFC3339))}
	if a.LastError != "" {
		lines = append(lines, "last error: "+a.LastError)
	}
	return strings.Join(append(append(lines, a.Runs...), a.Do...), "\n")
}
