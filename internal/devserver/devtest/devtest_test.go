package devtest

import (
	"context"
	"database/sql"
	"regexp"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMain(m *testing.M) { Main(m) }

func TestPrefixDropsItsDatabasesWhenTheTestEnds(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("mysql", DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other := Prefix(t)
	must(t, db, "CREATE DATABASE "+other+"_0")
	var gone string
	t.Run("inner", func(t *testing.T) {
		gone = Prefix(t)
		must(t, db, "CREATE DATABASE "+gone+"_0")
		must(t, db, "CREATE DATABASE "+gone+"_1")
		must(t, db, "CREATE DATABASE "+gone+"x")
	})
	defer must(t, db, "DROP DATABASE "+gone+"x")
	if names, err := databases(t.Context(), db, gone); err != nil || len(names) != 0 {
		t.Errorf("left %v, %v", names, err)
	}
	if names, err := databases(t.Context(), db, other); err != nil || len(names) != 1 {
		t.Errorf("of another test are left %v, %v", names, err)
	}
	must(t, db, "USE "+gone+"x")
}

func TestPrefixIsFreshAndFitsADatabaseName(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile(`^t[0-9a-z_]+$`)
	seen := map[string]bool{}
	for range 1000 {
		p := newPrefix()
		if !shape.MatchString(p) || len(p) > 20 || seen[p] {
			t.Fatalf("prefix %q", p)
		}
		seen[p] = true
	}
}

func TestEtcdIsSharedAndAnswers(t *testing.T) {
	t.Parallel()
	if first, second := Etcd(t), Etcd(t); first != second {
		t.Fatal("two endpoints")
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{Etcd(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Put(ctx, "/a", "b"); err != nil {
		t.Fatal(err)
	}
}
