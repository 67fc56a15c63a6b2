package node

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

func TestACallbackWithoutItsSecretIsLoggedOnceUntilThatChanges(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	secret := ""
	set := newTargets(Config{Logger: zerolog.New(&log), Getenv: func(string) string { return secret }}, nil, func(biztype.Policy) bool { return true })
	defer set.close()
	p := biztype.Policy{Name: "coupon.remind", Number: 2, Webhook: &biztype.Webhook{URL: "http://127.0.0.1:1/", Secrets: []string{"A_SECRET"}}}
	ask := func() bool { _, ok := set.of(p); return ok }
	for range 3 {
		if ask() {
			t.Fatal("it can be delivered without its secret")
		}
	}
	if n := strings.Count(log.String(), "A_SECRET"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, &log)
	}
	secret = "whsec_dG9jc2luLWRldi1zZWNyZXQtbm90LXNlY3JldA=="
	if !ask() {
		t.Error("it can't be delivered with its secret")
	}
}

func TestAHandlerThatGetsNoTaskIsSaidSo(t *testing.T) {
	t.Parallel()
	applied := []biztype.Policy{{Name: "order.close", Group: "orders"}}
	for name, c := range map[string]struct{ handles, group, says string }{
		"of its own group":      {"order.close", "orders", ""},
		"of another group":      {"order.close", "shop", `"group_of_type":"orders"`},
		"of a type not applied": {"order.open", "orders", "biz apply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			var h Handlers
			Handle(&h, tocsin.Define[string](c.handles), func(context.Context, *tocsin.Task[string]) error { return nil })
			warnMisplaced(zerolog.New(&log), c.group, &h, applied)
			if got := log.String(); !strings.Contains(got, c.says) || (got == "") != (c.says == "") {
				t.Errorf("logged %q, want %q", got, c.says)
			}
		})
	}
}
