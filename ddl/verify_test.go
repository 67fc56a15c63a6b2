package ddl

import (
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// unmarked is the warning of a database without an identity.
const unmarked = "has no identity, by which nodes tell this cluster from another with the same id: run `tocsin ddl apply`"

// damages says what Verify must find after each; $0 stands for the name of
// database 0.
var damages = map[string]struct {
	damage string
	want   []string // $ as above
}{
	"nothing":        {"DO 0", nil},
	"an index":       {"DROP INDEX idx_due ON $0.task_0001", []string{"$0.task_0001, index idx_due is missing"}},
	"a column":       {"ALTER TABLE $1.task_0000 DROP COLUMN due_time", []string{"$1.task_0000, column due_time is missing"}},
	"a table":        {"DROP TABLE $1.owner", []string{"$1.owner is missing"}},
	"a task table":   {"DROP TABLE $0.task_0001", []string{"$0.task_0001 is missing"}},
	"a database":     {"DROP DATABASE $1", []string{"$1 is missing"}},
	"a layout table": {"DROP TABLE $0.layout", []string{"$0.layout is missing"}},
	"a layout row":   {"DELETE FROM $0.layout", []string{"$0.layout has no row"}},
	"a layout column": {"ALTER TABLE $0.layout DROP COLUMN state",
		[]string{"$0.layout, column state is missing"}},
	"a type": {"ALTER TABLE $0.task_0000 MODIFY biz_id INT NOT NULL",
		[]string{"$0.task_0000, column biz_id is int not null, want bigint unsigned not null"}},
	"nullable": {"ALTER TABLE $0.task_0000 MODIFY due_time DATETIME(3) NULL",
		[]string{"$0.task_0000, column due_time is datetime(3), want datetime(3) not null"}},
	"a default": {"ALTER TABLE $0.task_0000 ALTER attempts SET DEFAULT 3",
		[]string{"$0.task_0000, column attempts is smallint unsigned not null default '3', want smallint unsigned not null default '0'"}},
	"no default": {"ALTER TABLE $0.task_0000 ALTER claimed_by DROP DEFAULT",
		[]string{"$0.task_0000, column claimed_by is char(64) collate ascii_bin not null, want char(64) collate ascii_bin not null default ''"}},
	"auto_increment": {"ALTER TABLE $0.doorbell MODIFY id BIGINT UNSIGNED NOT NULL",
		[]string{"$0.doorbell, column id is bigint unsigned not null, want bigint unsigned not null auto_increment"}},
	"order of an index": {"ALTER TABLE $0.task_0000 DROP INDEX idx_due, ADD KEY idx_due (action_time, status, biz_type)",
		[]string{"$0.task_0000, index idx_due is (action_time,status,biz_type), want (status,action_time,biz_type)"}},
	"an index no longer unique": {"ALTER TABLE $0.task_0000 DROP INDEX uk_biz, ADD KEY uk_biz (biz_id, biz_type, dedup_key)",
		[]string{"$0.task_0000, index uk_biz is (biz_id,biz_type,dedup_key), want unique (biz_id,biz_type,dedup_key)"}},
	"collation": {"ALTER TABLE $0.biz_type COLLATE utf8mb4_general_ci",
		[]string{"$0.biz_type has collation utf8mb4_general_ci, want utf8mb4_bin"}},
	"collation of a column": {"ALTER TABLE $0.task_0001 MODIFY claimed_by VARCHAR(64) CHARACTER SET latin1 NOT NULL DEFAULT ''",
		[]string{"$0.task_0001, column claimed_by is varchar(64) collate latin1_swedish_ci not null default '', want char(64) collate ascii_bin not null default ''"}},
	"engine": {"ALTER TABLE $0.doorbell ENGINE = MyISAM", []string{"$0.doorbell has engine MyISAM, want InnoDB"}},
	"another layout": {"UPDATE $0.layout SET tables_per_database = 1024",
		[]string{"$0.layout differs: layout of the config is 2x2, that of $0 is 2x1024: the layout is fixed for the life of a cluster"}},
	"another number": {"UPDATE $1.layout SET database_no = 0",
		[]string{"$1.layout differs: $1 is number 1 by the config, number 0 by its layout row"}},
	"another cluster": {"UPDATE $1.layout SET cluster_id = 'other'",
		[]string{`$1.layout belongs to cluster "other", those before it to "c1"`}},
	"another identity": {"UPDATE $1.layout SET identity = 'other'",
		[]string{"$1.layout has identity other, most others i1: it is of another cluster with the same id"}},
	"no identity":                     {"UPDATE $1.layout SET identity = ''", []string{"$1.layout " + unmarked}},
	"a layout table without identity": {"ALTER TABLE $0.layout DROP COLUMN identity", []string{"$0.layout, column identity is missing"}},
	"a layout table without mark":     {"ALTER TABLE $0.layout DROP COLUMN mark", []string{"$0.layout, column mark is missing"}},
	"a layout table of version 1":     {"ALTER TABLE $0.layout DROP COLUMN mark, DROP COLUMN ownership", []string{"$0 " + layoutrow.TooOld(1)}},
	"another type of identity": {"UPDATE $0.layout SET identity = 0; ALTER TABLE $0.layout MODIFY identity INT NULL",
		[]string{"$0.layout, column identity is int, want varchar(64) collate utf8mb4_bin not null default ''"}},
	"retired":        {"UPDATE $1.layout SET state = 'retired'", []string{`$1.layout has state "retired", want "active"`}},
	"own index":      {"CREATE INDEX mine ON $0.task_0000 (due_time)", nil},
	"own column":     {"ALTER TABLE $0.task_0000 ADD note VARCHAR(9) NULL", nil},
	"unique index":   {"CREATE UNIQUE INDEX mine ON $0.task_0000 (due_time)", []string{"$0.task_0000, index mine is not of the schema and unique"}},
	"column in need": {"ALTER TABLE $0.task_0000 ADD note INT NOT NULL", []string{"$0.task_0000, column note is not of the schema and needs a value"}},
}

func TestVerifyNamesWhatIsMissingOrDiffers(t *testing.T) {
	t.Parallel()
	for name, c := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, 2, 2)
			applied(t, cfg, Options{Cluster: "c1", Identity: "i1"})
			execute(t, cfg, c.damage)
			findings, err := Verify(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				got = append(got, strings.ReplaceAll(f.Object+" "+f.Detail, cfg.Layout.Prefix+"_", "$"))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestVerifyWarnsOfTablesWhoseStatisticsAreCountedAnew(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 2)
	applied(t, cfg, Options{})
	execute(t, cfg, "ALTER TABLE $0.task_0001 STATS_AUTO_RECALC = DEFAULT")
	execute(t, cfg, "ALTER TABLE $0.doorbell STATS_AUTO_RECALC = 1")
	execute(t, cfg, "ALTER TABLE $1.task_0000 DROP COLUMN due_time")
	findings, err := Verify(t.Context(), cfg)
	if err != nil || len(findings) != 2 || findings[1].Warning {
		t.Fatalf("findings %v, error %v: want a warning of database 0, and a column of database 1", findings, err)
	}
	name := cfg.Layout.Database(0)
	want := Finding{Server: "db1", Object: name, Warning: true, Detail: "has 2 of 13 tables whose statistics the server counts anew by itself, " +
		"which costs it much: run `tocsin ddl apply`, or ALTER TABLE " + name + ".doorbell STATS_AUTO_RECALC = 0, and so on"}
	if findings[0] != want || !strings.HasPrefix(want.String(), "warning: server db1: "+name+" has 2 ") {
		t.Errorf("got  %s\nwant %s", findings[0], want)
	}
	execute(t, cfg, "ALTER TABLE $0.doorbell STATS_AUTO_RECALC = 0")
	execute(t, cfg, "ALTER TABLE $0.task_0001 STATS_AUTO_RECALC = 0")
	if findings, err = Verify(t.Context(), cfg); err != nil || len(findings) != 1 || findings[0].Warning {
		t.Errorf("when both are mended: %v, %v", findings, err)
	}
}

func TestVerifyReportsTheServersThatAnswerWhenOneDoesNot(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	applied(t, cfg, Options{})
	execute(t, cfg, "DROP TABLE $0.owner")
	cfg.Servers = []tocsin.Server{
		{Name: "db1", DSN: cfg.Servers[0].DSN, Databases: []int{0}},
		{Name: "db2", DSN: "root:secret@tcp(127.0.0.1:1)/", Databases: []int{1}},
	}
	findings, err := Verify(t.Context(), cfg)
	if err == nil || !strings.HasPrefix(err.Error(), "server db2: ") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v, want one that names db2", err)
	}
	if len(findings) != 1 || findings[0].String() != "server db1: "+cfg.Layout.Database(0)+".owner is missing" {
		t.Errorf("findings %v", findings)
	}
}

func TestEveryLineOfTheSQLFilesIsUnderstood(t *testing.T) {
	t.Parallel()
	want := expectationsAt(layoutrow.SchemaVersion)
	task := want[taskFile]
	if len(task.columns) != 17 || len(task.indexes) != 3 || task.engine != "InnoDB" || task.collation != "utf8mb4_bin" {
		t.Errorf("task: %+v", task)
	}
	if got := task.columns["dedup_key"]; got != (column{kind: "varbinary(64)", nullable: true}) {
		t.Errorf("dedup_key: %+v", got)
	}
}

func TestMySQLAndMariaDBSpellTheSameColumnAlike(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]string{
		"display width": {normalKind("bigint(20) unsigned"), normalKind("bigint unsigned")},
		"tiny":          {normalKind("tinyint(3) unsigned"), normalKind("TINYINT UNSIGNED")},
		"varchar stays": {normalKind("varchar(64)"), "varchar(64)"},
		"empty default": {unquote("''"), unquote("")},
		"text default":  {unquote("'x'"), unquote("x")},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q and %q", name, pair[0], pair[1])
		}
	}
}
