package yamlfile

import (
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// mostValues is how many values a file may make with its aliases: a merge of merges doubles with each line.
const mostValues = 100_000

// replacement is U+FFFD as it may be written in double quotes.
var replacement = regexp.MustCompile(`(?i)\x{FFFD}|\\u(0000)?fffd`)

// expand writes out the aliases and merges of a file, so that what they repeat is checked where it is used. It refuses a file whose aliases
// make too many values of it or name an anchor within itself, tags, and a tab in a text without quotes, which the YAML library drops.
func expand(body ast.Node) (ast.Node, error) {
	e := &expander{anchors: map[string]*anchored{}}
	body = e.expand(body)
	return body, e.err
}

type expander struct {
	anchors map[string]*anchored // the last one under each name
	values  int                  // how many there are so far
	err     error                // the first one
}

// anchored is a value with an anchor.
type anchored struct {
	node   ast.Node // nil: it is being expanded
	values int
}

func (e *expander) refuse(node ast.Node, format string, args ...any) {
	if e.err == nil {
		e.err = ErrorAt(node, format, args...)
	}
}

// expand returns a node without anchors, aliases and merges.
func (e *expander) expand(node ast.Node) ast.Node {
	if e.values++; e.values > mostValues {
		e.refuse(node, "with its aliases this is more than %d values: write out what is needed", mostValues)
	}
	if e.err != nil {
		return node
	}
	switch it := node.(type) {
	case *ast.AnchorNode:
		of, before := &anchored{}, e.values
		e.anchors[it.Name.GetToken().Value] = of
		value := e.expand(it.Value)
		*of = anchored{value, e.values - before}
		return value
	case *ast.AliasNode:
		name := it.Value.GetToken().Value
		of := e.anchors[name]
		if of != nil && of.node != nil {
			e.values += of.values
			return of.node
		}
		if of != nil {
			e.refuse(it, "this alias stands in what it is an alias of")
		}
		e.refuse(it, "no anchor &%s stands before this alias%s", name, indicators)
	case *ast.TagNode:
		e.refuse(it, "the tag %s: leave it out, and put a text that looks like a number into quotes", it.GetToken().Value)
	case *ast.MappingKeyNode:
		return e.expand(it.Value)
	case *ast.MappingValueNode:
		if key, ok := e.expand(it.Key).(ast.MapKeyNode); ok {
			it.Key = key
		} else {
			e.refuse(it, "a key must be a text")
		}
		it.Value = e.expand(it.Value)
	case *ast.MappingNode:
		for _, entry := range it.Values {
			e.expand(entry)
		}
		e.merge(it)
	case *ast.SequenceNode:
		for i := range it.Values {
			it.Values[i] = e.expand(it.Values[i])
		}
	case ast.ScalarNode:
		e.scalar(it)
	}
	return node
}

// scalar refuses a text that the library changes.
func (e *expander) scalar(node ast.ScalarNode) {
	switch tk := node.GetToken(); tk.Type {
	case token.SingleQuoteType, token.LiteralType, token.FoldedType:
	case token.DoubleQuoteType:
		if strings.Contains(tk.Value, "\ufffd") && !replacement.MatchString(tk.Origin) {
			e.refuse(node, "an escape in this text is no character of Unicode")
		}
	default:
		if strings.Contains(strings.TrimSpace(tk.Origin), "\t") { // it would be lost
			e.refuse(node, "a tab stands in a text without quotes: put the text into quotes")
		}
		if strings.Contains(tk.Value, ": ") { // of {h:1: x} it would make the key h
			e.refuse(node, `a text with ": " in it needs quotes`)
		}
	}
}

// merge replaces each key << of a mapping by what it merges: keys of the mapping itself come first, then the first of what is merged.
func (e *expander) merge(into *ast.MappingNode) {
	var own []*ast.MappingValueNode
	var merged []ast.Node
	known := map[string]bool{}
	for _, entry := range into.Values {
		if entry.Key.Type() != ast.MergeKeyType {
			own = append(own, entry)
			known[entry.Key.GetToken().Value] = true
		} else if list, ok := entry.Value.(*ast.SequenceNode); ok {
			merged = append(merged, list.Values...)
		} else {
			merged = append(merged, entry.Value)
		}
	}
	for _, node := range merged {
		mapping, ok := node.(*ast.MappingNode)
		if !ok {
			e.refuse(node, "<< takes a mapping, or a list of mappings")
			return
		}
		for _, entry := range mapping.Values {
			if key := entry.Key.GetToken().Value; !known[key] {
				copied := *entry // a text is made of its value if one belongs here
				own, known[key] = append(own, &copied), true
			}
		}
	}
	into.Values = own
}
