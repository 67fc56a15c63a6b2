package webhook

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tocsinhq/tocsin"
)

const (
	batchCap = DefaultMaxBody // bytes of the body of a batch, and of its answer
	frame    = 512            // bytes; more than what stands around the tasks in a body
)

// postBatches posts the tasks in as few requests as their size allows, one after another, and fills in an error for each. A request that
// others follow ends a little before the delivery does, as their tasks have had no attempt if it takes all the time.
func (s *Sink) postBatches(ctx context.Context, tasks []tocsin.Info, errs []error) {
	var all []json.RawMessage
	var at []int // places of the tasks
	size := frame
	within := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		within, cancel = context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/10))
		defer cancel()
	}
	flush := func(ctx context.Context) {
		if len(all) > 0 {
			s.postBatch(ctx, tasks, at, all, errs)
		}
		all, at, size = nil, nil, frame
	}
	for i, task := range tasks {
		if _, err := task.Headers.All(); err != nil {
			errs[i] = unsent{err}
			continue
		}
		d := dataOf(task)
		d.Key = task.Key()
		text := encode(d)
		if len(all) == s.cfg.Batch || size+len(text)+1 > batchCap {
			flush(within)
		}
		all, at, size = append(all, text), append(at, i), size+len(text)+1
	}
	if within.Err() == nil {
		within = ctx
	}
	flush(within)
}

// postBatch posts the tasks at some places. The id of a request is new each time: other tasks than before may be together.
func (s *Sink) postBatch(ctx context.Context, tasks []tocsin.Info, at []int, all []json.RawMessage, errs []error) {
	now := time.Now()
	b := encode(body{Type: tasks[at[0]].BizType, Timestamp: instant(now), Data: all})
	answer, text, err := s.exchange(ctx, "batch_"+rand.Text(), b, nil, now)
	var results map[string]result
	var unread error
	if err == nil {
		if err = verdict(answer, text, now); err == nil {
			results, unread, err = readResults(text)
		}
	}
	for _, i := range at {
		errs[i] = err
		if err != nil {
			continue
		}
		switch r, found := results[tasks[i].Key()]; {
		case found:
			errs[i] = r.verdict()
			keep(ctx, tasks[i], r.Text, errs[i])
		case unread != nil:
			errs[i] = fmt.Errorf("callback answered no result for the task; one can't be read: %w", unread)
		default:
			errs[i] = fmt.Errorf("callback answered no result for the task, and %d for others", len(results))
		}
	}
}

// readResults reads the answer to a batch. Where one task has two results, neither counts. An entry that can't be read, the
// last of which unread tells, leaves the others as they are.
func readResults(text []byte) (results map[string]result, unread, err error) {
	if len(text) > batchCap {
		return nil, nil, fmt.Errorf("callback answered more than %d bytes", batchCap)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, nil, fmt.Errorf("callback answered no JSON list of results: %w", err)
	}
	results = make(map[string]result, len(list))
	for _, entry := range list {
		var r result
		if err := json.Unmarshal(entry, &r); err != nil {
			unread = err
			continue
		}
		if _, twice := results[r.Key]; twice {
			r = result{Key: r.Key, Result: "two results"}
		}
		results[r.Key] = r
	}
	return results, unread, nil
}

// verdict reads what the receiver says of one task.
func (r result) verdict() error {
	wait := time.Duration(-1)
	if r.RetryAfter != nil && *r.RetryAfter >= 0 {
		wait = time.Duration(min(*r.RetryAfter, retryAfterCap.Seconds()) * float64(time.Second))
	}
	var failed error = errors.New(said("callback answered "+r.Result, []byte(r.Text)))
	if r.Result == "later" {
		failed = answered{status: http.StatusTooManyRequests, summary: failed.Error(), rest: max(wait, leastRest)}
	}
	switch {
	case r.Result == "done":
		return nil
	case r.Result == "bury":
		return tocsin.Bury(failed)
	case r.Result == "snooze" && wait >= 0:
		return tocsin.Snooze(wait)
	case r.Result == "snooze":
		return errors.New("callback answered snooze without retry_after")
	case (r.Result == "retry" || r.Result == "later") && wait >= 0:
		return tocsin.RetryIn(wait, failed)
	case r.Result == "retry" || r.Result == "later":
		return failed
	}
	return fmt.Errorf("callback answered %.40q: want done, retry, later, bury or snooze", r.Result)
}
