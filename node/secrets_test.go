package node_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/node"
)

// Where secrets are kept may hang, as a directory of another machine does: nothing but new secrets waits for it.
func TestAReadingOfSecretsThatHangsHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	quick := tocsin.Define[order]("refund.check")
	p := newPlace(t, closePolicy(), biztype.Policy{Name: quick.Name(), Number: 2, Group: "orders"},
		biztype.Policy{Name: "coupon.remind", Number: 3, Group: "orders", Webhook: &biztype.Webhook{URL: "http://127.0.0.1:1/", Secrets: []string{"A"}}})
	var hangs atomic.Bool
	hung, goOn := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(hung) })
	cfg := p.config("orders")
	cfg.Getenv = func(name string) string {
		if hangs.Load() {
			first()
			<-goOn
		}
		return map[string]string{"A": callbackSecret}[name]
	}
	buried := make(chan struct{}, 1)
	h := closing(func(context.Context, *tocsin.Task[order]) error {
		buried <- struct{}{}
		return tocsin.Bury(errors.New("as asked"))
	})
	node.Handle(h, quick, closes)
	n, stop, ended := start(t, cfg, h)
	t.Cleanup(func() { close(goOn) })
	until(t, "the node delivers the callback too", func() bool {
		r, running := n.Report()
		return running && len(r.Types) == 3
	})
	hangs.Store(true)
	receive(t, hung, "a reading of the secrets")
	for i := range uint64(12) { // one after another: more outcomes than a server has settlers
		add(t, p, orderClose.New(i+1, order{i}, tocsin.In(0)))
		receive(t, buried, "a delivery")
	}
	await(t, p, add(t, p, quick.New(1, order{1}, tocsin.In(0))), "an outcome of another biz type", withStatus(tocsin.Done))
	if r, running := n.Report(); !running || len(r.Types) != 3 {
		t.Errorf("running is %t, and it delivers %v", running, r.Types)
	}
	if _, err := biztype.SetPaused(t.Context(), p.cfg, quick.Name(), true); err != nil {
		t.Fatal(err)
	}
	until(t, "a change of the policies is used", func() bool {
		r, _ := n.Report()
		return slices.ContainsFunc(r.Lanes, func(l dispatcher.LaneReport) bool { return l.BizType == quick.Name() && l.State == dispatcher.Paused })
	})
	stop()
	if err := receive(t, ended, "the end of the node"); err != nil {
		t.Error(err)
	}
}

// What a sweep may read of the secrets, it has read at its beginning: a directory that hangs keeps no sweep beyond its time.
func TestASweepReadsNoSecretsAtItsEnd(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy(), biztype.Policy{Name: "coupon.remind", Number: 3, Group: "orders", Webhook: &biztype.Webhook{URL: "http://127.0.0.1:1/", Secrets: []string{"A"}}})
	add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
	const before = 3 // for the first policies, for those that the watcher reads, and for the sweep
	var read atomic.Int32
	cfg := p.sweepConfig()
	cfg.Getenv = func(name string) string {
		if name != "A" {
			return ""
		}
		read.Add(1)
		return callbackSecret
	}
	result, err := newSweeper(t, cfg, closing(func(ctx context.Context, _ *tocsin.Task[order]) error {
		for read.Load() < before && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return ctx.Err()
	})).Sweep(t.Context())
	if err != nil || result.Delivered != 1 || read.Load() != before {
		t.Errorf("%s, %v; the secret was read %d times, want %d", result, err, read.Load(), before)
	}
}
