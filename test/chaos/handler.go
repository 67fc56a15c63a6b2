package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/node"
)

// Work is the payload: what the delivery of a task is to be like.
type Work struct {
	Millis int    `json:"ms"`             // how long it takes
	Fail   int    `json:"fail,omitempty"` // so many attempts fail before one succeeds
	Do     string `json:"do,omitempty"`   // something worse, see the constants
	Mark   int    `json:"mark,omitempty"` // of a schedule's revision
	Good   int    `json:"good,omitempty"` // of a schedule's runs: all fail but those whose fire time, in Unix seconds, it divides
}

// What a handler may be told to do.
const (
	doPanic = "panic"
	doHang  = "hang" // until the process ends
	doLate  = "late" // ignore the time-out and succeed half a second after it
	doExit  = "exit" // os.Exit
)

// What a worker may be told to do, beside to fail.
const doBury = "bury"

// What the receiver may be told to do, beside what handlers are.
const (
	doError = "500"
	doGone  = "410"
	doBusy  = "429"   // with Retry-After of a second, the first time
	doDrip  = "drip"  // an answer byte by byte, which never ends
	doReset = "reset" // break the connection
)

// The biz types: plain and strict have Go handlers, the others are HTTP callbacks.
var (
	plain  = tocsin.Define[Work]("chaos.plain")
	strict = tocsin.Define[Work]("chaos.strict")
	hook   = tocsin.Define[Work]("chaos.hook")
	slow   = tocsin.Define[Work]("chaos.slow")
	keyed  = tocsin.Define[Work]("chaos.keyed") // one task of a biz_id at a time
	spare  = tocsin.Define[Work]("chaos.spare") // of a group without nodes: only sweepers deliver it
	pulled = tocsin.Define[Work]("chaos.pull")  // workers ask for it

	// Those of schedules' runs. Rows of brief and hook runs are kept for a second once they are finished.
	briefRun  = tocsin.Define[Work]("chaos.run.brief")
	keptRun   = tocsin.Define[Work]("chaos.run.kept")
	strictRun = tocsin.Define[Work]("chaos.run.strict")
	hookRun   = tocsin.Define[Work]("chaos.run.hook")

	brittleRun = tocsin.Define[Work]("chaos.run.brittle") // of schedules that are paused after failures
)

// bizTypes are those of tasks that no schedule makes, by name.
var bizTypes = func() map[string]tocsin.BizType[Work] {
	all := map[string]tocsin.BizType[Work]{}
	for _, b := range []tocsin.BizType[Work]{plain, strict, hook, slow, keyed, spare, pulled} {
		all[b.Name()] = b
	}
	return all
}()

// deliveryTimeout is that of every biz type but slow, which has slowTimeout. Options may give plain, strict and hook others.
const (
	deliveryTimeout = 3 * time.Second
	slowTimeout     = 45 * time.Second
)

// attempts is after how many a task is dead; brittleAttempts of a brittle run.
const (
	attempts        = 6
	brittleAttempts = 2
)

// policies are those of the biz types.
func policies(url string) []biztype.Policy {
	p := biztype.Policy{
		Group: group, Timeout: biztype.Duration(deliveryTimeout), Attempts: attempts, Concurrency: 128,
		Backoff: biztype.Backoff{Base: biztype.Duration(200 * time.Millisecond), Max: biztype.Duration(time.Second)},
	}
	first, second, third := p, p, p
	first.Name, first.Number = plain.Name(), 1
	second.Name, second.Number, second.Strict = strict.Name(), 2, true
	second.Concurrency = 8 // so few that loaded tasks wait: that is when a cancel must count
	third.Name, third.Number = hook.Name(), 3
	third.Webhook = &biztype.Webhook{URL: url, Allow: []string{"127.0.0.0/8"}}
	fourth := third
	fourth.Name, fourth.Number, fourth.Timeout = slow.Name(), 4, biztype.Duration(slowTimeout)
	fifth := third
	fifth.Name, fifth.Number, fifth.Group = spare.Name(), 5, "spare"
	sixth := second
	sixth.Name, sixth.Number, sixth.PerKey, sixth.Concurrency = keyed.Name(), 6, 1, 128
	return []biztype.Policy{first, second, third, fourth, fifth, sixth}
}

// The policy of tasks that workers ask for.
const (
	pullLease    = 5 * time.Second
	pullAttempts = 16
)

// forWorker has one task in 500 outlast its lease, and one in a hundred fail for good.
func (w *Work) forWorker() {
	switch roll := rand.IntN(500); {
	case roll == 0:
		w.Millis = int((pullLease + 2*time.Second).Milliseconds())
	case roll <= 5:
		w.Do = doBury
	}
}

// pullPolicy is that of tasks that workers ask for, made of that of others.
func pullPolicy(p biztype.Policy) biztype.Policy {
	p.Name, p.Number, p.Attempts, p.Pull = pulled.Name(), 21, pullAttempts, &biztype.Pull{Lease: biztype.Duration(pullLease)}
	p.Timeout, p.Concurrency = 0, 0
	return p
}

// briefly is how long finished rows of some runs are kept.
const briefly = time.Second

// runPolicies are those of schedules' runs, made of those of other tasks.
func runPolicies(of []biztype.Policy) []biztype.Policy {
	brief, kept, claimed, called, brittle := of[0], of[0], of[1], of[2], of[0]
	brief.Name, brief.Number, brief.Retention = briefRun.Name(), 11, biztype.Duration(briefly)
	kept.Name, kept.Number = keptRun.Name(), 12
	claimed.Name, claimed.Number, claimed.Concurrency = strictRun.Name(), 13, 64
	called.Name, called.Number, called.Retention = hookRun.Name(), 14, biztype.Duration(briefly)
	brittle.Name, brittle.Number, brittle.Attempts = brittleRun.Name(), 15, brittleAttempts
	return []biztype.Policy{brief, kept, claimed, called, brittle}
}

// handlers do as the payload says and write the journal.
func (r role) handlers(j *journal) *node.Handlers {
	var h node.Handlers
	types := []tocsin.BizType[Work]{plain, strict, keyed}
	if r.Runs {
		types = append(types, briefRun, keptRun, strictRun, brittleRun)
	}
	for _, b := range types {
		node.Handle(&h, b, func(ctx context.Context, t *tocsin.Task[Work]) error { return j.handle(ctx, t) })
	}
	return &h
}

// handle notes the delivery's begin and its end.
func (j *journal) handle(ctx context.Context, t *tocsin.Task[Work]) error {
	r := record{Begin: true, JobID: t.JobID, Version: t.Version, Attempts: t.Attempts, At: time.Now(), Due: t.DueTime}
	if t.Schedule != "" {
		r.ofRun = ofRun{t.Schedule, t.FireTime, t.Payload.Mark}
	}
	j.write(r)
	err := t.Payload.do(ctx, t.Attempts)
	if err == nil && t.Payload.Good > 0 && t.FireTime.Unix()%int64(t.Payload.Good) != 0 {
		err = errAsked
	}
	r.Begin, r.At, r.OK = false, time.Now(), err == nil
	j.write(r)
	return err
}

// errAsked is the failure that the payload wants.
var errAsked = errors.New("failed, as the payload asks")

// do is the work.
func (w Work) do(ctx context.Context, attempts int) error {
	switch w.Do {
	case doPanic:
		panic("as the payload asks")
	case doHang:
		select {} // its slot is lost for good, as that of a broken handler is
	case doLate:
		return loop.Wait(context.WithoutCancel(ctx), deliveryTimeout+500*time.Millisecond)
	case doExit:
		fmt.Fprintln(os.Stderr, "exit, as the payload asks")
		os.Exit(3)
	}
	if err := loop.Wait(ctx, time.Duration(w.Millis)*time.Millisecond); err != nil {
		return err
	}
	if attempts < w.Fail {
		return errAsked
	}
	return nil
}
