// Command gen writes the dashboards into a folder, each into a file of its own, and removes other dashboards from it. The
// Makefile runs it with deploy/grafana/dashboards, from where Grafana reads them.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tocsinhq/tocsin/internal/dashboards"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the folder, not %q", args)
	}
	files, err := dashboards.Generate()
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(args[0], "*.json"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if files[filepath.Base(path)] == nil {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(args[0], name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
