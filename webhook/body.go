package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// textCap is how many bytes of an error stand in the result of a task: no more are kept as its last_error.
const textCap = 120

// data is a task in the body of a callback.
type data struct {
	Key        string         `json:"key"`
	JobID      tocsin.JobID   `json:"job_id"`
	BizID      uint64         `json:"biz_id,string"`
	BizKey     string         `json:"biz_key"`
	BizType    string         `json:"biz_type"`
	ActionTime time.Time      `json:"action_time"`
	DueTime    time.Time      `json:"due_time"`
	Attempt    int            `json:"attempt"`
	Payload    string         `json:"attribute"`
	Version    int            `json:"payload_version"`
	Headers    tocsin.Headers `json:"headers"`
	Schedule   string         `json:"schedule"`
	FireTime   time.Time      `json:"fire_time"`
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
			Key: d.Key, JobID: d.JobID, BizID: d.BizID, BizKey: d.BizKey, BizType: d.BizType, ActionTime: d.ActionTime, DueTime: d.DueTime,
			Attempt: d.Attempt, Payload: d.Payload, PayloadVersion: d.Version, Headers: d.Headers, Schedule: d.Schedule, FireTime: d.FireTime,
			Node: node,
		})
	}
	return nil
}

// answer tells the node what the function's error asks for.
func answer(w http.ResponseWriter, err error) {
	verb, in, reason := tocsin.AsOutcome(err)
	if reason == "" {
		reason = "later"
	}
	var rests resting
	switch {
	case verb == tocsin.Completed:
		w.WriteHeader(http.StatusNoContent)
	case verb == tocsin.Buried:
		http.Error(w, reason, http.StatusGone)
	case errors.As(err, &rests) && rests.RestFor() > 0: // all tasks of the biz type wait
		later(w, reason, rests.RestFor(), http.StatusServiceUnavailable)
	case in >= 0: // this task alone does
		later(w, reason, in, http.StatusInternalServerError)
	case err == errNotKnown:
		http.Error(w, reason, http.StatusServiceUnavailable)
	default:
		http.Error(w, reason, http.StatusInternalServerError)
	}
}

// resting is an error of a target that wants no deliveries for a while, whatever the task.
type resting interface{ RestFor() time.Duration }

func later(w http.ResponseWriter, reason string, in time.Duration, status int) {
	w.Header().Set("Retry-After", strconv.FormatFloat(math.Ceil(in.Seconds()), 'f', 0, 64))
	http.Error(w, reason, status)
}

// result is what becomes of one task of a batch.
type result struct {
	Key        string   `json:"key"`
	Result     string   `json:"result"`
	RetryAfter *float64 `json:"retry_after,omitempty"` // seconds
	Text       string   `json:"text,omitempty"`
}

// words are the results in a batch, by verb.
var words = [...]string{tocsin.Completed: "done", tocsin.Retried: "retry", tocsin.Snoozed: "snooze", tocsin.Buried: "bury"}

// answerBatch tells the node what each task's error asks for.
func answerBatch(w http.ResponseWriter, tasks []Task, errs []error) {
	results := make([]result, len(tasks))
	for i, task := range tasks {
		verb, in, reason := tocsin.AsOutcome(errs[i])
		results[i] = result{Key: task.Key, Result: words[verb], Text: strings.ToValidUTF8(reason[:min(len(reason), textCap)], "")}
		if seconds := in.Seconds(); in >= 0 && (verb == tocsin.Retried || verb == tocsin.Snoozed) {
			results[i].RetryAfter = &seconds
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(results) // if the node is gone, it delivers the tasks again
}
