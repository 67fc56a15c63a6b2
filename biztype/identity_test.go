package biztype_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// A database of another cluster with the same id has policies of its own, here newer ones.
func TestTheWatcherTakesNoPolicyFromADatabaseOfAnotherIdentity(t *testing.T) {
	t.Parallel()
	for _, foreign := range []int{0, 2} { // polled first, and last
		t.Run(fmt.Sprint(foreign), func(t *testing.T) {
			t.Parallel()
			cfg := tocsin.Config{
				Layout:  tocsin.Layout{Databases: 3, Tables: 1, Prefix: devtest.Prefix(t)},
				Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
			}
			if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
				t.Fatal(err)
			}
			apply(t, cfg, closeOrder)
			execute(t, cfg, "UPDATE "+cfg.Layout.Database(foreign)+".layout SET identity = 'other'")
			execute(t, cfg, "UPDATE "+cfg.Layout.Database(foreign)+`.biz_type SET policy = JSON_SET(policy, '$.paused', TRUE), revision = 9`)
			seen, stop := watch(t, cfg)
			defer stop()
			for step := range 2 {
				got := <-seen
				if len(got) != step+1 || got[0].Paused {
					t.Errorf("step %d: published %+v", step, got)
				}
				if step > 0 {
					break
				}
				if res, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{closeOrder, remind}); !errors.Is(err, tocsin.ErrLayout) || res.Databases != 2 {
					t.Errorf("%+v, %v", res, err)
				}
			}
		})
	}
}
