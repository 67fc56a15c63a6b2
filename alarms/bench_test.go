package alarms

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/store"
)

// BenchmarkLook measures a look at 1,024 tables of one server, in which nothing has died.
func BenchmarkLook(b *testing.B) {
	cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 2, Tables: 512, Prefix: devtest.Prefix(b)}, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(b)}}}
	if _, err := ddl.Apply(b.Context(), cfg, ddl.Options{Cluster: "test"}); err != nil {
		b.Fatal(err)
	}
	tables, err := store.Connect(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer tables.Close()
	a, err := New(Config{Tables: tables, Cluster: cfg, Policies: func() []biztype.Policy { return policies }, Leads: func() bool { return true }, Every: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	a.look(b.Context(), lag) // opens the tables
	for b.Loop() {
		a.look(b.Context(), lag)
	}
}
