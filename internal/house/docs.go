package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// minPackageDoc is the fewest characters of a package comment: less repeats the name.
const minPackageDoc = 100

// undocumented are methods whose name says all: those of well-known interfaces.
var undocumented = []string{"Error", "Unwrap", "Is", "Len", "Less", "Swap"}

// PackageDocs checks that every package has one comment that says something.
func PackageDocs(m Module) []string {
	longest := map[string]int{}
	for _, f := range m.shipped() {
		longest[f.Dir()] = max(longest[f.Dir()], len(f.AST.Doc.Text()))
	}
	var bad []string
	for _, dir := range slices.Sorted(maps.Keys(longest)) {
		if n := longest[dir]; n < minPackageDoc {
			bad = append(bad, fmt.Sprintf("%s: its package comment has %d characters, want %d", dir, n, minPackageDoc))
		}
	}
	return bad
}

// ExportedDocs checks that every exported name outside of programs has a doc comment.
func ExportedDocs(m Module) []string {
	var bad []string
	for _, f := range m.shipped() {
		if f.AST.Name.Name == "main" {
			continue
		}
		for _, decl := range f.AST.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				bad = append(bad, undocumentedFunc(f, d)...)
			case *ast.GenDecl:
				bad = append(bad, undocumentedSpecs(f, d)...)
			}
		}
	}
	return bad
}

// undocumentedFunc checks a function, or a method of an exported type.
func undocumentedFunc(f *File, d *ast.FuncDecl) []string {
	recv := receiver(d)
	if !d.Name.IsExported() || recv != "" && (!ast.IsExported(recv) || slices.Contains(undocumented, d.Name.Name)) {
		return nil
	}
	if d.Doc.Text() == "" {
		return []string{f.at(d.Pos(), "no doc comment: %s", funcName(d))}
	}
	return nil
}

// undocumentedSpecs checks types, constants and variables; a comment on the group or at the end of the line will do.
func undocumentedSpecs(f *File, d *ast.GenDecl) []string {
	var bad []string
	for _, spec := range d.Specs {
		var names []*ast.Ident
		var doc string
		switch s := spec.(type) {
		case *ast.TypeSpec:
			names, doc = []*ast.Ident{s.Name}, s.Doc.Text()+s.Comment.Text()
		case *ast.ValueSpec:
			names, doc = s.Names, s.Doc.Text()+s.Comment.Text()
		}
		for _, name := range names {
			if name.IsExported() && doc+d.Doc.Text() == "" {
				bad = append(bad, f.at(name.Pos(), "no doc comment: %s", name.Name))
			}
		}
	}
	return bad
}

// ShownValues checks that the doc page of a public package shows the values of its constants and variables: it shows the text
// of the declaration, and a reader can't look up a name of an internal package. Of an error the comment is enough: programs compare
// it, and don't read its text.
func ShownValues(m Module) []string {
	var bad []string
	for _, f := range m.shipped() {
		if f.AST.Name.Name == "main" || strings.Contains("/"+f.Dir()+"/", "/internal/") {
			continue
		}
		hidden := f.internals()
		for _, decl := range f.AST.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST && d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				bad = append(bad, hiddenValues(f, spec.(*ast.ValueSpec), hidden)...)
			}
		}
	}
	return bad
}

// hiddenValues checks the exported names of one line.
func hiddenValues(f *File, spec *ast.ValueSpec, hidden []string) []string {
	var bad []string
	for i, value := range spec.Values {
		sel, ok := value.(*ast.SelectorExpr)
		if name := spec.Names[i]; !ok || !name.IsExported() || strings.HasPrefix(name.Name, "Err") {
			continue
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && slices.Contains(hidden, pkg.Name) {
			bad = append(bad, f.at(value.Pos(), "the doc page does not show the value of %s: write it here", spec.Names[i].Name))
		}
	}
	return bad
}

// internals returns the names of the internal packages that the file imports.
func (f *File) internals() []string {
	var names []string
	for _, spec := range f.AST.Imports {
		if target := strings.Trim(spec.Path.Value, `"`); strings.Contains(target, "/internal/") {
			names = append(names, path.Base(target))
		}
	}
	return names
}

// receiver is the name of the method's type without stars and type parameters, "" of a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	expr := d.Recv.List[0].Type
	for {
		switch t := expr.(type) {
		case *ast.StarExpr:
			expr = t.X
		case *ast.IndexExpr:
			expr = t.X
		case *ast.IndexListExpr:
			expr = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// funcName is as a reader would search for it: "Store.Peek", "TableOf".
func funcName(d *ast.FuncDecl) string {
	return strings.TrimPrefix(receiver(d)+"."+d.Name.Name, ".")
}
