// Package yamlfile reads the YAML files that people write for Tocsin, and is the
// authority for how a mistake in one is told: "configs/biz.yaml:12: unknown key
// "tmeout"", one line, with the line it stands on.
//
// Reading is strict: unknown and repeated keys are errors, and so are a fraction
// for a whole number, a second document, an empty file, tags, bytes that are not UTF-8, and aliases that make too much of it.
// Nothing of a file with a mistake is used.
package yamlfile

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// File is one parsed file.
type File struct {
	name string
	tree *ast.File
}

// Parse reads the text of a file; name stands in the messages.
func Parse(text []byte, name string) (file *File, err error) {
	defer rescue(name, &err)
	plain, err := document(string(text), name)
	if err != nil {
		return nil, err
	}
	tree, err := parser.ParseBytes([]byte(plain), 0)
	if err != nil {
		return nil, explain(name, err)
	}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil {
		return nil, fmt.Errorf("%s:1: the file is empty", name)
	}
	if tree.Docs[0].Body, err = expand(tree.Docs[0].Body); err != nil {
		return nil, explain(name, err)
	}
	return &File{name: name, tree: tree}, nil
}

var (
	lineEnds  = strings.NewReplacer("\r\n", "\n", "\r", "\n")
	marker    = regexp.MustCompile(`^(---|\.\.\.)([ \t\n]|$)`)
	directive = regexp.MustCompile(`^%(YAML|TAG)[ \t]`)
	control   = regexp.MustCompile(`[\x00-\x08\x0B-\x1F]`) // as YAML 1.2 (5.1) leaves them out
)

// document returns the only document of a file, with line feeds as its line ends: the YAML library reads a text of several lines wrongly
// if they end in CR LF, takes bytes that are no UTF-8, and loses documents.
func document(text, name string) (string, error) {
	text = lineEnds.Replace(strings.TrimPrefix(text, "\ufeff")) // which some editors put in front of UTF-8
	lines := strings.SplitAfter(text, "\n")
	begun, end := false, len(lines)
	for i, line := range lines {
		if !utf8.ValidString(line) {
			return "", fmt.Errorf("%s:%d: this line is not UTF-8: save the file as UTF-8", name, i+1)
		}
		if odd := control.FindString(line); odd != "" {
			return "", fmt.Errorf("%s:%d: the character %U stands here: write it as an escape in double quotes", name, i+1, []rune(odd)[0])
		}
		mark := marker.FindString(line)
		if mark != "" && begun {
			end = min(end, i)
		}
		switch rest := strings.TrimSpace(line[len(mark):]); {
		case !begun && (rest == "" && mark != "" || directive.MatchString(line)):
			lines[i] = "\n"
		case rest == "" || rest[0] == '#':
		case end < len(lines):
			return "", fmt.Errorf("%s:%d: a second document: one file holds one", name, i+1)
		default:
			begun = true
		}
	}
	return strings.Join(lines[:end], ""), nil
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
