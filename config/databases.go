package config

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/yamlfile"
)

// Databases is a list of database numbers. In YAML it holds numbers and ranges,
// [0-3, 6], or is one of them alone.
type Databases []int

// UnmarshalYAML reads the list.
func (d *Databases) UnmarshalYAML(node ast.Node) error {
	items := []ast.Node{node}
	if list, ok := node.(*ast.SequenceNode); ok {
		items = list.Values
	}
	numbers := Databases{}
	for _, item := range items {
		first, last, ok := span(item)
		if !ok {
			return yamlfile.ErrorAt(item, "databases: numbers such as 3 and ranges such as 0-3 belong here, from 0 to %d", tocsin.MaxTables-1)
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, n)
		}
	}
	*d = numbers
	return nil
}

// span reads one number or range, both ends included.
func span(node ast.Node) (first, last int, ok bool) {
	text, ok := yamlfile.Text(node)
	if !ok {
		return 0, 0, false
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, errFirst := strconv.Atoi(strings.TrimSpace(from))
	last, errLast := strconv.Atoi(strings.TrimSpace(to))
	ok = errFirst == nil && errLast == nil && 0 <= first && first <= last && last < tocsin.MaxTables
	return first, last, ok
}
