package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sqlHomes are where SQL text stands, sqlTools further ones that set up, or break, connections and servers. test/bench holds
// the raw bound: the same work without Tocsin, which must not move with Tocsin's own statements. Examples have tables of their own.
// Test kits read rows of their own databases as no program may.
var (
	sqlHomes = []string{".", "internal/client", "ddl", "biztype", "internal/store", "schedule", "outbox", "contrib/tocsinpg", "contrib/tocsinpg/...", "internal/layoutrow"}
	sqlTools = []string{"internal/mysql", "internal/devserver", "internal/devserver/...", "test/chaos", "internal/house", "test/bench", "examples/...", "node/nodetest", "test/relaytest", "tocsintest"}
)

// statement matches text that looks like a statement, and no English sentence: "select one from the list".
var statement = regexp.MustCompile(`(?s)\b(SELECT|DELETE)\b.+\bFROM\s|\bSELECT\s+(@@|\d|[A-Z_0-9]+\()|\bSET\s+(SESSION|GLOBAL)\s` +
	"|(?i)\\binsert\\s+(/\\*.*?\\*/\\s*)?(ignore\\s+)?into\\s|\\bdelete\\s+(/\\*.*?\\*/\\s*)?from\\s+[`\\w]+\\.|\\bupdate\\s+(/\\*.*?\\*/\\s*)?\\S+\\s+set\\s" +
	`|\b(create|alter|drop|truncate)\s+(table|database|index)\s+(if\s|[` + "`" + `\w]+[.` + "`" + `])`)

// manipulation matches what the senders' comment is asked of: a literal that begins a statement on rows.
var manipulation = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE)\b`)

// unnamed matches a statement that breaks, or reads the wrong columns, where a table has columns that it does not know: an
// older program runs beside newer tables.
var unnamed = regexp.MustCompile(`(?is)^\s*select\s+(/\*.*?\*/\s*)?\*|\binsert\s+(/\*.*?\*/\s*)?(ignore\s+)?into\s+\S+\s+(values|select\s+[^*])`)

// SQL checks that statements stand in their homes alone, as named constants, and name who sends them and their columns.
func SQL(m Module) []string {
	var bad []string
	for _, f := range m.shipped() {
		home := coversAny(sqlHomes, f.Dir())
		if !home && coversAny(sqlTools, f.Dir()) {
			continue
		}
		eachString(f.AST, func(lit *ast.BasicLit, text string) {
			switch {
			case !statement.MatchString(text):
			case !home:
				bad = append(bad, f.at(lit.Pos(), "SQL text belongs to %s: %.40q", strings.Join(sqlHomes, ", "), text))
			case manipulation.MatchString(text) && inFunction(f, lit):
				bad = append(bad, f.at(lit.Pos(), "the statement is no named constant: %.40q", text))
			case manipulation.MatchString(text) && !strings.Contains(text, "/* tocsin"):
				bad = append(bad, f.at(lit.Pos(), "the statement does not name its sender, /* tocsin peek */: %.40q", text))
			case unnamed.MatchString(text):
				bad = append(bad, f.at(lit.Pos(), "the statement does not name its columns: %.40q", text))
			}
		})
	}
	return bad
}

// eachString calls fn for the string literals below a node; those of imports and tags are strings too, and harmless.
func eachString(root ast.Node, fn func(lit *ast.BasicLit, text string)) {
	ast.Inspect(root, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				fn(lit, text)
			}
		}
		return true
	})
}

// inFunction reports whether the literal stands in a function, where nobody finds it by name.
func inFunction(f *File, lit *ast.BasicLit) bool {
	return slices.ContainsFunc(f.AST.Decls, func(d ast.Decl) bool {
		_, ok := d.(*ast.FuncDecl)
		return ok && d.Pos() <= lit.Pos() && lit.End() <= d.End()
	})
}
