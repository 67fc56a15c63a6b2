package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
)

// millis is RFC 3339 with milliseconds, which is all that a task's times have.
const millis = "2006-01-02T15:04:05.000Z"

// body is what is posted. 64-bit numbers are strings: not every JSON reader
// keeps their last digits.
type body struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"`
	Data      any    `json:"data"` // of one task, or of each task of a batch
}

type data struct {
	Key        string         `json:"key,omitempty"` // in a batch; a request of one task has it as webhook-id
	JobID      tocsin.JobID   `json:"job_id"`
	BizID      uint64         `json:"biz_id,string"`
	BizKey     string         `json:"biz_key,omitempty"`
	BizType    string         `json:"biz_type"`
	ActionTime string         `json:"action_time"`
	DueTime    string         `json:"due_time"`
	Attempt    int            `json:"attempt"` // 1 for the first
	Payload    string         `json:"attribute"`
	Version    int            `json:"payload_version,omitempty"`
	Headers    tocsin.Headers `json:"headers,omitempty"`
	Schedule   string         `json:"schedule,omitempty"`
	FireTime   string         `json:"fire_time,omitempty"` // of a run that a schedule has made for a time
}

func bodyOf(task tocsin.Info, now time.Time) ([]byte, error) {
	return encode(body{Type: task.BizType, Timestamp: now.UTC().Format(millis), Data: dataOf(task)})
}

func dataOf(task tocsin.Info) data {
	return data{
		JobID: task.JobID, BizID: task.BizID, BizKey: task.BizKey, BizType: task.BizType,
		ActionTime: task.ActionTime.UTC().Format(millis), DueTime: task.DueTime.UTC().Format(millis),
		Attempt: task.Attempts + 1, Payload: task.Payload, Version: task.PayloadVersion, Headers: task.Headers,
		Schedule: task.Schedule, FireTime: text(task.FireTime),
	}
}

func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("body of the callback: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// text writes a time; "" for the zero time.
func text(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(millis)
}
