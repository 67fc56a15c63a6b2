package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// What a worker does.
const (
	workerLoops = 3               // each has one request at a time
	tasksMost   = 8               // that one request takes
	pollFor     = 4 * time.Second // for the first task
	answerIn    = 3 * time.Second // an answer may take this long beside that
	extendEvery = 1500 * time.Millisecond
	settleFor   = 20 * time.Second // how long it repeats what got no answer
	failPause   = 100 * time.Millisecond
)

// worker asks nodes for tasks by HTTP, does as their payloads say, and settles them.
type worker struct {
	role
	journal  *journal // of its deliveries: a task came, its work has ended
	requests *journal
}

// work plays a worker until ctx ends.
func (r role) work(ctx context.Context) error {
	j, err := openJournal(r.Journal, r.Name)
	if err != nil {
		return err
	}
	requests, err := openJournal(strings.TrimSuffix(r.Journal, journalSuffix)+requestsSuffix, r.Name)
	if err != nil {
		return errors.Join(err, j.close())
	}
	w := &worker{r, j, requests}
	var loops errgroup.Group
	for i := range workerLoops {
		loops.Go(func() error { return w.loop(ctx, i) })
	}
	err = loops.Wait()
	http.DefaultClient.CloseIdleConnections()
	return errors.Join(err, requests.close(), j.close())
}

// handed is a task as the API hands it over.
type handed struct {
	JobID    tocsin.JobID `json:"job_id"`
	Version  uint32       `json:"version"`
	Attempts int          `json:"attempts"`
	DueTime  time.Time    `json:"due_time"`
	Payload  string       `json:"payload"`
	Lease    string       `json:"lease"`
}

// claimer is a lease as the row has it.
func claimer(lease string) string { return store.LeaseOf(lease[strings.LastIndexByte(lease, '.')+1:]) }

// loop takes tasks, does them and settles them, until ctx ends and it has none.
func (w *worker) loop(ctx context.Context, number int) error {
	var ends []ending
	var since time.Time
	for n := 0; ctx.Err() == nil || len(ends) > 0; n++ {
		id := fmt.Sprint(number, "-", n)
		r := request{ID: id, Path: "settle", Ends: ends, Asks: ctx.Err() == nil && (len(ends) == 0 || rand.IntN(2) == 0)}
		tasks := w.send(&r)
		if r.Err != "" {
			_ = loop.Wait(ctx, failPause) // what it has is settled after the end of ctx too
		}
		if ends = r.left(); time.Since(since) > settleFor {
			ends = nil
		}
		if len(tasks) == 0 {
			continue
		}
		more, err := w.do(tasks, id)
		if err != nil {
			return err
		}
		ends, since = append(ends, more...), time.Now()
	}
	return nil
}

// send makes a request to a node, and notes it before and after.
func (w *worker) send(r *request) []handed {
	var body any
	ask := map[string]any{"biz_types": []string{pulled.Name()}, "max": 1 + rand.IntN(tasksMost), "wait_ms": pollFor.Milliseconds(), "worker": w.Name}
	switch {
	case r.Path == "extend":
		body = map[string]any{"leases": r.Leases}
	case len(r.Ends) == 0:
		r.Path, body = "reserve", ask
	case r.Asks:
		body = map[string]any{"settle": r.Ends, "reserve": ask}
	default:
		body = map[string]any{"settle": r.Ends, "worker": w.Name}
	}
	r.Node, r.Sent = w.node(), time.Now()
	w.note(*r)
	var got struct {
		Tasks   []handed
		Results []became
	}
	if err := w.post(*r, body, &got); err != nil {
		r.Err, got.Tasks, got.Results = err.Error(), nil, nil
	}
	r.Back, r.Results, r.Tasks = time.Now(), got.Results, len(got.Tasks)
	w.note(*r)
	return got.Tasks
}

// node is the number of the node to ask.
func (w *worker) node() int {
	if text, err := os.ReadFile(w.Aim); err == nil {
		if n, err := strconv.Atoi(string(text)); err == nil {
			return n
		}
	}
	return rand.IntN(len(w.APIs))
}

func (w *worker) note(r request) {
	r.Worker = w.Name
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	w.requests.append(append(line, '\n'))
}

// post reads the whole answer, or returns an error.
func (w *worker) post(r request, body, answer any) error {
	within := answerIn
	if r.Asks {
		within += pollFor
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.APIs[r.Node]+"/v1/pull:"+r.Path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// do does the work of tasks, one after the other, and keeps their leases meanwhile.
func (w *worker) do(tasks []handed, id string) (ends []ending, err error) {
	came := time.Now()
	beat := request{Path: "extend"}
	for _, t := range tasks {
		w.journal.write(t.record(came))
		beat.Leases = append(beat.Leases, t.Lease)
	}
	working, end := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() {
		for n := 0; loop.Wait(working, extendEvery) == nil; n++ {
			beat.ID = fmt.Sprint(id, "-", n)
			w.send(&beat)
		}
	})
	defer beating.Wait()
	defer end()
	for _, t := range tasks {
		e, err := t.work()
		if err != nil {
			return nil, fmt.Errorf("job_id %s: %w", t.JobID, err)
		}
		r := t.record(time.Now())
		r.Begin, r.OK = false, e.Do == endComplete
		w.journal.write(r)
		ends = append(ends, e)
	}
	return ends, nil
}

// record is the begin of the delivery.
func (t handed) record(at time.Time) record {
	return record{Begin: true, JobID: t.JobID, Version: t.Version, Attempts: t.Attempts, At: at, Due: t.DueTime, Lease: claimer(t.Lease)}
}

// work does as the payload says. A few tasks are put off, or given back: others do them.
func (t handed) work() (ending, error) {
	var work Work
	if err := json.Unmarshal([]byte(t.Payload), &work); err != nil {
		return ending{}, err
	}
	err := Work{Millis: work.Millis, Fail: work.Fail}.do(context.Background(), t.Attempts)
	e := ending{Lease: t.Lease, Do: endComplete}
	switch roll := rand.IntN(100); {
	case roll < 2:
		e.Do = endRelease
	case roll < 4:
		e.Do, e.DelayMS = endSnooze, 500
	case work.Do == doBury:
		e.Do, e.Error = endBury, "as the payload asks"
	case err != nil:
		e.Do, e.Error = endRetry, err.Error()
		if roll%2 == 0 {
			e.DelayMS = 300
		}
	}
	return e, nil
}
