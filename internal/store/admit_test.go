package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

const (
	makeForeign = "UPDATE {db}.layout SET cluster_id = 'other'"
	makeOurs    = "UPDATE {db}.layout SET cluster_id = 'test'"
)

func (b *bench) inSecond(query string) {
	b.tb.Helper()
	b.exec(strings.ReplaceAll(query, "{db}", b.layout.Database(1)))
}

// Each statement gets a store of its own: its very first use of a new connection is
// refused, without a Survey before it.
func TestNoStatementReachesAForeignDatabase(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.Store.cluster = "test"
	b.add(task{id: id(2, 1)}, task{id: id(0, 1)})
	b.inSecond(makeForeign)
	before := b.row(id(2, 1))
	for name := range b.statements(2) {
		t.Run(name, func(t *testing.T) {
			fresh := openConfig(t, tocsin.Config{Layout: b.layout, Cluster: "test", Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}})
			var unusable *Unusable
			_, err := fresh.statements(2)[name](t.Context())
			if !errors.As(err, &unusable) || unusable.Database != 1 || !errors.Is(err, tocsin.ErrLayout) {
				t.Errorf("in the foreign database: %v", err)
			}
			want := fmt.Sprintf(`cluster of the config is "test", that of %s on db1 is "other"`, b.layout.Database(1))
			if err != nil && err.Error() != want {
				t.Errorf("says %q, want %q", err, want)
			}
			if _, err := fresh.statements(0)[name](t.Context()); err != nil {
				t.Errorf("in the database beside it: %v", err)
			}
		})
	}
	if after := b.row(id(2, 1)); after != before {
		t.Errorf("the row has changed: %+v, was %+v", after, before)
	}
	if owners := scalar[int](b, "SELECT COUNT(*) FROM "+b.layout.Database(1)+".owner"); owners != 0 {
		t.Errorf("%d owner rows", owners)
	}
}

// The next Survey sees rows that change under live connections. Its verdict holds for
// all connections, old and new.
func TestASurveySeesWhatChangesUnderALiveConnection(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.Store.cluster = "test"
	ctx := t.Context()
	for name, do := range b.statements(2) {
		if _, err := do(ctx); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	b.inSecond(makeForeign)
	if found, err := b.Survey(ctx, 0); err != nil || len(found.Unusable) != 1 || !errors.Is(found.Unusable[1], tocsin.ErrLayout) {
		t.Fatalf("surveyed %+v, %v", found, err)
	}
	for name, do := range b.statements(2) {
		if _, err := do(ctx); !errors.Is(err, tocsin.ErrLayout) {
			t.Errorf("%s in the foreign database: %v", name, err)
		}
	}
	for name, do := range b.statements(0) {
		if _, err := do(ctx); err != nil {
			t.Errorf("%s beside it: %v", name, err)
		}
	}
	if rung, err := b.Bells(ctx, 0, nil, 1); err != nil || len(rung) != 0 {
		t.Errorf("bells %v, %v: a database that is refused is left out", rung, err)
	}
	b.inSecond(makeOurs)
	if found, err := b.Survey(ctx, 0); err != nil || len(found.Unusable) != 0 {
		t.Fatalf("surveyed %+v, %v", found, err)
	}
	for name, do := range b.statements(2) {
		if _, err := do(ctx); err != nil {
			t.Errorf("%s when it is right again: %v", name, err)
		}
	}
}

// A check and a survey say the same of each database. Package layoutrow tests what is refused.
func TestWhatEachDatabaseLacksIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement      string
		unusable, flaw string
	}{
		"all is well":               {"DO 0", "", ""},
		"no layout row":             {"DELETE FROM {db}.layout", "{db} on db1 has no layout row: run `tocsin ddl apply`", ""},
		"no layout table":           {"DROP TABLE {db}.layout", "{db} on db1 has no layout table", ""},
		"no database":               {"DROP DATABASE {db}", "run `tocsin ddl apply`", ""},
		"another cluster":           {"UPDATE {db}.layout SET cluster_id = 'other'", `cluster of the config is "test", that of {db} on db1 is "other"`, ""},
		"a layout table, corrupted": {"ALTER TABLE {db}.layout DROP COLUMN state", "can't be read", ""},
		"no owner table":            {"DROP TABLE {db}.owner", "", ".owner' doesn't exist"},
		"no doorbell":               {"DROP TABLE {db}.doorbell", "", ".doorbell' doesn't exist"},
		"no biz types":              {"DROP TABLE {db}.biz_type", "", ".biz_type' doesn't exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, small)
			b.inSecond(c.statement)
			c.unusable = strings.ReplaceAll(c.unusable, "{db}", b.layout.Database(1))
			err := b.Check(t.Context(), 0)
			if c.unusable == "" && err != nil || c.unusable != "" && (!errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), c.unusable)) {
				t.Errorf("check: %v, want %q", err, c.unusable)
			}
			found, err := b.Survey(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			said := func(what string, errs map[int]error, part string) {
				t.Helper()
				if part == "" && len(errs) > 0 || part != "" && (len(errs) != 1 || errs[1] == nil || !strings.Contains(errs[1].Error(), part)) {
					t.Errorf("%s: %v, want %q of database 1", what, errs, part)
				}
				if part != "" && errs[1] != nil && !strings.Contains(errs[1].Error(), b.layout.Database(1)) {
					t.Errorf("%s: %q does not name the database", what, errs[1])
				}
			}
			said("unusable", found.Unusable, c.unusable)
			said("flawed", found.Flawed, c.flaw)
		})
	}
}

func TestConnectNeedsOneUsableDatabase(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	down := tocsin.Server{Name: "db2", DSN: "root@tcp(127.0.0.1:1)/", Databases: []int{1}}
	up := tocsin.Server{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}}
	cfg := tocsin.Config{Layout: b.layout, Cluster: "test", Servers: []tocsin.Server{down, up}}
	connect := func() error {
		s, err := Connect(t.Context(), cfg)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	if err := connect(); err != nil {
		t.Errorf("one server is down: %v", err)
	}
	cfg.Servers[0].DSN = devtest.DSN(t)
	b.inSecond(makeForeign)
	if err := connect(); err != nil {
		t.Errorf("one database is foreign: %v", err)
	}
	b.exec("UPDATE " + b.layout.Database(0) + ".layout SET cluster_id = 'other'")
	if err := connect(); !errors.Is(err, tocsin.ErrLayout) || strings.Contains(err.Error(), "\n") {
		t.Errorf("all are foreign: %v", err)
	}
	cfg.Servers = []tocsin.Server{{Name: "db2", DSN: "root:secret@tcp(127.0.0.1:1)/"}}
	if err := connect(); err == nil || errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), "db2") || strings.Contains(err.Error(), "secret") {
		t.Errorf("the only server is down: %v", err)
	}
}

// A statement that bypasses conn, admit and transact could reach a foreign database.
// The listed files use pools directly, but only for questions about servers, and layout rows.
func TestPoolsAreUsedBehindTheGateOnly(t *testing.T) {
	t.Parallel()
	free := []string{"admit.go", "clock.go", "connect.go", "facts.go", "marks.go", "metrics.go", "roundtrip.go", "store.go", "survey.go", "trial.go", "unanswered.go"}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		direct := strings.Contains(string(text), "sv.DB") || strings.Contains(string(text), "server.DB")
		if direct && !strings.HasSuffix(file, "_test.go") && !slices.Contains(free, file) {
			t.Errorf("%s uses a server's pool: use readTables, gated, exec or transact", file)
		}
	}
}

func TestAServerWithoutRoomIsSurveyed(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.exec("SET GLOBAL max_heap_table_size = 16384")
	t.Cleanup(func() { b.exec("SET GLOBAL max_heap_table_size = DEFAULT") })
	b.exec("ALTER TABLE " + b.layout.Database(0) + ".owner MODIFY group_name CHAR(255), ENGINE = MEMORY")
	revisions := map[int]int64{0: 1, 1: 1}
	for n := 0; ; n++ {
		if err := b.Own(t.Context(), fmt.Sprint("group", n), "me", revisions); err != nil {
			break
		}
	}
	if found, err := b.Survey(t.Context(), 0); err != nil || found.Full == nil || !strings.Contains(found.Full.Error(), "is full") {
		t.Errorf("surveyed %+v, %v", found, err)
	}
}
