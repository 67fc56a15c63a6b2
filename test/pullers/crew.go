package pullers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// again is when a node is asked again that does not run.
const again = 100 * time.Millisecond

// Worker asks one node for tasks, and settles them as complete with its next request.
type Worker struct {
	URL string // of the API
	Max int    // tasks at a time

	tasks, answers atomic.Int64
}

// Counts returns how many tasks the worker got, and in how many answers.
func (w *Worker) Counts() (tasks, answers int) { return int(w.tasks.Load()), int(w.answers.Load()) }

// Crew is workers that ask for the tasks of one biz type.
type Crew struct {
	BizType string
	Workers []*Worker
	Taken   func([]Task) // called by each worker with what an answer has, before it is settled; nil: nobody looks

	client *http.Client
}

// Task is what a worker reads of a task.
type Task struct {
	JobID   tocsin.JobID `json:"job_id,string"`
	DueTime time.Time    `json:"due_time"`
	Payload string       `json:"payload"`
	Lease   string       `json:"lease"`
}

type (
	request struct {
		Settle  []ending `json:"settle,omitempty"`
		Reserve *reserve `json:"reserve,omitempty"`
	}
	ending struct {
		Lease string `json:"lease"`
		Do    string `json:"do"`
	}
	reserve struct {
		BizTypes []string `json:"biz_types"`
		Max      int      `json:"max"`
	}
	reply struct {
		Results []struct{ Lease, Result string }
		Tasks   []Task
	}
)

// Start has the workers work in a fleet until it stops.
func (c *Crew) Start(f *devcluster.Fleet) {
	c.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(c.Workers), DisableCompression: true}}
	f.Go("idle connections of workers", func(ctx context.Context) error {
		<-ctx.Done()
		c.client.CloseIdleConnections()
		return nil
	})
	for _, w := range c.Workers {
		f.Go("worker", func(ctx context.Context) error { return c.work(ctx, w) })
	}
}

// Tasks returns how many tasks the workers got.
func (c *Crew) Tasks() (sum int) {
	for _, w := range c.Workers {
		tasks, _ := w.Counts()
		sum += tasks
	}
	return sum
}

// work asks for tasks until ctx ends. Then it has none, or their leases run out: an answer waits for the next tasks, however long ago the
// last ones were settled.
func (c *Crew) work(ctx context.Context, w *Worker) error {
	var ends []ending
	for ctx.Err() == nil {
		got, ok, err := c.ask(ctx, w.URL, request{ends, &reserve{[]string{c.BizType}, w.Max}})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !ok:
			if err := loop.Wait(ctx, again); err != nil {
				return nil
			}
			continue
		}
		if err := settled(ends, got); err != nil {
			return err
		}
		ends = ends[:0]
		if len(got.Tasks) == 0 {
			continue
		}
		w.answers.Add(1)
		w.tasks.Add(int64(len(got.Tasks)))
		if c.Taken != nil {
			c.Taken(got.Tasks)
		}
		for _, t := range got.Tasks {
			ends = append(ends, ending{t.Lease, "complete"})
		}
	}
	return nil
}

// settled returns what was not settled.
func settled(ends []ending, got reply) error {
	if len(got.Results) != len(ends) {
		return fmt.Errorf("%d leases were settled, and %d results came", len(ends), len(got.Results))
	}
	for _, r := range got.Results {
		if r.Result != "done" {
			return fmt.Errorf("lease %s could not be settled: %q", r.Lease, r.Result)
		}
	}
	return nil
}

// ask sends one request. False: the node does not run.
func (c *Crew) ask(ctx context.Context, url string, in request) (out reply, ok bool, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/pull:settle", bytes.NewReader(body))
	if err != nil {
		return out, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(req)
	if err != nil {
		return out, false, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return out, false, err
	case res.StatusCode == http.StatusServiceUnavailable:
		return out, false, nil
	case res.StatusCode != http.StatusOK:
		return out, false, fmt.Errorf("%s: %s", res.Status, text)
	}
	return out, true, json.Unmarshal(text, &out)
}
