package ddl

import (
	"testing"
	"time"

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
	created, errs := devtest.AtOnce(8, func(int) (bool, error) { return ApplyOutbox(t.Context(), of) })
	made := 0
	for i, err := range errs {
		if err != nil {
			t.Error(err)
		}
		if created[i] {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d say that they made the outbox", made)
	}
	if findings, err := VerifyOutbox(t.Context(), of); err != nil || len(findings) > 0 {
		t.Error(findings, err)
	}
}

// Programs that upgrade the same cluster at once all succeed, and one makes each change.
func TestTheSameUpgradeFromManyAtOnce(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	applied, errs := devtest.AtOnce(6, func(int) (Result, error) { return Apply(t.Context(), cfg, Options{}) })
	altering := 0
	for i, err := range errs {
		if err != nil {
			t.Error(err)
		}
		if applied[i].Altered > 0 {
			altering++
		}
	}
	if altering != 1 {
		t.Errorf("%d say that they altered tables", altering)
	}
	for what, change := range map[string]func(int) (int, error){
		"finish": func(int) (int, error) {
			done, err := Finish(t.Context(), cfg)
			return done.Databases, err
		},
		"grace": func(int) (int, error) { return SetSweepGrace(t.Context(), cfg, 7*time.Minute, true) },
	} {
		changed, errs := devtest.AtOnce(6, change)
		all := 0
		for i, err := range errs {
			if all += changed[i]; err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if all != cfg.Layout.Databases {
			t.Errorf("%s: %d databases are changed", what, all)
		}
	}
}
