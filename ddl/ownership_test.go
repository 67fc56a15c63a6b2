package ddl

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// ownerships returns what the layout rows say.
func ownerships(t *testing.T, cfg tocsin.Config) (all []string) {
	t.Helper()
	sites, err := openSites(cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSites(sites)
	for _, s := range sites {
		if err := s.survey(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, db := range s.Databases {
			all = append(all, s.rows[db].Ownership)
		}
	}
	return all
}

func TestApplyWritesTheOwnershipAndRefusesAnother(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	if _, err := Apply(t.Context(), cfg, Options{Ownership: ByRows}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(ownerships(t, cfg), " "); got != "rows rows" {
		t.Errorf("stored %s", got)
	}
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Errorf("a config that names no ownership: %v", err)
	}
	_, err := Apply(t.Context(), cfg, Options{Ownership: ByEtcd})
	if err == nil || !strings.Contains(err.Error(), `ownership of the config is "etcd"`) || !strings.Contains(err.Error(), "tocsin ddl ownership etcd") {
		t.Errorf("another one: %v", err)
	}
	if _, err := Apply(t.Context(), cfg, Options{Ownership: "both"}); err == nil {
		t.Error("an unknown one was taken")
	}
	if findings, err := Verify(t.Context(), cfg); err != nil || len(findings) > 0 {
		t.Errorf("verify: %v, %v", err, findings)
	}
}

func TestTheOwnershipChangesWhenNoNodeLives(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ownership string
		changed   int
	}{{ByEtcd, 0}, {ByRows, 2}, {ByRows, 0}, {ByEtcd, 2}, {ByRows, 2}} {
		done, err := SetOwnership(t.Context(), cfg, c.ownership, false)
		if err != nil || done.Databases != c.changed {
			t.Errorf("to %s: %+v, %v", c.ownership, done, err)
		}
	}
	execute(t, cfg, "INSERT INTO "+cfg.Layout.Database(1)+".node (group_name, node, seen, gmt_create, schema_version, about) VALUES ('g', 'node-1', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 2, '{}')")
	if _, err := SetOwnership(t.Context(), cfg, ByEtcd, false); err == nil || !strings.Contains(err.Error(), "node node-1 wrote its row") {
		t.Errorf("beside a live node: %v", err)
	}
	if got := strings.Join(ownerships(t, cfg), " "); got != "rows rows" {
		t.Errorf("beside a live node it became %s", got)
	}
	execute(t, cfg, "UPDATE "+cfg.Layout.Database(1)+".node SET seen = UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE")
	if done, err := SetOwnership(t.Context(), cfg, ByEtcd, false); err != nil || done.Databases != 2 {
		t.Errorf("after a node that was killed: %+v, %v", done, err)
	}
}

// Programs that this one does not work beside may not know of ownership.
func TestTheOwnershipStaysWhileOlderProgramsMayWork(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	execute(t, cfg, "UPDATE "+cfg.Layout.Database(1)+".layout SET works_with = 1")
	_, err := SetOwnership(t.Context(), cfg, ByRows, true)
	if err == nil || !strings.Contains(err.Error(), "tocsin ddl finish") {
		t.Errorf("%v", err)
	}
	if got := strings.Join(ownerships(t, cfg), " "); got != "etcd etcd" {
		t.Errorf("it became %s", got)
	}
}

func TestVerifyNamesAChangeOfOwnershipThatStopped(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 1)
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	execute(t, cfg, "UPDATE "+cfg.Layout.Database(1)+".layout SET ownership = 'rows'")
	findings, err := Verify(t.Context(), cfg)
	if err != nil || len(findings) != 1 || !strings.Contains(findings[0].String(), `has ownership "rows", those before it "etcd"`) {
		t.Errorf("%v: %v", err, findings)
	}
	if done, err := SetOwnership(t.Context(), cfg, ByRows, false); err != nil || done.Databases != 1 {
		t.Errorf("run again: %+v, %v", done, err)
	}
}
