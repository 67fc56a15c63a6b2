package yamlfile

import (
	"encoding"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/tocsinhq/tocsin/internal/name"
)

var (
	decimal    = regexp.MustCompile(`^-?(0|[1-9][0-9_]*)$`)
	ownReaders = reflect.TypeFor[yaml.NodeUnmarshaler]()
	ofText     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// fits refuses what the YAML library would bend to fit a value of type t, or refuses in words that help nobody: it cuts 4.5 to
// 4, reads 010 as 8 and takes a time without a zone for UTC; of an unknown key it does not say which keys belong there, and of
// a text that its type refuses not where the text stands.
func fits(node ast.Node, t reflect.Type) error {
	switch {
	case t.Kind() == reflect.Pointer:
		return fits(node, t.Elem())
	case t == reflect.TypeFor[time.Time]():
		return instant(node)
	case reflect.PointerTo(t).Implements(ownReaders):
		return nil
	case reflect.PointerTo(t).Implements(ofText):
		return readable(node, t)
	}
	switch n := node.(type) {
	case *ast.MappingNode:
		return entriesFit(n, t)
	case *ast.SequenceNode:
		return itemsFit(n, t)
	case *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
		return whole(n, t)
	}
	return nil
}

// whole refuses what is no number of a whole type, or out of its range: the library makes the smallest number of what is too large.
func whole(node ast.Node, t reflect.Type) error {
	if noun(t) != noun(reflect.TypeFor[int]()) {
		return nil
	}
	text := node.GetToken().Value
	if !decimal.MatchString(text) {
		return ErrorAt(node, "%q is not a whole number", text)
	}
	var err error
	if digits := strings.ReplaceAll(text, "_", ""); reflect.Zero(t).CanUint() {
		_, err = strconv.ParseUint(digits, 10, t.Bits())
	} else {
		_, err = strconv.ParseInt(digits, 10, t.Bits())
	}
	if err != nil {
		return ErrorAt(node, "%s is out of range", text)
	}
	return nil
}

// instant refuses what the YAML library would read as no time at all, and times without a zone.
func instant(node ast.Node) error {
	if _, null := node.(*ast.NullNode); null {
		return nil
	}
	text, _ := Text(node)
	if _, err := name.ReadTime(text); err != nil {
		return ErrorAt(node, "%s is not %s", written(node.GetToken().Value), noun(reflect.TypeFor[time.Time]()))
	}
	return nil
}

// readable refuses what a type that is written as a text can't read.
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

// entriesFit is fits for the entries of a mapping. Keys must be those of the struct that it is read into.
func entriesFit(n *ast.MappingNode, t reflect.Type) error {
	keys, fields := fieldsOf(t)
	for _, entry := range n.Values {
		key, plain := Text(entry.Key)
		field, known := fields[key]
		switch {
		case t.Kind() == reflect.Map:
			field = t.Elem()
			if name, ok := asWritten(entry.Key).(*ast.StringNode); ok {
				entry.Key = name
			}
			if entry.Key.Type() == ast.NullType || ofTexts(field) && entry.Value.Type() == ast.NullType {
				return ErrorAt(entry.Key, nothing)
			}
		case t.Kind() != reflect.Struct || !plain:
			continue
		case !known:
			return ErrorAt(entry.Key, "unknown key %q: use %s", key, strings.Join(keys, ", "))
		}
		if ofTexts(field) {
			entry.Value = asWritten(entry.Value)
		}
		if err := fits(entry.Value, field); err != nil {
			return err
		}
	}
	return nil
}

// nothing is what is wrong with null in a list, among texts and as a key: the library would make an empty text or a zero of it.
const nothing = `nothing stands here: write "" if an empty text is meant`

// ofTexts reports whether t is a text, or a pointer to one.
func ofTexts(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.String
}

// asWritten makes a text of a number or switch where a text belongs: the library would make 83 of a password 0123.
func asWritten(node ast.Node) ast.Node {
	switch n := node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return ast.String(n.GetToken())
	}
	return node
}

// unsplit makes one text of an item such as 127.0.0.1:2379, which the library takes for a mapping within braces: YAML 1.2 wants a blank
// after the colon.
func unsplit(node ast.Node) (text string, ok bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		if len(n.Values) == 1 && n.Start.Value != "{" {
			return unsplit(n.Values[0])
		}
	case *ast.MappingValueNode:
		key, plain := unsplit(n.Key)
		value, whole := unsplit(n.Value)
		first := n.Value.GetToken()
		if inner, is := n.Value.(*ast.MappingValueNode); is {
			first = inner.Key.GetToken()
		}
		return key + ":" + value, plain && whole && first.Position.Column == n.Start.Position.Column+1 && first.Position.Line == n.Start.Position.Line
	case *ast.StringNode:
		return n.Value, n.Token.Type == token.StringType
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// fieldsOf returns the keys of a struct in their order, and the type of each; none if t is no struct.
func fieldsOf(t reflect.Type) (keys []string, fields map[string]reflect.Type) {
	if t.Kind() != reflect.Struct {
		return nil, nil
	}
	fields = map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); key != "" && key != "-" {
			keys, fields[key] = append(keys, key), field.Type
		}
	}
	return keys, fields
}

// itemsFit is fits for the items of a list.
func itemsFit(n *ast.SequenceNode, t reflect.Type) error {
	if t.Kind() != reflect.Slice {
		return nil
	}
	for i, item := range n.Values {
		if item.Type() == ast.NullType {
			return ErrorAt(item, nothing)
		}
		if ofTexts(t.Elem()) {
			if text, split := unsplit(item); split {
				whole := *item.GetToken()
				whole.Value = text
				n.Values[i] = ast.String(&whole)
			}
			n.Values[i] = asWritten(n.Values[i])
			item = n.Values[i]
		}
		if err := fits(item, t.Elem()); err != nil {
			return err
		}
	}
	return nil
}
