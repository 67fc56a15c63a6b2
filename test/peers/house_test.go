package main

import (
	"testing"

	"github.com/tocsinhq/tocsin/internal/house"
)

// TestHouseRules holds this module to the rules of the main one; its table of
// imports does not reach here, and SQL may stand where the peer is.
func TestHouseRules(t *testing.T) {
	t.Parallel()
	m, err := house.Load(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Go) < 20 {
		t.Fatalf("only %d files: is this the module?", len(m.Go))
	}
	figures, bad := house.Sizes(m)
	t.Logf("%d functions: median %d lines; longest: %v", figures.Funcs, figures.Median, figures.LongestFunc)
	for _, rule := range []func(house.Module) []string{house.PackageDocs, house.ExportedDocs, house.Names, house.Sleep, house.Paths} {
		bad = append(bad, rule(m)...)
	}
	for _, complaint := range bad {
		t.Error(complaint)
	}
}
