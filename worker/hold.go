package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/name"
)

// answer is that of each call.
type answer struct {
	Tasks []struct {
		tocsin.Info
		Lease   string `json:"lease"`
		LeaseMS int64  `json:"lease_ms"`
	} `json:"tasks"`
	Results []result `json:"results"`
}

type result struct {
	Lease  string `json:"lease"`
	Result string `json:"result"` // "": a server was away, so the call is to be repeated
}

// outcome is what becomes of a task.
type outcome struct {
	Lease   string `json:"lease"`
	Do      string `json:"do"` // as tocsin.Verb, or release; "": nothing is to be settled
	Error   string `json:"error,omitempty"`
	Output  string `json:"output,omitempty"`
	DelayMS *int64 `json:"delay_ms,omitempty"`
}

// held is a task in hand, from its reserve until its outcome is stored.
type held struct {
	tocsin.Info
	ctx     context.Context // the handler's
	cancel  context.CancelCauseFunc
	lease   time.Duration
	end     *time.Timer // of the lease
	renew   time.Time   // when to extend it, under Worker.mu
	output  client.Outputs
	outcome outcome
	sent    int       // calls that have told it
	stored  chan bool // answers each of them
}

// errCutOff is the cause at the drain time-out.
var errCutOff = errors.New("the worker ends")

// begin delivers tasks, each in a goroutine that ends when the outcome is stored.
func (w *Worker) begin(ctx context.Context, a answer) {
	for _, t := range a.Tasks {
		lease := time.Duration(t.LeaseMS) * time.Millisecond
		h := &held{Info: t.Info, lease: lease, renew: time.Now().Add(lease / 3), outcome: outcome{Lease: t.Lease}, stored: make(chan bool)}
		h.ctx, h.cancel = context.WithCancelCause(context.WithValue(ctx, client.OutputKey, &h.output))
		h.end = time.AfterFunc(lease, func() { h.cancel(ErrLost) })
		w.mu.Lock()
		w.held[t.Lease] = h
		w.mu.Unlock()
		w.hands.Go(func() { w.hold(ctx, h) })
	}
}

// hold runs the handler, and has the outcome told until it is stored.
func (w *Worker) hold(ctx context.Context, h *held) {
	defer func() {
		h.end.Stop()
		h.cancel(nil)
		w.mu.Lock()
		delete(w.held, h.outcome.Lease)
		w.mu.Unlock()
	}()
	if h.read(w.call(h)); h.outcome.Do == "" {
		w.give(1)
		return
	}
	waits := newWaits()
	for w.settles <- h; !<-h.stored; w.settles <- h {
		_ = loop.Wait(ctx, waits.NextBackOff()) // at the end of ctx the last call follows at once
	}
}

// errExited is the error of a handler that calls runtime.Goexit, as the FailNow of tests does.
var errExited = errors.New("the handler ended its goroutine instead of returning")

// call runs the handler, in a goroutine that it may end. A panic is its error.
func (w *Worker) call(h *held) error {
	returned := make(chan error)
	go func() {
		err := errExited
		defer func() {
			if p := recover(); p != nil {
				w.limit.Of(w.cfg.Logger, "panic").Error("handler panicked", "biz_type", h.BizType, "job_id", h.JobID.String(), "panic", p, "stack", string(debug.Stack()))
				err = errors.New(client.PanicWords(p))
			}
			returned <- err
		}()
		err = w.handlers[h.BizType](h.ctx, h.Info)
	}()
	return <-returned
}

// read reads the outcome from the handler's error. A failure after the end of the context is none.
func (h *held) read(err error) {
	verb, in, reason := tocsin.AsOutcome(err)
	why, o := context.Cause(h.ctx), &h.outcome
	switch o.Do = verb.String(); {
	case verb == tocsin.Completed:
		o.Output = h.output.Of(uint64(h.JobID))
		return
	case errors.Is(why, tocsin.ErrCancelled), errors.Is(why, ErrLost):
		o.Do = ""
		return
	case verb == tocsin.Retried && errors.Is(why, errCutOff):
		o.Do = "release"
		return
	case verb != tocsin.Buried && in >= 0:
		delay := min(in+time.Millisecond-1, tocsin.MaxAhead*365*24*time.Hour).Milliseconds() // rounded up: nothing is early
		o.DelayMS = &delay
	}
	o.Error = name.Text(reason, tocsin.MaxError)
}

// cutOff ends the contexts of the handlers.
func (w *Worker) cutOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.held {
		h.cancel(errCutOff)
	}
}

// settleAll tells outcomes, those that wait in one call, until settles is closed.
func (w *Worker) settleAll(ctx, asking context.Context) {
	for h := range w.settles {
		batch := []*held{h}
		for len(w.settles) > 0 && len(batch) < maxBatch {
			batch = append(batch, <-w.settles)
		}
		var outcomes []outcome
		slots := 0
		for _, h := range batch {
			if outcomes = append(outcomes, h.outcome); h.sent == 0 {
				slots++
			}
			h.sent++
		}
		body := map[string]any{"settle": outcomes, "worker": w.cfg.Name}
		if slots == len(batch) && asking.Err() == nil { // a call that is repeated asks for nothing: that may be why it failed
			body["reserve"] = w.reserve(min(slots, w.cfg.Batch), nextWait)
		}
		a, err := w.post(ctx, "settle", callWithin, body)
		w.give(slots - len(a.Tasks))
		w.begin(ctx, a)
		for _, h := range batch {
			h.stored <- w.stored(h, a.Results, err, ctx.Err() != nil)
		}
	}
}

// stored reports whether the outcome of a task needs no further call.
func (w *Worker) stored(h *held, results []result, failed error, last bool) bool {
	i := slices.IndexFunc(results, func(r result) bool { return r.Lease == h.outcome.Lease && r.Result != "" })
	log := w.cfg.Logger.With("biz_type", h.BizType, "job_id", h.JobID.String(), "outcome", h.outcome.Do)
	switch {
	case i < 0 && last:
		log.Error("the outcome of a task could not be stored: the task is delivered again", "error", failed)
	case i >= 0 && results[i].Result == "lost" && h.sent == 1: // later, the call before may have stored it
		log.Warn("the outcome of a task has no effect: its lease was lost")
	}
	return i >= 0 || last
}

// extendAll extends, each second, the leases that are due. What fails is due again a second later.
func (w *Worker) extendAll(ctx context.Context) {
	for loop.Wait(ctx, time.Second) == nil {
		sent := time.Now()
		var due []string
		w.mu.Lock()
		for lease, h := range w.held {
			if sent.After(h.renew) && len(due) < maxBatch {
				due = append(due, lease)
			}
		}
		w.mu.Unlock()
		if len(due) > 0 {
			a, _ := w.post(ctx, "extend", callWithin/2, map[string]any{"leases": due}) // post logs
			w.extended(a.Results, sent)
		}
	}
}

// extended notes until when leases last, counted from when the call was sent, and ends the contexts of tasks that are lost.
func (w *Worker) extended(results []result, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range results {
		h := w.held[r.Lease]
		if h == nil || r.Result == "" {
			continue
		}
		h.renew = sent.Add(h.lease / 3)
		switch r.Result {
		case "ok":
			h.end.Reset(time.Until(sent.Add(h.lease)))
		case "lost":
			h.cancel(ErrLost)
		default: // cancel_wanted
			h.cancel(tocsin.ErrCancelled)
		}
	}
}

// problem is an answer that is no success.
type problem struct {
	status int
	Detail string `json:"detail"`
}

func (p *problem) Error() string {
	return fmt.Sprintf("the API answered %d %s: %s", p.status, http.StatusText(p.status), p.Detail)
}

// refused reports whether the API would answer the same call so again.
func refused(err error) bool {
	var p *problem
	return errors.As(err, &p) && p.status/100 == 4 && p.status != http.StatusRequestTimeout && p.status != http.StatusTooManyRequests
}

// post makes a call. If it fails, the next one goes to another URL.
func (w *Worker) post(ctx context.Context, verb string, within time.Duration, body any) (a answer, err error) {
	at := w.url.Load()
	url := strings.TrimSuffix(w.cfg.URLs[at%uint64(len(w.cfg.URLs))], "/") + "/v1/pull:" + verb
	defer func() {
		if err == nil {
			return
		}
		a = answer{} // half of one may be read
		if ctx.Err() == nil {
			w.url.CompareAndSwap(at, at+1)
			w.limit.Of(w.cfg.Logger, verb).Warn("a call of the API failed", "url", url, "error", err)
		}
	}()
	text, _ := json.Marshal(body) // texts and numbers
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(bounded, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	if w.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+w.cfg.Token)
	}
	resp, err := w.cfg.Client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, &a)
	} else if err == nil {
		p := &problem{status: resp.StatusCode}
		_ = json.Unmarshal(text, p) // the answer of a proxy has no detail
		err = p
	}
	return a, err
}
