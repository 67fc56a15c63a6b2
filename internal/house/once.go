package house

import (
	"go/ast"
	"strings"
)

// Walks checks that only store.Walk walks the tables of a server chunk by chunk.
func Walks(m Module) []string {
	var bad []string
	for _, f := range m.shipped() {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && calls(call, "slices", "Chunk") && len(call.Args) > 0 && isTablesOf(call.Args[0]) {
				bad = append(bad, f.at(call.Pos(), "a walk over all tables of its own: use store.Walk"))
			}
			return true
		})
	}
	return bad
}

// isTablesOf reports whether x is a call of something named TablesOf.
func isTablesOf(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "TablesOf"
}

// Groups checks that an errgroup whose error is ignored has a limit; otherwise a sync.WaitGroup would do.
func Groups(m Module) []string {
	var bad []string
	for _, f := range m.shipped() {
		if !f.uses("golang.org/x/sync/errgroup") || strings.Contains(string(f.Src), ".SetLimit(") {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if set, ok := n.(*ast.AssignStmt); ok && discards(set) && isWait(set.Rhs[0]) {
				bad = append(bad, f.at(set.Pos(), "an errgroup whose error is thrown away: use sync.WaitGroup.Go"))
			}
			return true
		})
	}
	return bad
}

// uses reports whether the file imports the package.
func (f *File) uses(target string) bool {
	for _, spec := range f.AST.Imports {
		if spec.Path.Value == `"`+target+`"` {
			return true
		}
	}
	return false
}

// discards reports whether the statement is "_ = x".
func discards(set *ast.AssignStmt) bool {
	id, ok := set.Lhs[0].(*ast.Ident)
	return ok && id.Name == "_" && len(set.Lhs) == 1 && len(set.Rhs) == 1
}

// isWait reports whether x is "y.Wait()".
func isWait(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Wait"
}

func calls(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == name && isPackage(sel.X, pkg)
}
