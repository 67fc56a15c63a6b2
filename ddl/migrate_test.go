package ddl

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// changesOf2 is how many changes tables of version 2 need: of the layout and of four task tables, in two databases.
const changesOf2 = 2 * (1 + 4)

// version2 is a cluster as a program for schema version 2 left it, with a row in each task table.
func version2(t *testing.T) tocsin.Config {
	t.Helper()
	cfg := config(t, 2, 4)
	devtest.Version2(t, cfg.Servers[0].DSN, cfg.Layout.Prefix, 2, 4)
	cfg.Cluster = cfg.Layout.Prefix
	for table := range cfg.Layout.Total() {
		execute(t, cfg, "INSERT INTO "+cfg.Layout.Table(table)+` (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
			VALUES (1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 7, 1, 0, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 'as it was')`)
	}
	return cfg
}

// hold opens a transaction that uses a table, until it is released.
func hold(t *testing.T, cfg tocsin.Config, table string) (release func()) {
	t.Helper()
	tx := must(pool(t, cfg).Begin())
	release = func() { _ = tx.Rollback() }
	t.Cleanup(release)
	var rows int
	if err := tx.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return release
}

// shapes describes every table of a cluster, with its columns in order. Their comments are for people.
func shapes(t *testing.T, cfg tocsin.Config) (all []string) {
	t.Helper()
	sites := must(openSites(cfg, 1))
	defer closeSites(sites)
	for db := range cfg.Layout.Databases {
		found := must(sites[0].inspect(t.Context(), cfg.Layout.Database(db)))
		for _, name := range slices.Sorted(maps.Keys(found)) {
			s := found[name]
			if s.has("claimed_by") { // it keeps its type
				s.columns["claimed_by"] = formerClaimer
			}
			all = append(all, fmt.Sprint(name, s.engine, s.collation, s.still, s.columns, s.indexes))
			var order string
			if err := sites[0].DB.Get(&order, `SELECT GROUP_CONCAT(column_name ORDER BY ordinal_position) FROM information_schema.columns
				WHERE table_schema = ? AND table_name = ?`, cfg.Layout.Database(db), name); err != nil {
				t.Fatal(err)
			}
			all = append(all, order)
		}
	}
	return all
}

func TestTablesOfVersion2BecomeWhatApplyMakes(t *testing.T) {
	t.Parallel()
	cfg, fresh := version2(t), config(t, 2, 4)
	var done, total int
	res := applied(t, cfg, Options{Migrated: func(d, n int) { done, total = d, n }})
	want := Result{Cluster: cfg.Cluster, Identity: res.Identity, Tables: 10, Existing: 20, Altered: changesOf2, From: 2, WorksWith: 2}
	if res != want {
		t.Fatalf("%+v, want %+v", res, want)
	}
	if done != changesOf2 || total != changesOf2 {
		t.Errorf("progress ended at %d of %d", done, total)
	}
	applied(t, fresh, Options{})
	if got, want := shapes(t, cfg), shapes(t, fresh); !slices.Equal(got, want) {
		t.Errorf("migrated:\n%s\n\nnew:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	db := pool(t, cfg)
	for table := range cfg.Layout.Total() {
		var rows int
		query := "SELECT COUNT(*) FROM " + cfg.Layout.Table(table) + " WHERE job_id = 1 AND attribute = 'as it was' AND headers IS NULL AND biz_key = ''"
		if err := db.QueryRow(query).Scan(&rows); err != nil || rows != 1 {
			t.Errorf("table %d: %d rows, %v", table, rows, err)
		}
	}
	wantSaid(t, versions(t, cfg), "3/2", "3/2")
	if again, want := applied(t, cfg, Options{}), (Result{Cluster: cfg.Cluster, Identity: res.Identity, Existing: 30, From: 3, WorksWith: 2}); again != want {
		t.Errorf("again: %+v, want %+v", again, want)
	}
}

func TestVerifyNamesBothVersionsAndTheCommandThatHelps(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	name := cfg.Layout.Database(0)
	says := func(when string, want ...string) {
		t.Helper()
		findings, err := Verify(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range findings {
			if !strings.Contains(f.Detail, "identity") {
				got = append(got, f.String())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got  %q\nwant %q", when, got, want)
		}
	}
	of := func(db, tables int) string {
		return fmt.Sprintf("server db1: %s has schema version 2, this program is for 3, which %d of 15 tables have: run `tocsin ddl apply`", cfg.Layout.Database(db), tables)
	}
	says("not migrated", of(0, 5), of(1, 5)) // biz_type, owner, doorbell, relayed, node and mark stay as they are
	execute(t, cfg, "ALTER TABLE $1.task_0002 STATS_AUTO_RECALC = 0")
	says("begun", of(0, 5), of(1, 6))
	execute(t, cfg, "ALTER TABLE $0.task_0001 DROP COLUMN due_time")
	says("damaged", "server db1: "+name+".task_0001, column due_time is missing", of(0, 5), of(1, 6))
	execute(t, cfg, "ALTER TABLE $0.task_0001 ADD COLUMN due_time DATETIME(3) NOT NULL AFTER action_time")
	applied(t, cfg, Options{})
	says("migrated", "warning: server db1: "+name+".layout has schema version 3 and works with programs for 2 or newer, "+
		"as 1 more databases do: when all programs are for version 3, run `tocsin ddl finish`")
	execute(t, cfg, "ALTER TABLE $1.task_0001 DROP COLUMN headers")
	if _, err := Finish(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "schema version 3: server db1: "+cfg.Layout.Database(1)+".task_0001, column headers is missing") {
		t.Errorf("finish of damaged tables: %v", err)
	}
	applied(t, cfg, Options{}) // what a restored table lacks is added, whatever the layout row says
	for _, want := range []Finished{{3, 2, 2}, {3, 3, 0}} {
		if done, err := Finish(t.Context(), cfg); err != nil || done != want {
			t.Errorf("finish: %+v, %v, want %+v", done, err, want)
		}
	}
	says("finished")
	wantSaid(t, versions(t, cfg), "3/3", "3/3")
}

func TestFinishRefusesTablesOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	_, err := Finish(t.Context(), cfg)
	want := cfg.Layout.Database(0) + " has schema version 2, this program is for 3, which 5 of 15 tables have: run `tocsin ddl apply`"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	wantSaid(t, versions(t, cfg), "2/2", "2/2")
}

func TestANewerSchemaIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	applied(t, cfg, Options{})
	execute(t, cfg, "UPDATE $1.layout SET schema_version = 4")
	execute(t, cfg, "DROP TABLE $0.owner")
	place := cfg.Layout.Database(1)
	want := " has schema version 4, this program is for 3: use the tocsin that migrated it, or a newer one"
	if _, err := Apply(t.Context(), cfg, Options{}); err == nil || err.Error() != place+" on server db1"+want {
		t.Errorf("apply: %v", err)
	}
	if _, err := PlanMigration(t.Context(), cfg, Options{}); err == nil || err.Error() != place+" on server db1"+want {
		t.Errorf("plan: %v", err)
	}
	findings, err := Verify(t.Context(), cfg)
	if err != nil || len(findings) != 2 || findings[1].String() != "server db1: "+place+".layout differs: "+place+want {
		t.Errorf("verify: %v, %v", findings, err)
	}
}

func TestAProgramWorksWithTablesOfVersion2(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	for db := range 2 {
		execute(t, cfg, fmt.Sprintf("INSERT INTO $%d.biz_type (number, name, group_name, policy, revision, gmt_modified) VALUES (1, 'order.close', 'orders', '{}', 1, UTC_TIMESTAMP(3))", db))
	}
	client, err := tocsin.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for bizID := uint64(1); bizID <= 20; bizID++ {
		added, err := client.Add(t.Context(), orderClose.New(bizID, "x", tocsin.In(time.Second)).Dedup("once").Header("a", "b"))
		if err != nil {
			t.Fatal(err)
		}
		if info, err := client.Get(t.Context(), added.JobID); err != nil || info.BizID != bizID || info.Header("a") != "b" {
			t.Errorf("%+v, %v", info, err)
		}
		if change, err := client.Cancel(t.Context(), orderClose.Of(bizID)); err != nil || change.Changed == 0 {
			t.Errorf("%+v, %v", change, err)
		}
	}
}

// Tables of version 1, and those of version 2 that programs for version 1 may use, are refused by everybody, in words that name
// the way.
func TestTablesOfVersion1NeedTheVersionBetween(t *testing.T) {
	t.Parallel()
	const way = " has schema version 1, this program works with 2 and 3: first upgrade it with a tocsin for version 2, by its `tocsin ddl apply` and `tocsin ddl finish`"
	for name, c := range map[string]struct {
		older  []string // of database 0, and of 1 after a half
		want   string
		verify bool // finds it too
	}{
		"never upgraded":   {[]string{"ALTER TABLE $.layout DROP COLUMN identity, DROP COLUMN ownership, DROP COLUMN mark", "UPDATE $.layout SET schema_version = 1, works_with = 1"}, way, true},
		"half upgraded":    {[]string{"UPDATE $.layout SET schema_version = 1, works_with = 1"}, way, true},
		"upgraded, no end": {[]string{"UPDATE $.layout SET works_with = 1"}, " works with programs for schema version 1, this program works beside programs for 2 or newer: first finish that upgrade, by `tocsin ddl finish` of a tocsin for the version of the tables", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := version2(t)
			for db := range 2 {
				for _, query := range c.older {
					execute(t, cfg, strings.Replace(query, "$", fmt.Sprintf("$%d", db), 1))
				}
			}
			refused := func(who string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), cfg.Layout.Prefix+"_") || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got  %v\nwant %s", who, err, c.want)
				}
			}
			_, err := Apply(t.Context(), cfg, Options{})
			refused("apply", err)
			_, err = PlanMigration(t.Context(), cfg, Options{})
			refused("plan", err)
			_, err = SetOwnership(t.Context(), cfg, ByRows, true)
			refused("ownership", err)
			_, err = tocsin.Open(t.Context(), cfg)
			refused("client", err)
			if !errors.Is(err, tocsin.ErrLayout) {
				t.Errorf("client: %v is no ErrLayout", err)
			}
			findings, err := Verify(t.Context(), cfg)
			if err != nil || len(findings) == 0 || c.verify != strings.Contains(fmt.Sprint(findings), c.want) {
				t.Errorf("verify: %v, %v", findings, err)
			}
		})
	}
}

func TestALayoutRowIsNotOfAVersionWhoseTablesAreMissing(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	execute(t, cfg, raise(cfg.Layout, 0))
	wantSaid(t, versions(t, cfg), "2/2", "2/2")
	applied(t, cfg, Options{})
	for _, lacks := range []string{"ALTER TABLE $0.task_0003 DROP COLUMN biz_key", "ALTER TABLE $0.layout DROP COLUMN sweep_grace_ms", "DROP TABLE $0.relayed", "DROP TABLE $0.schedule"} {
		execute(t, cfg, lacks)
		execute(t, cfg, "UPDATE $0.layout SET schema_version = 2")
		execute(t, cfg, raise(cfg.Layout, 0))
		wantSaid(t, versions(t, cfg), "2/2", "3/2")
		if res := applied(t, cfg, Options{}); res.From != 2 {
			t.Errorf("apply after %s: %+v", lacks, res)
		}
	}
}

func TestTheWayToEachVersionIsWhole(t *testing.T) {
	t.Parallel()
	known := map[int]bool{1: true}
	for _, a := range additions {
		known[a.version] = true
		want := expected(a.file)
		lines := statement(a.file)
		for _, name := range later(a.file, 0) {
			at := strings.Index(lines, "\n    "+name+" ")
			if want.texts[name] == "" || at < 0 {
				t.Fatalf("%s has no column %s", a.file, name)
			}
			lines = lines[at:] // each stands behind the one before
		}
		if last := strings.Count(lines[:strings.Index(lines, "PRIMARY KEY")], "\n    "); len(a.columns) > 0 && last != 2 {
			t.Errorf("%s: the columns that were added are not the last ones", a.file)
		}
	}
	if len(known) != layoutrow.SchemaVersion {
		t.Errorf("the way leads to versions %v, want all up to %d", known, layoutrow.SchemaVersion)
	}
}

func TestStatisticsAreSetApartFromColumns(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	execute(t, cfg, "ALTER TABLE $0.task_0001 DROP COLUMN biz_key")
	execute(t, cfg, "ALTER TABLE $1.doorbell STATS_AUTO_RECALC = 1")
	if res := applied(t, cfg, Options{}); res.Altered != changesOf2+2 {
		t.Errorf("%+v", res)
	}
	for _, f := range must(Verify(t.Context(), cfg)) {
		if strings.Contains(f.Detail, "statistics") {
			t.Error(f)
		}
	}
	execute(t, cfg, "ALTER TABLE $0.task_0001 STATS_AUTO_RECALC = DEFAULT")
	if res := applied(t, cfg, Options{}); res.Altered != 1 {
		t.Errorf("of the newest version: %+v", res)
	}
}
