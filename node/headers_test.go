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

func TestHandlersAndMiddlewareGetHeadersAndKey(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	seen := make(chan tocsin.Info, 10)
	var h node.Handlers
	h.Use(func(next node.HandlerFunc) node.HandlerFunc {
		return func(ctx context.Context, tasks []tocsin.Info) []error {
			for _, task := range tasks {
				seen <- task
			}
			return next(ctx, tasks)
		}
	})
	node.HandleBatch(&h, orderClose, 50, func(ctx context.Context, tasks []*tocsin.Task[order]) []error {
		for _, task := range tasks {
			seen <- task.Info
		}
		return nil
	})
	run(t, p.config("orders"), &h)
	for name, when := range map[string]tocsin.When{"due now": tocsin.In(0), "held until it is due": tocsin.In(500 * time.Millisecond)} {
		add(t, p, orderClose.NewKey("ord_1", order{7}, when).Header("tenant", name))
		for range 2 {
			if got := receive(t, seen, "the delivery"); got.BizKey != "ord_1" || got.Header("tenant") != name || got.BizID != tocsin.KeyID("ord_1") {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

func TestHeadersThatAreNoObjectAreAFailedAttempt(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Ladder = []biztype.Duration{biztype.Duration(100 * time.Millisecond)}
	p := newPlace(t, policy)
	id := add(t, p, orderClose.New(7, order{7}, tocsin.In(time.Hour)))
	db := openDB(t, devtest.DSN(t))
	table := p.cfg.Layout.Table(id.Table())
	set := func(columns string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "UPDATE "+table+" SET "+columns+" WHERE job_id = ?", uint64(id)); err != nil {
			t.Fatal(err)
		}
	}
	set("headers = '{\"tenant\": 7}'")
	var h node.Handlers
	handled := make(chan string, 1)
	node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error { handled <- task.Header("tenant"); return nil })
	run(t, p.config("orders"), &h)
	if _, err := p.client.Reschedule(t.Context(), tocsin.ByID(id), tocsin.In(0)); err != nil {
		t.Fatal(err)
	}
	info := await(t, p, id, "a failed attempt", func(i tocsin.Info) bool { return i.Attempts >= 1 })
	if !strings.Contains(info.LastError, "headers are not a JSON object of texts") {
		t.Errorf("last error %q", info.LastError)
	}
	set("headers = '{\"tenant\": \"7\"}'")
	if got := receive(t, handled, "the delivery of the mended row"); got != "7" {
		t.Errorf("tenant %q", got)
	}
}
