package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
)

// body is what a node posts. 64-bit numbers are strings: not every JSON reader
// keeps their last digits.
type body struct {
	Type      string  `json:"type"`
	Timestamp instant `json:"timestamp"`
	Data      any     `json:"data"` // of one task, or of each task of a batch
}

// data is a task in the body of a callback.
type data struct {
	Key        string         `json:"key,omitempty"` // in a batch; a request of one task has it as webhook-id
	JobID      tocsin.JobID   `json:"job_id"`
	BizID      uint64         `json:"biz_id,string"`
	BizKey     string         `json:"biz_key,omitempty"`
	BizType    string         `json:"biz_type"`
	ActionTime instant        `json:"action_time"`
	DueTime    instant        `json:"due_time"`
	Attempt    int            `json:"attempt"` // 1 for the first
	Payload    string         `json:"attribute"`
	Version    int            `json:"payload_version,omitempty"`
	Headers    tocsin.Headers `json:"headers,omitempty"`
	Schedule   string         `json:"schedule,omitempty"`
	FireTime   instant        `json:"fire_time,omitzero"` // of a run that a schedule has made for a time
}

// instant is a time in UTC that is sent with milliseconds, which is all that a task's times have.
type instant time.Time

// MarshalJSON implements json.Marshaler.
func (i instant) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(i).UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *instant) UnmarshalJSON(text []byte) error { return (*time.Time)(i).UnmarshalJSON(text) }

func dataOf(task tocsin.Info) data {
	d := data{
		JobID: task.JobID, BizID: task.BizID, BizKey: task.BizKey, BizType: task.BizType,
		ActionTime: instant(task.ActionTime), DueTime: instant(task.DueTime),
		Attempt: task.Attempts + 1, Payload: task.Payload, Version: task.PayloadVersion, Headers: task.Headers,
		Schedule: task.Schedule,
	}
	if !task.FireTime.IsZero() {
		d.FireTime = instant(task.FireTime)
	}
	return d
}

// Body returns what is posted of a task at now, for other ways to deliver the same.
func Body(task tocsin.Info, now time.Time) []byte {
	return encode(body{Type: task.BizType, Timestamp: instant(now), Data: dataOf(task)})
}

func encode(value any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // nothing in it can fail
	return bytes.TrimSpace(b.Bytes())
}

// decode reads the body of a callback that has an id, which is the key of the task unless it is a batch.
func (c *callback) decode(id, node string) error {
	var b struct {
		Data json.RawMessage `json:"data"`
	}
	err := json.Unmarshal(c.body, &b)
	c.batch = bytes.HasPrefix(b.Data, []byte("["))
	all := make([]data, 1)
	if err == nil && c.batch {
		err = json.Unmarshal(b.Data, &all)
	} else if err == nil && len(b.Data) > 0 {
		err = json.Unmarshal(b.Data, &all[0])
		all[0].Key = id
	}
	if err != nil {
		return fmt.Errorf("the body is no callback of Tocsin: %w", err)
	}
	for _, d := range all {
		switch {
		case d.JobID == 0 || d.BizType == "":
			return errors.New("the body is no callback of Tocsin: want data.job_id and data.biz_type")
		case d.Key == "":
			return errors.New("the body is no callback of Tocsin: want a key for each task of a batch")
		}
		c.tasks = append(c.tasks, Task{
			Key: d.Key, JobID: d.JobID, BizID: d.BizID, BizKey: d.BizKey, BizType: d.BizType, ActionTime: time.Time(d.ActionTime), DueTime: time.Time(d.DueTime),
			Attempt: d.Attempt, Payload: d.Payload, PayloadVersion: d.Version, Headers: d.Headers, Schedule: d.Schedule, FireTime: time.Time(d.FireTime),
			Node: node,
		})
	}
	return nil
}

// reply tells the node what the function's error asks for.
func reply(w http.ResponseWriter, err error) {
	verb, in, reason := tocsin.AsOutcome(err)
	if reason == "" {
		reason = "later"
	}
	switch {
	case verb == tocsin.Completed:
		w.WriteHeader(http.StatusNoContent)
	case verb == tocsin.Buried:
		http.Error(w, reason, http.StatusGone)
	case restOf(err) > 0: // all tasks of the biz type wait
		later(w, reason, restOf(err), http.StatusServiceUnavailable)
	case in >= 0: // this task alone does
		later(w, reason, in, http.StatusInternalServerError)
	case err == errNotKnown:
		http.Error(w, reason, http.StatusServiceUnavailable)
	default:
		http.Error(w, reason, http.StatusInternalServerError)
	}
}

// restOf returns for how long the function wants no task; 0: its error does not say "later".
func restOf(err error) time.Duration {
	var rests interface{ RestFor() time.Duration }
	if errors.As(err, &rests) {
		return rests.RestFor()
	}
	return 0
}

func later(w http.ResponseWriter, reason string, in time.Duration, status int) {
	w.Header().Set("Retry-After", strconv.FormatFloat(math.Ceil(in.Seconds()), 'f', 0, 64))
	http.Error(w, reason, status)
}

// result is what the receiver of a batch says of one task.
type result struct {
	Key        string   `json:"key"`
	Result     string   `json:"result"`
	RetryAfter *float64 `json:"retry_after,omitempty"` // seconds
	Text       string   `json:"text,omitempty"`        // what the answer of one task has as its body
}

// words are the results in a batch, by verb.
var words = [...]string{tocsin.Completed: "done", tocsin.Retried: "retry", tocsin.Snoozed: "snooze", tocsin.Buried: "bury"}

// replyBatch tells the node what each task's error asks for.
func replyBatch(w http.ResponseWriter, tasks []Task, errs []error) {
	results := make([]result, len(tasks))
	most := min(snippet, batchCap/8/len(tasks)) // characters of up to 6 bytes as JSON
	for i, task := range tasks {
		verb, in, reason := tocsin.AsOutcome(errs[i])
		word := words[verb]
		if rest := restOf(errs[i]); verb == tocsin.Retried && rest > 0 {
			word, in = "later", rest
		}
		results[i] = result{Key: task.Key, Result: word, Text: name.Text(reason, most)}
		if seconds := in.Seconds(); in >= 0 && (verb == tocsin.Retried || verb == tocsin.Snoozed) {
			results[i].RetryAfter = &seconds
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(results) // if the node is gone, it delivers the tasks again
}
