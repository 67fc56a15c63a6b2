package house

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// The walls of the house: how many there may be. They only go down.
const (
	maxPackages = 48 // that are shipped; 6 are of message brokers, 2 of workers that pull
	maxTopFiles = 14 // Go files in the root folder, outside tests
)

// maxExported is how many names a package may export that many programs import: types, functions, constants and variables.
var maxExported = map[string]int{".": 110, "node": 60}

// harness is what tests and compares the product, and is not shipped.
var harness = []string{"examples/...", "internal/devserver/devtest", "internal/devserver/etcdtest", "internal/house", "internal/house/...", "test/..."}

// Walls checks how many packages, names and files there are.
func Walls(m Module) (bad []string) {
	packages, exported, top := map[string]bool{}, map[string]int{}, 0
	for _, f := range m.Go {
		if f.IsTest() {
			continue
		}
		if !coversAny(harness, f.Dir()) {
			packages[f.Dir()] = true
		}
		if f.Dir() == "." {
			top++
		}
		exported[f.Dir()] += exportedNames(f)
	}
	if len(packages) > maxPackages {
		bad = append(bad, fmt.Sprintf("%d packages, more than %d: %v", len(packages), maxPackages, slices.Sorted(maps.Keys(packages))))
	}
	if top > maxTopFiles {
		bad = append(bad, fmt.Sprintf("%d Go files at the top, more than %d", top, maxTopFiles))
	}
	for _, dir := range slices.Sorted(maps.Keys(maxExported)) {
		if n := exported[dir]; n > maxExported[dir] {
			bad = append(bad, fmt.Sprintf("%s exports %d names, more than %d", dir, n, maxExported[dir]))
		}
	}
	return bad
}

// exportedNames counts what a file declares for others, without methods.
func exportedNames(f *File) (n int) {
	for _, decl := range f.AST.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				n++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						n++
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							n++
						}
					}
				}
			}
		}
	}
	return n
}
