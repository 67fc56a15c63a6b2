package yamlfile

import "github.com/goccy/go-yaml/ast"

// mostValues is how many values a file may make with its aliases: a merge of merges doubles with each line.
const mostValues = 100_000

// aliases refuses a file whose aliases make too many values of it, or that name an anchor within itself.
func aliases(body ast.Node) error {
	w := &weigher{anchors: map[string]int{}}
	w.weigh(body)
	return w.err
}

// weigher counts the values of a file as if each alias were written out.
type weigher struct {
	anchors map[string]int // values of what was anchored last under a name; 0: it is being weighed
	err     error
}

func (w *weigher) weigh(node ast.Node) (n int) {
	if node == nil || w.err != nil {
		return 0
	}
	switch it := node.(type) {
	case *ast.AnchorNode:
		name := it.Name.GetToken().Value
		w.anchors[name] = 0
		n = w.weigh(it.Value)
		w.anchors[name] = n
	case *ast.AliasNode:
		of, known := w.anchors[it.Value.GetToken().Value]
		if known && of == 0 {
			w.err = ErrorAt(it, "this alias stands in what it is an alias of")
		}
		n = of
	case *ast.TagNode:
		n = w.weigh(it.Value)
	case *ast.MappingKeyNode:
		n = w.weigh(it.Value)
	case *ast.MappingValueNode:
		n = w.weigh(it.Key) + w.weigh(it.Value)
	case *ast.MappingNode:
		for _, value := range it.Values {
			n += w.weigh(value)
		}
	case *ast.SequenceNode:
		for _, value := range it.Values {
			n += w.weigh(value)
		}
	}
	if n++; n > mostValues && w.err == nil {
		w.err = ErrorAt(node, "with its aliases this is more than %d values: write out what is needed", mostValues)
	}
	return n
}
