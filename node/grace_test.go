package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
)

// differs wants an error that names both graces and the command.
func differs(t *testing.T, who string, err error, mine, theirs string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s with a grace of %s beside %s was not refused", who, mine, theirs)
		return
	}
	for _, part := range []string{"grace of sweeps of this process is " + mine, "is " + theirs, "tocsin ddl grace " + mine} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: the error lacks %q: %v", who, part, err)
		}
	}
}

func TestNodesAndSweepersWithAnotherGraceAreRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	var h node.Handlers
	node.Handle(&h, orderClose, func(context.Context, *tocsin.Task[order]) error { return nil })
	sweep := func(grace time.Duration) error {
		cfg := p.sweepConfig()
		cfg.SweepGrace = grace
		s, err := node.NewSweeper(cfg, &h)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Sweep(t.Context())
		return err
	}
	serve := func(grace time.Duration) error {
		cfg := p.config("orders")
		cfg.SweepGrace = grace
		n, err := node.New(cfg, &h)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithTimeout(t.Context(), patience)
		defer end()
		return n.Run(ctx)
	}
	run(t, p.config("orders"), &h)
	differs(t, "a sweeper", sweep(20*time.Second), "20s", "1m0s")
	differs(t, "a sweeper", sweep(2*time.Minute), "2m0s", "1m0s")
	differs(t, "a node", serve(90*time.Second), "1m30s", "1m0s")
	for _, grace := range []time.Duration{0, time.Minute, node.NoGrace} {
		if err := sweep(grace); err != nil {
			t.Errorf("grace %s: %v", grace, err)
		}
	}

	// Databases of an older program hold none.
	for database := range 2 {
		if _, err := openDB(t, p.cfg.Servers[0].DSN).Exec("ALTER TABLE " + p.cfg.Layout.Database(database) + ".layout DROP COLUMN sweep_grace_ms"); err != nil {
			t.Fatal(err)
		}
	}
	if err := sweep(20 * time.Second); err != nil {
		t.Errorf("in databases without a grace: %v", err)
	}
}
