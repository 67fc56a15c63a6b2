package yamlfile

import (
	"encoding"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

var (
	decimal    = regexp.MustCompile(`^-?(0|[1-9][0-9_]*)$`)
	ownReaders = reflect.TypeFor[yaml.NodeUnmarshaler]()
	ofText     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// whole refuses what the YAML library would bend into a whole number of a field
// of type t: it cuts 4.5 to 4 and reads 010 as 8. It also refuses bad times, and texts that their type refuses.
func whole(node ast.Node, t reflect.Type) error {
	if t.Kind() == reflect.Pointer {
		return whole(node, t.Elem())
	}
	if t == reflect.TypeFor[time.Time]() {
		return instant(node)
	}
	if reflect.PointerTo(t).Implements(ownReaders) {
		return nil
	}
	if reflect.PointerTo(t).Implements(ofText) {
		return readable(node, t)
	}
	switch n := node.(type) {
	case *ast.AnchorNode:
		return whole(n.Value, t)
	case *ast.MappingNode:
		return wholeFields(n, t)
	case *ast.SequenceNode:
		return wholeItems(n, t)
	case *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
		if text := n.GetToken().Value; noun(t) == noun(reflect.TypeFor[int]()) && !decimal.MatchString(text) {
			return ErrorAt(n, "%q is not a whole number", text)
		}
	}
	return nil
}

// instant refuses what the YAML library would read as no time at all, and times without a zone, which it takes for UTC.
func instant(node ast.Node) error {
	if _, null := node.(*ast.NullNode); null {
		return nil
	}
	text, _ := Text(node)
	if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
		return ErrorAt(node, "%s is not %s", written(node.GetToken().Value), noun(reflect.TypeFor[time.Time]()))
	}
	return nil
}

// readable refuses what a type that is written as a text can't read. The YAML library does not say where that stands.
func readable(node ast.Node, t reflect.Type) error {
	text, ok := Text(node)
	if !ok {
		return ErrorAt(node, "%s belongs here", noun(t))
	}
	if err := reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
		return ErrorAt(node, "%s", err)
	}
	return nil
}

func wholeFields(n *ast.MappingNode, t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, entry := range n.Values {
		for _, field := range reflect.VisibleFields(t) {
			key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if key != entry.Key.GetToken().Value {
				continue
			}
			if err := whole(entry.Value, field.Type); err != nil {
				return err
			}
		}
	}
	return nil
}

func wholeItems(n *ast.SequenceNode, t reflect.Type) error {
	if t.Kind() != reflect.Slice {
		return nil
	}
	for _, item := range n.Values {
		if err := whole(item, t.Elem()); err != nil {
			return err
		}
	}
	return nil
}
