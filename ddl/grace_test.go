package ddl

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// gracesOf returns what the layout rows say.
func gracesOf(t *testing.T, cfg tocsin.Config) (all []string) {
	t.Helper()
	sites, err := surveySites(t.Context(), cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSites(sites)
	for _, s := range sites {
		for _, db := range s.Databases {
			all = append(all, millis(s.rows[db].GraceMS).String())
		}
	}
	return all
}

func wantGraces(t *testing.T, cfg tocsin.Config, want ...string) {
	t.Helper()
	if got := gracesOf(t, cfg); !slices.Equal(got, want) {
		t.Errorf("stored graces %q, want %q", got, want)
	}
}

func TestApplyWritesTheGraceOfSweepsAndRefusesAnother(t *testing.T) {
	t.Parallel()
	cfg, usual := config(t, 2, 1), config(t, 1, 1)
	if _, err := Apply(t.Context(), cfg, Options{SweepGrace: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	wantGraces(t, cfg, "20s", "20s")
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Errorf("options without one: %v", err)
	}
	_, err := Apply(t.Context(), cfg, Options{SweepGrace: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "sweep.grace of the config is 1m0s") || !strings.Contains(err.Error(), "is 20s") ||
		!strings.Contains(err.Error(), "tocsin ddl grace 1m0s") {
		t.Errorf("another one: %v", err)
	}
	for _, bad := range []time.Duration{-time.Second, time.Millisecond, 1500 * time.Microsecond, 25 * time.Hour} {
		if _, err := Apply(t.Context(), cfg, Options{SweepGrace: bad}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if _, err := Apply(t.Context(), usual, Options{}); err != nil {
		t.Fatal(err)
	}
	wantGraces(t, usual, "1m0s")
}

// Databases of version 3 may be older than the column.
func TestApplyGivesOlderDatabasesTheGraceOfTheConfig(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	for db := range 2 {
		execute(t, cfg, fmt.Sprintf("ALTER TABLE $%d.layout DROP COLUMN sweep_grace_ms", db))
	}
	wantGraces(t, cfg, "0s", "0s")
	findings, err := Verify(t.Context(), cfg)
	if err != nil || !strings.Contains(fmt.Sprint(findings), "column sweep_grace_ms is missing") {
		t.Errorf("verify: %v, %v", findings, err)
	}
	opt := Options{SweepGrace: 90 * time.Second}
	plans, err := PlanMigration(t.Context(), cfg, opt)
	if err != nil || strings.Count(plans[0].Text, "SET sweep_grace_ms = 90000") != 2 {
		t.Errorf("plan: %v\n%v", err, plans)
	}
	if res, err := Apply(t.Context(), cfg, opt); err != nil || res.Altered != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	wantGraces(t, cfg, "1m30s", "1m30s")

	// A program that does not know the column makes a row without a grace; an Apply may end before it writes one.
	execute(t, cfg, "UPDATE $1.layout SET sweep_grace_ms = 0")
	if findings, err := Verify(t.Context(), cfg); err != nil || len(findings) != 1 || !strings.Contains(findings[0].String(), "has no grace of sweeps yet") {
		t.Errorf("verify: %v, %v", findings, err)
	}
	if _, err := SetSweepGrace(t.Context(), cfg, time.Minute, false); err == nil || !strings.Contains(err.Error(), "tocsin ddl apply") {
		t.Errorf("a change before it is written: %v", err)
	}
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Error(err)
	}
	wantGraces(t, cfg, "1m30s", "1m30s")
}

func TestTheGraceOfSweepsChangesWhenNoNodeLives(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		grace   time.Duration
		changed int
	}{{time.Minute, 0}, {20 * time.Second, 2}, {20 * time.Second, 0}} {
		if n, err := SetSweepGrace(t.Context(), cfg, c.grace, false); err != nil || n != c.changed {
			t.Errorf("to %s: %d changed, %v", c.grace, n, err)
		}
	}
	execute(t, cfg, "UPDATE $1.layout SET sweep_grace_ms = 60000") // a change stopped half-way
	findings, err := Verify(t.Context(), cfg)
	if err != nil || len(findings) != 1 || !strings.Contains(findings[0].String(), "has the grace of sweeps 1m0s, those before it 20s") {
		t.Errorf("verify: %v, %v", findings, err)
	}
	if n, err := SetSweepGrace(t.Context(), cfg, 20*time.Second, false); err != nil || n != 1 {
		t.Errorf("run again: %d changed, %v", n, err)
	}
	if _, err := SetSweepGrace(t.Context(), cfg, 0, false); err == nil {
		t.Error("no grace was taken")
	}
	execute(t, cfg, "INSERT INTO $1.node (group_name, node, seen, gmt_create, schema_version, about) VALUES ('g', 'node-1', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 3, '{}')")
	if _, err := SetSweepGrace(t.Context(), cfg, time.Minute, false); err == nil || !strings.Contains(err.Error(), "node node-1 wrote its row") {
		t.Errorf("beside a live node: %v", err)
	}
	wantGraces(t, cfg, "20s", "20s")
	if n, err := SetSweepGrace(t.Context(), cfg, time.Minute, true); err != nil || n != 2 {
		t.Errorf("forced: %d changed, %v", n, err)
	}
}
