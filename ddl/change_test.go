package ddl

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

func ownerships(t *testing.T, cfg tocsin.Config) []string {
	t.Helper()
	return said(t, cfg, func(r layoutRow) string { return r.Ownership })
}

func graces(t *testing.T, cfg tocsin.Config) []string {
	t.Helper()
	return said(t, cfg, func(r layoutRow) string { return millis(r.GraceMS).String() })
}

func TestApplyWritesOwnershipAndGraceAndRefusesOthers(t *testing.T) {
	t.Parallel()
	cfg, usual := config(t, 2, 1), config(t, 1, 1)
	applied(t, cfg, Options{Ownership: ByRows, SweepGrace: 20 * time.Second})
	wantSaid(t, ownerships(t, cfg), ByRows, ByRows)
	wantSaid(t, graces(t, cfg), "20s", "20s")
	applied(t, cfg, Options{}) // names neither
	for _, c := range []struct {
		opt  Options
		want []string // in the message
	}{
		{Options{Ownership: ByEtcd}, []string{`ownership of the config is "etcd"`, "tocsin ddl ownership etcd"}},
		{Options{Ownership: "both"}, []string{`ownership "both": use`}},
		{Options{SweepGrace: time.Minute}, []string{"sweep.grace of the config is 1m0s", "is 20s", "tocsin ddl grace 1m0s"}},
		{Options{SweepGrace: -time.Second}, nil},
		{Options{SweepGrace: time.Millisecond}, nil},
		{Options{SweepGrace: 1500 * time.Microsecond}, nil},
		{Options{SweepGrace: 25 * time.Hour}, nil},
	} {
		_, err := Apply(t.Context(), cfg, c.opt)
		if err == nil {
			t.Errorf("%+v was taken", c.opt)
		}
		for _, want := range c.want {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%+v: %v, want %s", c.opt, err, want)
			}
		}
	}
	verified(t, cfg)
	applied(t, usual, Options{})
	wantSaid(t, ownerships(t, usual), ByEtcd)
	wantSaid(t, graces(t, usual), "1m0s")
}

// Databases of version 3 may be older than the column.
func TestApplyGivesOlderDatabasesTheGraceOfTheConfig(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	applied(t, cfg, Options{})
	for db := range 2 {
		execute(t, cfg, fmt.Sprintf("ALTER TABLE $%d.layout DROP COLUMN sweep_grace_ms", db))
	}
	wantSaid(t, graces(t, cfg), "0s", "0s")
	findings, err := Verify(t.Context(), cfg)
	if err != nil || !strings.Contains(fmt.Sprint(findings), "column sweep_grace_ms is missing") {
		t.Errorf("verify: %v, %v", findings, err)
	}
	opt := Options{SweepGrace: 90 * time.Second}
	plans, err := PlanMigration(t.Context(), cfg, opt)
	if err != nil || strings.Count(plans[0].Text, "SET sweep_grace_ms = 90000") != 2 {
		t.Errorf("plan: %v\n%v", err, plans)
	}
	if res := applied(t, cfg, opt); res.Altered != 2 {
		t.Errorf("%+v", res)
	}
	wantSaid(t, graces(t, cfg), "1m30s", "1m30s")

	// A program that does not know the column makes a row without a grace; an Apply may end before it writes one.
	execute(t, cfg, "UPDATE $1.layout SET sweep_grace_ms = 0")
	verified(t, cfg, "has no grace of sweeps yet")
	if _, err := SetSweepGrace(t.Context(), cfg, time.Minute, false); err == nil || !strings.Contains(err.Error(), "tocsin ddl apply") {
		t.Errorf("a change before it is written: %v", err)
	}
	applied(t, cfg, Options{})
	wantSaid(t, graces(t, cfg), "1m30s", "1m30s")
}

// setOwnership is SetOwnership with the number of databases it changed.
func setOwnership(to string) func(context.Context, tocsin.Config, bool) (int, error) {
	return func(ctx context.Context, cfg tocsin.Config, force bool) (int, error) {
		done, err := SetOwnership(ctx, cfg, to, force)
		return done.Databases, err
	}
}

func setGrace(to time.Duration) func(context.Context, tocsin.Config, bool) (int, error) {
	return func(ctx context.Context, cfg tocsin.Config, force bool) (int, error) {
		return SetSweepGrace(ctx, cfg, to, force)
	}
}

func TestOwnershipAndGraceChangeWhenNoNodeLives(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set    func(context.Context, tocsin.Config, bool) (int, error) // to another value than the present one
		back   func(context.Context, tocsin.Config, bool) (int, error)
		half   string // what one row says where a change has stopped half-way
		differ string // what Verify says of that
		says   func(*testing.T, tocsin.Config) []string
		value  string // that set has written
	}{
		"ownership": {setOwnership(ByRows), setOwnership(ByEtcd), "ownership = 'etcd'", `has ownership "etcd", those before it "rows"`, ownerships, ByRows},
		"grace":     {setGrace(20 * time.Second), setGrace(time.Minute), "sweep_grace_ms = 60000", "has the grace of sweeps 1m0s, those before it 20s", graces, "20s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, 2, 1)
			applied(t, cfg, Options{})
			changes := func(when string, set func(context.Context, tocsin.Config, bool) (int, error), force bool, want int) {
				t.Helper()
				if n, err := set(t.Context(), cfg, force); err != nil || n != want {
					t.Errorf("%s: %d changed, %v, want %d", when, n, err, want)
				}
			}
			changes("to what it is", c.back, false, 0)
			changes("to another value", c.set, false, 2)
			changes("once more", c.set, false, 0)
			execute(t, cfg, "UPDATE $1.layout SET "+c.half)
			verified(t, cfg, c.differ)
			changes("run again", c.set, false, 1)
			const alive = "REPLACE INTO $1.session (id, group_name, node, incarnation, beat, seat, draining, unable, about_no, gmt_create, gmt_modified) VALUES " +
				"('aaaaaaaaaaaa', 'g', 'node-1', 'bbbbbbbbbbbb', 0, 1, 0, 0, 1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))"
			execute(t, cfg, alive)
			if _, err := c.back(t.Context(), cfg, false); err == nil || !strings.Contains(err.Error(), "node node-1 beat in") {
				t.Errorf("beside a live node: %v", err)
			}
			wantSaid(t, c.says(t, cfg), c.value, c.value)
			execute(t, cfg, "UPDATE $1.session SET gmt_modified = UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE")
			changes("after a node that was killed", c.back, false, 2)
			execute(t, cfg, alive)
			changes("forced", c.set, true, 2)
		})
	}
	if _, err := SetSweepGrace(t.Context(), config(t, 1, 1), 0, false); err == nil {
		t.Error("no grace was taken")
	}
}

// Programs that this one does not work beside may not know of ownership.
func TestTheOwnershipStaysWhileOlderProgramsMayWork(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	applied(t, cfg, Options{})
	execute(t, cfg, "UPDATE $1.layout SET works_with = 1")
	if _, err := SetOwnership(t.Context(), cfg, ByRows, true); err == nil || !strings.Contains(err.Error(), "tocsin ddl finish") {
		t.Errorf("%v", err)
	}
	wantSaid(t, ownerships(t, cfg), ByEtcd, ByEtcd)
}
