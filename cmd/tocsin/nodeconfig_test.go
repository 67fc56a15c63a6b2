package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A node in a service serves no page; only tocsin serve listens where the file says.
func TestOnlyServeListensWhereTheFileSays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tocsin.yaml")
	text := "cluster: shop\nlayout: {databases: 1, tables: 1, ownership: rows}\nservers: [{name: db1, dsn: 'root@tcp(127.0.0.1:1)/'}]\nnode: {listen: '127.0.0.1:1'}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{configPath: path, err: printed{os.Stderr}}
	for flag, want := range map[string]string{"": "127.0.0.1:1", "127.0.0.1:2": "127.0.0.1:2", "off": "off"} {
		cfg, _, _, err := a.serveConfig(serveFlags{listen: flag}, prometheus.NewRegistry())
		if err != nil || cfg.Listen != want {
			t.Errorf("--listen %q: %q, %v, want %q", flag, cfg.Listen, err, want)
		}
	}
	file, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	if cfg, _, err := a.sweepConfig(file, sweepFlags{}); err != nil || cfg.Listen != "" {
		t.Errorf("a sweeper: %q, %v", cfg.Listen, err)
	}
}
