package ddl

import (
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestAPlanOfAMigrationGivesWhatApplyGives(t *testing.T) {
	t.Parallel()
	applied, planned := version2(t), version2(t)
	applied(t, applied, Options{Identity: "i1"})
	plans, err := PlanMigration(t.Context(), planned, Options{Identity: "i1"})
	if err != nil || len(plans) != 1 {
		t.Fatal(plans, err)
	}
	wantSaid(t, versions(t, planned), "2/2", "2/2")
	if strings.Contains(plans[0].Text, "NOWAIT") { // a client stops where the server itself uses a table for a moment
		t.Error("the plan fails where it should wait")
	}
	run(t, planned, plans)
	if got, want := shapes(t, planned), shapes(t, applied); !slices.Equal(got, want) {
		t.Errorf("planned:\n%s\n\napplied:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	wantSaid(t, versions(t, planned), "3/2", "3/2")
	for _, cfg := range []tocsin.Config{applied, planned} {
		plans, err := PlanMigration(t.Context(), cfg, Options{})
		if err != nil || strings.Contains(plans[0].Text, "ALTER /*") || !strings.Contains(plans[0].Text, "-- Nothing: all its databases are of that version.") {
			t.Errorf("a plan when all is done: %v, %v", plans, err)
		}
	}
}

// On MariaDB a file may be run again as it is. On MySQL its errors say what is done, and --force goes on.
func TestAPlanOfAMigrationGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	plans := must(PlanMigration(t.Context(), cfg, Options{}))
	path := must(WritePlan(t.TempDir(), plans))[0]
	release := hold(t, cfg, cfg.Layout.Database(1)+".task_0002")
	out, err := runClient(t, cfg.Servers[0].DSN, path)
	if err == nil || !strings.Contains(out, "ERROR 1205") {
		t.Errorf("while a table is held: %v, %s", err, out)
	}
	wantSaid(t, versions(t, cfg), "3/2", "2/2")
	release()
	var force []string
	if devtest.IsMySQL(t) {
		out, err := runClient(t, cfg.Servers[0].DSN, path)
		if err == nil || !strings.Contains(out, "ERROR 1060") || !strings.Contains(out, "Duplicate column name 'sweep_grace_ms'") {
			t.Errorf("again: %v, %s", err, out)
		}
		force = []string{"--force"}
	}
	if out, err := runClient(t, cfg.Servers[0].DSN, path, force...); err != nil && !devtest.IsMySQL(t) {
		t.Errorf("when it is free: %v, %s", err, out)
	}
	wantSaid(t, versions(t, cfg), "3/2", "3/2")
}

func TestAPlanOfAMigrationMakesWhatIsMissing(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	execute(t, cfg, "DROP DATABASE $1")
	run(t, cfg, must(PlanMigration(t.Context(), cfg, Options{})))
	wantSaid(t, versions(t, cfg), "3/2", "3/2") // a new database takes the old programs of the others
	verified(t, cfg, "warning: ")
}
