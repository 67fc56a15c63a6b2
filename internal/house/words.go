package house

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

var (
	// emptyPackage are package names that say nothing of what is inside.
	emptyPackage = regexp.MustCompile(`^(utils?|helpers?|common|managers?|misc|shared|base)$`)
	// emptyType are endings of type names that do the same.
	emptyType = regexp.MustCompile(`(?i)(manager|helper|utils?|common)$`)
	// machinePath are folders of one machine, which nobody else has.
	machinePath = regexp.MustCompile(`(^|[^\w.-])/(work|root|Users|home)/\w`)
	// command is a use of the Makefile in a text: what follows is a target.
	command = regexp.MustCompile("(?m)(?:`|\\$ )make ([a-z0-9-]+)|^\\s*make ([a-z0-9-]+)(?:\\s*$|\\s+(?:[A-Z]+=|[#>&|]))")
	target  = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

// Names checks that packages and types have nouns of their own.
func Names(m Module) []string {
	var bad []string
	for _, f := range m.Go {
		if emptyPackage.MatchString(f.AST.Name.Name) {
			bad = append(bad, f.at(f.AST.Name.Pos(), "package %s says nothing of what is inside", f.AST.Name.Name))
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && emptyType.MatchString(spec.Name.Name) {
				bad = append(bad, f.at(spec.Pos(), "type %s: find the noun of the domain", spec.Name.Name))
			}
			return true
		})
	}
	return bad
}

// Sleep checks that nothing but a test sleeps: a loop that sleeps cannot be stopped.
func Sleep(m Module) []string {
	var bad []string
	for _, f := range m.shipped() {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" && isPackage(sel.X, "time") {
				bad = append(bad, f.at(sel.Pos(), "time.Sleep outside a test: use a timer and select on ctx.Done"))
			}
			return true
		})
	}
	return bad
}

func isPackage(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// Paths checks that no text names a folder of somebody's machine.
func Paths(m Module) []string {
	var bad []string
	for _, t := range m.Texts {
		for i, line := range strings.Split(t.Body, "\n") {
			if found := machinePath.FindString(line); found != "" {
				bad = append(bad, fmt.Sprintf("%s:%d: a path of one machine: %s", t.Path, i+1, strings.TrimSpace(found)))
			}
		}
	}
	return bad
}

// Targets checks that every `make x` of the documents and scripts is a target.
func Targets(m Module) []string {
	known := map[string]bool{}
	for _, t := range m.Texts {
		if t.Path == "Makefile" {
			for _, found := range target.FindAllStringSubmatch(t.Body, -1) {
				known[found[1]] = true
			}
		}
	}
	var bad []string
	for _, t := range m.Texts {
		if strings.HasSuffix(t.Path, ".go") {
			continue // English: "make sure"
		}
		for _, found := range command.FindAllStringSubmatch(t.Body, -1) {
			if name := found[1] + found[2]; !known[name] {
				bad = append(bad, fmt.Sprintf("%s: make %s is no target of the Makefile", t.Path, name))
			}
		}
	}
	return bad
}
