package ddl

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// version2 is a cluster as a program for schema version 2 left it, with a row in each task table: version 3 adds tables and a column of layout.
func version2(t *testing.T) tocsin.Config {
	t.Helper()
	cfg := config(t, 2, 4)
	cfg.Cluster = cfg.Layout.Prefix
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	for db := range cfg.Layout.Databases {
		for _, table := range []string{"schedule", "run"} {
			execute(t, cfg, fmt.Sprintf("DROP TABLE $%d.%s", db, table))
		}
		execute(t, cfg, fmt.Sprintf("UPDATE $%d.layout SET schema_version = 2, works_with = 2", db))
		execute(t, cfg, fmt.Sprintf("ALTER TABLE $%d.layout DROP COLUMN sweep_grace_ms", db))
	}
	for table := range cfg.Layout.Total() {
		execute(t, cfg, "INSERT INTO "+cfg.Layout.Table(table)+` (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
			VALUES (1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 7, 1, 0, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 'as it was')`)
	}
	return cfg
}

// Rows of the tables that came with version 3.
const (
	insertSchedule = `INSERT INTO $.schedule (schedule_id, gmt_create, gmt_modified, name, table_no, biz_type, biz_id, cron, zone,
    start_within_ms, missed, missed_most, overlap, state, revision, anchor, made_until, attribute)
VALUES (1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 'report', 4, 1, 7, '0 4 * * *', 'UTC', 1000, 'once', 100, 'allow', 'active', 1,
    UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '')`

	insertRun = `INSERT INTO $.run (job_id, schedule_id, biz_type, version, attempt, node, started, lateness_ms, duration_ms, outcome)
VALUES (1, 1, 1, 0, 1, 'n', UTC_TIMESTAMP(3), 5, 7, 'completed')`
)

func TestTablesOfVersion2BecomeWhatApplyMakes(t *testing.T) {
	t.Parallel()
	cfg, fresh := version2(t), config(t, 2, 4)
	findings, err := Verify(t.Context(), cfg)
	want := "server db1: " + cfg.Layout.Database(0) + " has schema version 2, this program is for 3, which 10 of 13 tables have: run `tocsin ddl apply`"
	if err != nil || len(findings) != 2 || findings[0].String() != want {
		t.Errorf("verify: %v, %v, want %s", findings, err, want)
	}
	res, err := Apply(t.Context(), cfg, Options{})
	if want := (Result{Cluster: cfg.Cluster, Identity: res.Identity, Tables: 4, Existing: 22, Altered: 2, From: 2, WorksWith: 2}); err != nil || res != want {
		t.Fatalf("%+v, %v, want %+v", res, err, want)
	}
	if _, err := Apply(t.Context(), fresh, Options{}); err != nil {
		t.Fatal(err)
	}
	if got, want := shapes(t, cfg), shapes(t, fresh); !slices.Equal(got, want) {
		t.Errorf("migrated:\n%s\n\nnew:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := versions(t, cfg); !slices.Equal(got, []string{"3/2", "3/2"}) {
		t.Errorf("versions %q", got)
	}
	if done, err := Finish(t.Context(), cfg); err != nil || done != (Finished{3, 2, 2}) {
		t.Errorf("finish: %+v, %v", done, err)
	}
}
