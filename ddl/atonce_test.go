package ddl

import (
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// Programs that make the same cluster, or the same outbox, at once all succeed and agree.
func TestTheSameTablesFromManyAtOnce(t *testing.T) {
	t.Parallel()
	cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 2, Tables: 2, Prefix: devtest.Prefix(t)}, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}}
	results, errs := devtest.AtOnce(8, func(int) (Result, error) { return Apply(t.Context(), cfg, Options{}) })
	for i, err := range errs {
		if err != nil || results[i].Cluster != results[0].Cluster || results[i].Identity != results[0].Identity || results[i].Cluster == "" {
			t.Errorf("%+v, %v", results[i], err)
		}
	}
	of := Outbox{DSN: devtest.DSN(t), Table: cfg.Layout.Database(0) + ".shop_outbox"}
	_, errs = devtest.AtOnce(8, func(int) (bool, error) { return ApplyOutbox(t.Context(), of) })
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if findings, err := VerifyOutbox(t.Context(), of); err != nil || len(findings) > 0 {
		t.Error(findings, err)
	}
}
