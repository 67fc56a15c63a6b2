package api

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
)

// Time is a time on the wire: RFC 3339, written in UTC with milliseconds.
type Time struct{ time.Time }

const timeForm = "2006-01-02T15:04:05.000Z"

// MarshalJSON writes UTC with milliseconds.
func (t Time) MarshalJSON() ([]byte, error) { return []byte(t.UTC().Format(`"` + timeForm + `"`)), nil }

// UnmarshalJSON reads RFC 3339.
func (t *Time) UnmarshalJSON(b []byte) error {
	var text string
	_ = json.Unmarshal(b, &text) // "" is no time
	return t.UnmarshalText([]byte(text))
}

// UnmarshalText reads RFC 3339, as in a query parameter.
func (t *Time) UnmarshalText(text []byte) (err error) {
	t.Time, err = name.ReadTime(string(text))
	return err
}

// Schema describes a Time, for huma.
func (Time) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Format: "date-time", Examples: []any{"2030-01-02T15:04:05.000Z"}}
}

// Int is a whole number, which JSON may also write as 1e3 or 5.0.
type Int int64

// UnmarshalJSON reads any notation of a whole number. Its bounds have been checked.
func (i *Int) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		*i = Int(n)
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return errors.New("want a whole number")
	}
	*i = Int(f)
	return nil
}

// ID is a 64-bit number as a decimal text: not every JSON reader keeps 64 bits.
type ID string

const idPattern = "^[1-9][0-9]{0,19}$"

// Schema describes an ID, for huma.
func (ID) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Pattern: idPattern, Examples: []any{"1523399873241099"}}
}

// number reads an ID. Its form has been checked.
func (id ID) number() (uint64, error) { return strconv.ParseUint(string(id), 10, 64) }

func idOf(n uint64) ID { return ID(strconv.FormatUint(n, 10)) }

// Status is the status of a task.
type Status string

// Schema describes a Status, for huma.
func (Status) Schema(r huma.Registry) *huma.Schema {
	return oneOf(r, "Status", "pending", "claimed", "done", "cancelled", "dead")
}

// oneOf describes, under a name, a text that is one of some.
func oneOf(r huma.Registry, name string, values ...any) *huma.Schema {
	if r.Map()[name] == nil {
		s := &huma.Schema{Type: "string", Enum: values}
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// Task is a task's row.
type Task struct {
	JobID          ID                `json:"job_id" doc:"Names the task"`
	BizType        string            `json:"biz_type" doc:"Name of its biz type; #7 if number 7 has no name" example:"order.close"`
	BizID          ID                `json:"biz_id" doc:"What the task is about"`
	BizKey         string            `json:"biz_key,omitempty" doc:"The business key that biz_id is made of; left out if biz_id itself is the key"`
	Status         Status            `json:"status"`
	ActionTime     Time              `json:"action_time" doc:"pending: when to act next; claimed: the claim's deadline; else when it ended"`
	DueTime        Time              `json:"due_time" doc:"The time that was last asked for"`
	Attempts       int               `json:"attempts" doc:"Failed deliveries so far"`
	Crashes        int               `json:"crashes" doc:"Claims that ran out without an outcome"`
	Version        int64             `json:"version" doc:"Grows with each reschedule and redrive"`
	InDelivery     bool              `json:"in_delivery,omitempty" doc:"Of a cancel or reschedule: a delivery of the task may be under way"`
	ClaimedBy      string            `json:"claimed_by,omitempty"`
	DedupKey       string            `json:"dedup_key,omitempty" doc:"A key that is not UTF-8 is \\x and hex digits, which add_task takes too. Left out of a schedule's run"`
	LastError      string            `json:"last_error,omitempty"`
	Payload        string            `json:"payload" doc:"As it was added"`
	PayloadVersion int               `json:"payload_version,omitempty" doc:"With which the task was added; left out for the first one, or none"`
	Headers        map[string]string `json:"headers,omitempty"`
	Created        Time              `json:"created"`
	Modified       Time              `json:"modified"`
	Table          string            `json:"table,omitempty" example:"toc_3.task_0517"`
	Schedule       string            `json:"schedule,omitempty" doc:"Of the run of a schedule that was read by its id: the name; left out if the schedule was deleted, or the run cancelled" example:"report.daily"`
	FireTime       *Time             `json:"fire_time,omitempty" doc:"Of the run of a schedule: the time that it is for, without jitter; left out of a run by hand, and of one that was cancelled"`
}

// taskOf returns a row as the wire shows it.
func taskOf(i tocsin.Info) Task {
	t := Task{
		JobID: idOf(uint64(i.JobID)), BizType: i.BizType, BizID: idOf(i.BizID), BizKey: i.BizKey, Status: Status(i.Status.String()),
		ActionTime: Time{i.ActionTime}, DueTime: Time{i.DueTime}, Attempts: i.Attempts, Crashes: i.Crashes, Version: int64(i.Version),
		ClaimedBy: i.ClaimedBy, LastError: i.LastError, Payload: i.Payload, PayloadVersion: i.PayloadVersion, Created: Time{i.Created}, Modified: Time{i.Modified}, Table: i.Table,
		Schedule: i.Schedule, FireTime: timeOf(i.FireTime),
	}
	if !strings.HasPrefix(i.DedupKey, "\x00") {
		t.DedupKey = name.KeyText(i.DedupKey)
	}
	t.Headers, _ = i.Headers.All() // written by plain SQL they may be none
	return t
}
