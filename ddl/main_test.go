package ddl

import (
	"os"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// TestMain makes this binary an Apply where a test that kills it asks for one.
func TestMain(m *testing.M) {
	if text := os.Getenv(envApply); text != "" {
		os.Exit(applyAlone(text))
	}
	if text := os.Getenv(envMigrate); text != "" {
		os.Exit(migrateHalf(text))
	}
	devtest.Main(m)
}

// config is a small cluster of its own on the shared server.
func config(tb testing.TB, databases, tables int) tocsin.Config {
	tb.Helper()
	return tocsin.Config{
		Layout:  tocsin.Layout{Databases: databases, Tables: tables, Prefix: devtest.Prefix(tb)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}},
	}
}
