package config

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// inPostgres is a config with an outbox in PostgreSQL, with further lines of it.
func inPostgres(dsn, more string) []byte {
	return []byte("layout: {databases: 1, tables: 1}\nservers:\n  - dsn: root@tcp(h:1)/\noutboxes:\n  - dsn: " + dsn + "\n    table: public.tocsin_outbox\n" + more)
}

func TestAnOutboxInPostgreSQL(t *testing.T) {
	t.Parallel()
	secret := func(name string) (string, bool) { return "p@ss/w:rd", name == "A" }
	f, err := Parse(inPostgres("postgres://u@h:5432/shop?sslmode=require", "    password_env: A\n"), "f.yaml", secret)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Relayed()[0]; got.DSN != "postgres://u:p%40ss%2Fw%3Ard@h:5432/shop?sslmode=require" || !got.OnPostgreSQL() || got.Driver != nil {
		t.Errorf("%+v", got)
	}
	ca := devtest.NewAuthority(t).File
	if f, err = Parse(inPostgres("postgresql://u@h/shop", "    tls: {ca: "+ca+"}\n"), "f.yaml", secret); err != nil || f.Relayed()[0].TLS == nil {
		t.Error(err)
	}
	for name, c := range map[string]struct{ dsn, more, want string }{
		"two passwords":      {"postgres://u:x@h/shop", "    password_env: A\n", "holds a password too"},
		"TLS in both places": {"postgres://u@h/shop?sslmode=require", "    tls: {ca: " + ca + "}\n", "a parameter tls or sslmode too"},
	} {
		if _, err := Parse(inPostgres(c.dsn, c.more), "f.yaml", secret); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	bad := strings.Replace(string(inPostgres("postgres://u@h/shop", "")), "public.", "", 1)
	if _, err := Parse([]byte(bad), "f.yaml", secret); err == nil || !strings.Contains(err.Error(), "name its schema too") {
		t.Error(err)
	}
}
