package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// tocsintest behaves the same: see TestDeliverRetriesAPayloadThatDoesNotDecode.
func TestAPayloadThatDoesNotDecodeWaitsForAProgramThatReadsIt(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Ladder = []biztype.Duration{biztype.Duration(100 * time.Millisecond)}
	p := newPlace(t, policy)
	newer := tocsin.Define[[]order](orderClose.Name())
	id := add(t, p, newer.New(7, []order{{7}}, tocsin.In(0)))
	var old node.Handlers
	node.Handle(&old, orderClose, func(context.Context, *tocsin.Task[order]) error {
		t.Error("a payload that does not decode has reached the handler")
		return nil
	})
	logged, cfg := make(lines, 1000), p.config("orders")
	cfg.Logger = devtest.NewLogger(logged)
	_, stop := run(t, cfg, &old)
	info := await(t, p, id, "a failed attempt", func(i tocsin.Info) bool { return i.Attempts >= 2 })
	if info.Status.Final() || !strings.Contains(info.LastError, "is not a node_test.order") {
		t.Errorf("%s, last error %q; want pending, and why", info.Status, info.LastError)
	}
	stop()
	said := 0
	for close(logged); len(logged) > 0; {
		if line := <-logged; strings.Contains(line, "is not a node_test.order") && strings.Contains(line, `"biz_type":"order.close"`) {
			said++
		}
	}
	if said != 1 {
		t.Errorf("the log names the payload in %d lines, want 1 in a minute", said)
	}
	var updated node.Handlers
	node.Handle(&updated, newer, func(context.Context, *tocsin.Task[[]order]) error { return nil })
	run(t, p.config("orders"), &updated)
	await(t, p, id, "the delivery by the program that can read it", withStatus(tocsin.Done))
}
