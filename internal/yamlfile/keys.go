package yamlfile

import (
	"errors"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// withKeys adds to the error about an unknown key which keys belong there: v is what the node was to be read into.
func withKeys(err error, node ast.Node, v any) error {
	var unknown *yaml.UnknownFieldError
	if !errors.As(err, &unknown) {
		return err
	}
	text := message(unknown)
	if keys := keysAround(node, reflect.TypeOf(v), unknown); keys != nil {
		text += ": use " + strings.Join(keys, ", ")
	}
	return &yaml.SyntaxError{Message: text, Token: unknown.Token}
}

// keysAround returns the keys of the struct into which the mapping with the unknown key was to be read; nil if a reader of
// its own reads it.
func keysAround(node ast.Node, t reflect.Type, unknown *yaml.UnknownFieldError) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n := node.(type) {
	case *ast.AnchorNode:
		return keysAround(n.Value, t, unknown)
	case *ast.SequenceNode:
		for _, item := range n.Values {
			if t.Kind() != reflect.Slice {
				break
			}
			if keys := keysAround(item, t.Elem(), unknown); keys != nil {
				return keys
			}
		}
	case *ast.MappingNode:
		return keysOf(n, t, unknown)
	}
	return nil
}

// keysOf is keysAround of a mapping.
func keysOf(n *ast.MappingNode, t reflect.Type, unknown *yaml.UnknownFieldError) []string {
	fields := map[string]reflect.Type{}
	var keys []string
	if t.Kind() == reflect.Struct {
		for _, field := range reflect.VisibleFields(t) {
			if key, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); key != "" && key != "-" {
				keys, fields[key] = append(keys, key), field.Type
			}
		}
	}
	for _, entry := range n.Values {
		key := entry.Key.GetToken()
		if *key.Position == *unknown.Token.Position {
			return keys
		}
		in, found := fields[key.Value]
		if t.Kind() == reflect.Map {
			in, found = t.Elem(), true
		}
		if !found {
			continue
		}
		if deeper := keysAround(entry.Value, in, unknown); deeper != nil {
			return deeper
		}
	}
	return nil
}
