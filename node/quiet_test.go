package node

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

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
			warnMisplaced(devtest.NewLogger(&log), c.group, &h, applied)
			if got := log.String(); !strings.Contains(got, c.says) || (got == "") != (c.says == "") {
				t.Errorf("logged %q, want %q", got, c.says)
			}
		})
	}
}
