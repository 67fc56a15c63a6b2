package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tocsinhq/tocsin/config"
)

// schemaNode is what the tests read of a JSON Schema.
type schemaNode struct {
	Ref        string                `json:"$ref"`
	Properties map[string]schemaNode `json:"properties"`
	Additional any                   `json:"additionalProperties"`
	Items      *schemaNode           `json:"items"`
	Defs       map[string]schemaNode `json:"$defs"`
}

func chartSchema(t *testing.T) schemaNode {
	t.Helper()
	var s schemaNode
	if err := json.Unmarshal([]byte(deployed(t, "helm/tocsin/values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// in follows a reference of the whole schema.
func (s schemaNode) in(whole schemaNode) schemaNode {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		return whole.Defs[name]
	}
	return s
}

func TestTheChartsSchemaHasEveryKeyOfTheConfig(t *testing.T) {
	t.Parallel()
	whole := chartSchema(t)
	sameKeys(t, whole, whole.Properties["config"], reflect.TypeFor[config.File](), "config")
}

// sameKeys wants the keys of a struct of the config, no others, and the same of the structs in it.
func sameKeys(t *testing.T, whole, s schemaNode, of reflect.Type, path string) {
	t.Helper()
	s = s.in(whole)
	if of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct && s.Items != nil {
		s, of = s.Items.in(whole), of.Elem()
	}
	if of.Kind() != reflect.Struct || s.Properties == nil {
		return
	}
	var keys []string
	for _, field := range reflect.VisibleFields(of) {
		if key := field.Tag.Get("yaml"); key != "" {
			keys = append(keys, key)
			sameKeys(t, whole, s.Properties[key], field.Type, path+"."+key)
		}
	}
	slices.Sort(keys)
	if got := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(got, keys) || s.Additional != false {
		t.Errorf("%s: the schema has %v, and others: %v; the config has %v", path, got, s.Additional, keys)
	}
}

// The chart's values, their schema, and the table of docs/deployment.md name the same keys, with the same defaults.
func TestTheChartsValuesAreInItsSchemaAndInTheDocs(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(deployed(t, "helm/tocsin/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	whole := chartSchema(t)
	delete(whole.Properties, "global") // of Helm
	page := deployed(t, "../docs/deployment.md")
	values["config"] = []any{} // has a test of its own
	sameValues(t, whole, whole, values, "", page)
}

func sameValues(t *testing.T, whole, s schemaNode, values map[string]any, path, page string) {
	t.Helper()
	if got, want := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(values)); !slices.Equal(got, want) {
		t.Errorf("%q: the schema has %v, values.yaml %v", path, got, want)
	}
	for key, value := range values {
		part := s.Properties[key].in(whole)
		if m, ok := value.(map[string]any); ok && part.Properties != nil {
			sameValues(t, whole, part, m, path+key+".", page)
			continue
		}
		row := fmt.Sprintf("| `%s%s` | ", path, key)
		switch value.(type) {
		case []any, map[string]any:
		case string:
			row += fmt.Sprintf("`%q` | ", value)
		default:
			row += fmt.Sprintf("`%v` | ", value)
		}
		if !strings.Contains(page, "\n"+row) {
			t.Errorf("docs/deployment.md has no row %s", row)
		}
	}
}
