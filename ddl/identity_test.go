package ddl

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// nameless makes a cluster of two databases whose identity could not be written yet.
func nameless(t *testing.T) tocsin.Config {
	t.Helper()
	cfg := config(t, 2, 2)
	cfg.Cluster = "c1"
	applied(t, cfg, Options{})
	for db := range 2 {
		execute(t, cfg, fmt.Sprintf("UPDATE $%d.layout SET identity = ''", db))
	}
	wantSaid(t, identities(t, cfg), "", "")
	return cfg
}

func TestApplyGivesAClusterItsIdentity(t *testing.T) {
	t.Parallel()
	cfg := nameless(t)
	verified(t, cfg, "warning: ", "warning: ")
	client, err := tocsin.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("a client of a cluster without an identity: %v", err)
	}
	_ = client.Close()
	res := applied(t, cfg, Options{})
	if want := (Result{Cluster: "c1", Identity: res.Identity, Existing: 26, From: 3, WorksWith: 3}); res != want || res.Identity == "" {
		t.Fatalf("%+v, want %+v", res, want)
	}
	for range 2 {
		wantSaid(t, identities(t, cfg), res.Identity, res.Identity)
		verified(t, cfg)
		if again := applied(t, cfg, Options{}); again != res {
			t.Errorf("again: %+v", again)
		}
	}
}

func TestAPlanGivesAClusterItsIdentity(t *testing.T) {
	t.Parallel()
	cfg := nameless(t)
	for _, identity := range []string{"i1", "i2"} { // the second run finds an identity
		run(t, cfg, must(Plan(cfg, Options{Identity: identity})))
		wantSaid(t, identities(t, cfg), "i1", "i1")
	}
	verified(t, cfg)
}

func TestAppliesAtOnceAgreeAndMakeEachChangeOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make    func(*testing.T) tocsin.Config
		altered int
		found   []string
		says    string // each layout row
	}{
		"a cluster without an identity": {nameless, 0, nil, "3/3"},
		"a new cluster":                 {func(t *testing.T) tocsin.Config { return config(t, 2, 8) }, 0, nil, "3/3"},
		"tables of version 2":           {version2, changesOf2, []string{"warning: "}, "3/2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := c.make(t)
			var wg sync.WaitGroup
			var results [4]Result
			var errs [4]error
			for i := range results {
				wg.Go(func() { results[i], errs[i] = Apply(context.Background(), cfg, Options{}) })
			}
			wg.Wait()
			ids, altered := identities(t, cfg), 0
			if ids[0] == "" || ids[0] != ids[1] {
				t.Errorf("identities %q", ids)
			}
			for i, err := range errs {
				if err != nil || results[i].Identity != ids[0] || results[i].Cluster != results[0].Cluster {
					t.Errorf("Apply %d: %+v, %v, want identity %s", i, results[i], err, ids[0])
				}
				altered += results[i].Altered
			}
			if altered != c.altered {
				t.Errorf("%d changes, want %d", altered, c.altered)
			}
			wantSaid(t, versions(t, cfg), c.says, c.says)
			verified(t, cfg, c.found...)
		})
	}
}

// One database was restored from a dump that is older than the others' identity.
func TestADatabaseWithoutAnIdentityGetsThatOfTheOthers(t *testing.T) {
	t.Parallel()
	cfg := nameless(t)
	res := applied(t, cfg, Options{})
	execute(t, cfg, "UPDATE $0.layout SET identity = ''")
	if again := applied(t, cfg, Options{}); again != res {
		t.Errorf("%+v, want %+v", again, res)
	}
	wantSaid(t, identities(t, cfg), res.Identity, res.Identity)
}

func TestApplyRefusesDatabasesOfTwoIdentities(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 2)
	applied(t, cfg, Options{Identity: "i1"})
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
			want := Result{Cluster: "c1", Existing: 26, From: 3, WorksWith: 3, Warning: res.Warning}
			if err != nil || res != want || !strings.Contains(res.Warning, c.want) || strings.Contains(res.Warning, "\n") {
				t.Errorf("%+v, %v", res, err)
			}
			wantSaid(t, identities(t, admin), "", "")
		})
	}
}

// holdLayouts starts a transaction that locks both layout rows until the test ends.
func holdLayouts(t *testing.T, cfg tocsin.Config) tocsin.Config {
	tx := must(pool(t, cfg).BeginTx(t.Context(), nil))
	for db := range cfg.Layout.Databases {
		must(tx.Exec(in(cfg.Layout.Database(db), "SELECT * FROM `{database}`.layout FOR UPDATE")))
	}
	return cfg
}
