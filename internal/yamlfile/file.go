// Package yamlfile reads the YAML files that people write for Tocsin, and is the
// authority for how a mistake in one is told: "configs/biz.yaml:12: unknown key
// "tmeout"", one line, with the line it stands on.
//
// Reading is strict: unknown and repeated keys are errors, and so are a fraction
// for a whole number, a second document, an empty file, and aliases that make too much of it. Nothing of a file with a mistake
// is used.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// byteOrderMark is what some editors put in front of UTF-8.
var byteOrderMark = []byte("\ufeff")

// File is one parsed file.
type File struct {
	name string
	tree *ast.File
}

// Parse reads the text of a file; name stands in the messages.
func Parse(text []byte, name string) (file *File, err error) {
	defer rescue(name, &err)
	tree, err := parser.ParseBytes(bytes.TrimPrefix(text, byteOrderMark), 0)
	if err != nil {
		return nil, explain(name, err)
	}
	tree.Docs = slices.DeleteFunc(tree.Docs, func(d *ast.DocumentNode) bool { return d.Body != nil && d.Body.Type() == ast.DirectiveType }) // %YAML 1.2
	f := &File{name: name, tree: tree}
	switch {
	case len(tree.Docs) == 0 || tree.Docs[0].Body == nil:
		return nil, fmt.Errorf("%s:1: the file is empty", name)
	case len(tree.Docs) > 1:
		return nil, fmt.Errorf("%s:%d: a second document: one file holds one", name, line(tree.Docs[1].Body))
	}
	if err := aliases(tree.Docs[0].Body); err != nil {
		return nil, explain(name, err)
	}
	return f, nil
}

// Decode fills v, a pointer to a struct with yaml tags.
func (f *File) Decode(v any) (err error) {
	defer rescue(f.name, &err)
	body := f.tree.Docs[0].Body
	if err = fits(body, reflect.TypeOf(v)); err == nil {
		err = yaml.NodeToValue(body, v, yaml.Strict())
	}
	if err != nil {
		return explain(f.name, err)
	}
	return nil
}

// Errorf makes an error about the value at path, such as
// "$.servers[2].dsn"; where it is absent, the line is that of the nearest
// thing around it.
func (f *File) Errorf(path, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", f.name, f.line(path), fmt.Errorf(format, args...))
}

// line finds where path stands, or its nearest parent.
func (f *File) line(path string) int {
	for ; strings.ContainsAny(path, ".["); path = path[:strings.LastIndexAny(path, ".[")] {
		if node := f.at(path); node != nil {
			return line(node)
		}
	}
	return line(f.tree.Docs[0].Body)
}

// at returns the node at path, or nil.
func (f *File) at(path string) ast.Node {
	p, err := yaml.PathString(path)
	if err != nil {
		return nil
	}
	node, err := p.FilterFile(f.tree)
	if err != nil {
		return nil
	}
	return node
}

// Null reports whether the key at path stands there without a value.
func (f *File) Null(path string) bool {
	_, null := f.at(path).(*ast.NullNode)
	return null
}

// line gives the first line of a node. A mapping's own token is the colon of
// its first entry, which stands on the same line as the key.
func line(node ast.Node) int {
	if node == nil || node.GetToken() == nil {
		return 1
	}
	return node.GetToken().Position.Line
}

// ErrorAt is for UnmarshalYAML methods: an error about a node, whose line
// Decode then adds.
func ErrorAt(node ast.Node, format string, args ...any) error {
	return &yaml.SyntaxError{Message: fmt.Sprintf(format, args...), Token: node.GetToken()}
}

// Text gives the text of a scalar as it was written, without quotes; ok is
// false for mappings, sequences and null.
func Text(node ast.Node) (text string, ok bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// rescue turns a panic of the YAML library, which some broken files cause (a
// tag without a value, say), into an error.
func rescue(name string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s:1: the file is not YAML that can be read: %v", name, p)
	}
}

// explain turns the parser's error into one line.
func explain(name string, err error) error {
	var known yaml.Error
	if !errors.As(err, &known) || known.GetToken() == nil {
		return fmt.Errorf("%s:1: %s", name, firstLine(err.Error()))
	}
	return fmt.Errorf("%s:%d: %s", name, known.GetToken().Position.Line, message(known))
}

func firstLine(s string) string {
	head, _, _ := strings.Cut(s, "\n")
	return head
}
