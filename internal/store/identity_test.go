package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// The first database belongs to another cluster with the same id: it is refused, and
// the two after it are not.
func TestTheDatabaseWithAnotherIdentityIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, tocsin.Layout{Databases: 3, Tables: 1})
	first, second, third := b.layout.Database(0), b.layout.Database(1), b.layout.Database(2)
	b.exec("UPDATE " + first + ".layout SET identity = 'other'")
	b.exec("UPDATE " + second + ".layout SET identity = 'own'")
	b.exec("UPDATE " + third + ".layout SET identity = 'own'")
	apart := tocsin.Config{Layout: b.layout, Cluster: "test", Servers: []tocsin.Server{
		{Name: "db0", DSN: devtest.DSN(t), Databases: []int{0}},
		{Name: "db1", DSN: devtest.DSN(t), Databases: []int{1}},
		{Name: "db2", DSN: devtest.DSN(t), Databases: []int{2}},
	}}
	want := "identity of the config's other databases is own, that of " + first + " on db0 is other"
	s, err := Connect(t.Context(), apart)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for table, other := range []string{first, second, third} {
		err := s.Own(t.Context(), "g", "me", map[int]int64{table: 1})
		if refused := errors.Is(err, tocsin.ErrLayout) && strings.Contains(err.Error(), want); refused != (table == 0) {
			t.Errorf("%s: error %v, want %s of the first alone", other, err, want)
		}
	}
	want = "identity of the config's other databases is own, that of " + first + " on db1 is other"
	if err := b.Check(t.Context(), 0); !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), want) {
		t.Errorf("all on one server: error %v, want %s", err, want)
	}
	if id := b.Identity(); id != "own" {
		t.Errorf("the databases agree on %q", id)
	}
	b.exec("UPDATE " + first + ".layout SET identity = 'own'")
	if err := b.Check(t.Context(), 0); err != nil {
		t.Errorf("when it is mended: %v", err)
	}
}

func TestDatabasesWithoutAnIdentityAreTaken(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	if err := b.Check(t.Context(), 0); err != nil || b.Identity() == "" {
		t.Fatalf("error %v, identity %q of a new cluster", err, b.Identity())
	}
	for _, database := range []int{0, 1} { // first one of them has none, then both
		b.exec("UPDATE " + b.layout.Database(database) + ".layout SET identity = ''")
		if err := b.Check(t.Context(), 0); err != nil || (b.Identity() == "") != (database == 1) {
			t.Errorf("without that of %d databases: error %v, identity %q", database+1, err, b.Identity())
		}
	}
}
