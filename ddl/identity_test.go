package ddl

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// identities reads the identity of every database.
func identities(t *testing.T, cfg tocsin.Config) []string {
	t.Helper()
	sites, err := openSites(cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSites(sites)
	all := make([]string, cfg.Layout.Databases)
	for _, s := range sites {
		for _, db := range s.Databases {
			row, err := s.readLayout(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			all[db] = row.Identity
		}
	}
	return all
}

// nameless makes a cluster of two databases whose identity could not be written yet.
func nameless(t *testing.T) tocsin.Config {
	t.Helper()
	cfg := config(t, 2, 2)
	cfg.Cluster = "c1"
	if _, err := Apply(t.Context(), cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	for db := range 2 {
		execute(t, cfg, fmt.Sprintf("UPDATE $%d.layout SET identity = ''", db))
	}
	if ids := identities(t, cfg); !slices.Equal(ids, []string{"", ""}) {
		t.Fatalf("identities %q of a cluster without any", ids)
	}
	return cfg
}

func TestApplyGivesAClusterItsIdentity(t *testing.T) {
	t.Parallel()
	cfg := nameless(t)
	findings, err := Verify(t.Context(), cfg)
	if err != nil || len(findings) != 2 || !findings[0].Warning || !findings[1].Warning {
		t.Errorf("before: %v, %v, want two warnings", findings, err)
	}
	client, err := tocsin.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("a client of a cluster without an identity: %v", err)
	}
	_ = client.Close()
	res, err := Apply(t.Context(), cfg, Options{})
	if want := (Result{Cluster: "c1", Identity: res.Identity, Existing: 22, From: 3, WorksWith: 3}); err != nil || res != want || res.Identity == "" {
		t.Fatalf("%+v, %v, want %+v", res, err, want)
	}
	for range 2 {
		if ids := identities(t, cfg); !slices.Equal(ids, []string{res.Identity, res.Identity}) {
			t.Errorf("identities %q, want %s twice", ids, res.Identity)
		}
		if findings, err := Verify(t.Context(), cfg); err != nil || len(findings) != 0 {
			t.Errorf("after: %v, %v", findings, err)
		}
		if again, err := Apply(t.Context(), cfg, Options{}); err != nil || again != res {
			t.Errorf("again: %+v, %v", again, err)
		}
	}
}

func TestAPlanGivesAClusterItsIdentity(t *testing.T) {
	t.Parallel()
	cfg := nameless(t)
	for _, identity := range []string{"i1", "i2"} { // the second run finds an identity
		plans, err := Plan(cfg, Options{Identity: identity})
		if err != nil {
			t.Fatal(err)
		}
		paths, err := WritePlan(filepath.Join(t.TempDir(), identity), plans)
		if err != nil {
			t.Fatal(err)
		}
		client(t, cfg.Servers[0].DSN, paths[0])
		if ids := identities(t, cfg); !slices.Equal(ids, []string{"i1", "i1"}) {
			t.Errorf("identities %q after the plan with %s", ids, identity)
		}
	}
	if findings, err := Verify(t.Context(), cfg); err != nil || len(findings) != 0 {
		t.Errorf("verify: %v, %v", findings, err)
	}
}

func TestAppliesAtOnceAgreeOnOneIdentity(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(*testing.T) tocsin.Config{
		"an older cluster": nameless,
		"a new cluster":    func(t *testing.T) tocsin.Config { cfg := config(t, 2, 2); cfg.Cluster = "c1"; return cfg },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := make(t)
			var wg sync.WaitGroup
			var results [4]Result
			var errs [4]error
			for i := range results {
				wg.Go(func() { results[i], errs[i] = Apply(context.Background(), cfg, Options{}) })
			}
			wg.Wait()
			ids := identities(t, cfg)
			if ids[0] == "" || ids[0] != ids[1] {
				t.Errorf("identities %q", ids)
			}
			for i, err := range errs {
				if err != nil || results[i].Identity != ids[0] {
					t.Errorf("Apply %d: %+v, %v, want identity %s", i, results[i], err, ids[0])
				}
			}
		})
	}
}

// One database was restored from a dump that is older than the others' identity.
func TestADatabaseWithoutAnIdentityGetsThatOfTheOthers(t *testing.T) {
	t.Parallel()
	cfg := nameless(t)
	res, err := Apply(t.Context(), cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, cfg, "UPDATE $0.layout SET identity = ''")
	again, err := Apply(t.Context(), cfg, Options{})
	if err != nil || again != res || !slices.Equal(identities(t, cfg), []string{res.Identity, res.Identity}) {
		t.Errorf("%+v, %v, identities %q, want %s", again, err, identities(t, cfg), res.Identity)
	}
}

func TestApplyRefusesDatabasesOfTwoIdentities(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 2)
	if _, err := Apply(t.Context(), cfg, Options{Identity: "i1"}); err != nil {
		t.Fatal(err)
	}
	execute(t, cfg, "UPDATE $1.layout SET identity = 'i2'")
	_, err := Apply(t.Context(), cfg, Options{})
	want := "identity is i1, but " + cfg.Layout.Database(1) + " on server db1 has i2: it is of another cluster with the same id, correct the servers of the config"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Without the right to write it, or while a transaction holds the layout row, everything works without an identity.
func TestAnIdentityThatCantBeWrittenIsAWarning(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prevent func(*testing.T, tocsin.Config) tocsin.Config
		want    string
	}{
		"no right":            {limited, "has no identity, and the user may not give it one: let an administrator run this again"},
		"an open transaction": {holdLayouts, "has no identity, as an open transaction of somebody holds its layout table: run this again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin := nameless(t)
			cfg := c.prevent(t, admin)
			res, err := Apply(t.Context(), cfg, Options{})
			want := Result{Cluster: "c1", Existing: 22, From: 3, WorksWith: 3, Warning: res.Warning}
			if err != nil || res != want || !strings.Contains(res.Warning, c.want) || strings.Contains(res.Warning, "\n") {
				t.Errorf("%+v, %v", res, err)
			}
			if ids := identities(t, admin); !slices.Equal(ids, []string{"", ""}) {
				t.Errorf("identities %q", ids)
			}
		})
	}
}

// holdLayouts starts a transaction that locks both layout rows until the test ends.
func holdLayouts(t *testing.T, cfg tocsin.Config) tocsin.Config {
	server, err := mysql.Open(client.Specs(cfg)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.DB.Close() })
	tx, err := server.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for db := range cfg.Layout.Databases {
		if _, err := tx.Exec(in(cfg.Layout.Database(db), "SELECT * FROM `{database}`.layout FOR UPDATE")); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}
