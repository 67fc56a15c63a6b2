package docs_test

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// cluster makes tables, and says what ddl.Apply said.
func cluster(t *testing.T, id string) (tocsin.Config, ddl.Result) {
	t.Helper()
	cfg := tocsin.Config{
		Cluster: id,
		Layout:  tocsin.Layout{Databases: 2, Tables: 2, Prefix: devtest.Prefix(t)},
		Servers: []tocsin.Server{{DSN: devtest.DSN(t)}},
	}
	res, err := ddl.Apply(t.Context(), cfg, ddl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, res
}

// TestWhatTheSelectPrintsStopsTheCountingOfStatistics mends tables as earlier versions made them, as the document says.
func TestWhatTheSelectPrintsStopsTheCountingOfStatistics(t *testing.T) {
	t.Parallel()
	cfg, _ := cluster(t, "")
	s := connect(t, "time_zone = '+00:00'")
	query := strings.ReplaceAll(ofKind(t, blocks(t, "operations.md"), "sql")[0].text, `toc\_`, cfg.Layout.Prefix+`\_`)
	want(t, "of new tables", s.run(t, query))
	s.run(t, "ALTER TABLE "+cfg.Layout.Table(3)+" STATS_AUTO_RECALC = 1; ALTER TABLE "+cfg.Layout.Database(0)+".owner STATS_AUTO_RECALC = DEFAULT;")
	warned(t, cfg, 2)
	mend := s.run(t, query)
	if len(mend) != 3 || !strings.Contains(mend[1], "`owner`") || !strings.Contains(mend[2], "`"+cfg.Layout.TableName(3)+"`") {
		t.Fatalf("the SELECT printed %q, want a setting and two statements", mend)
	}
	s.run(t, strings.Join(mend, "\n"))
	want(t, "of mended tables", s.run(t, query))
	warned(t, cfg, 0)
	if errs := s.close(t); errs != "" {
		t.Errorf("the client says %s", errs)
	}
}

// TestACopyBecomesAClusterOfItsOwn gives copied databases another id and identity, as the document says.
func TestACopyBecomesAClusterOfItsOwn(t *testing.T) {
	t.Parallel()
	cfg, original := cluster(t, "shop")
	s := connect(t, "time_zone = '+00:00'")
	for db := range 2 {
		s.run(t, strings.ReplaceAll(ofKind(t, blocks(t, "operations.md"), "sql")[1].text, "toc_0", cfg.Layout.Database(db)))
	}
	cfg.Cluster = "shop-staging"
	res, err := ddl.Apply(t.Context(), cfg, ddl.Options{})
	if err != nil || res.Cluster != "shop-staging" || res.Identity == "" || res.Identity == original.Identity {
		t.Errorf("%+v, %v, the original was %+v", res, err, original)
	}
	warned(t, cfg, 0)
	if errs := s.close(t); errs != "" {
		t.Errorf("the client says %s", errs)
	}
}

// warned wants so many warnings of `tocsin ddl verify`, and nothing else.
func warned(t *testing.T, cfg tocsin.Config, times int) {
	t.Helper()
	found, err := ddl.Verify(t.Context(), cfg)
	if err != nil || len(found) != times {
		t.Errorf("verify: %v, %v, want %d warnings", found, err, times)
	}
	for _, f := range found {
		if !f.Warning {
			t.Errorf("verify: %s is no warning", f)
		}
	}
}
