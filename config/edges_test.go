package config_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/schedule"
)

// leaf is a number or a duration of a file.
type leaf struct {
	path []string // "[]": an entry of a list
	of   reflect.Type
}

// leaves lists the numbers and durations below a type.
func leaves(t reflect.Type, path ...string) (all []leaf) {
	switch {
	case t == reflect.TypeFor[tocsin.Duration](), t == reflect.TypeFor[time.Duration]():
		return []leaf{{path, t}}
	case t == reflect.TypeFor[time.Time]():
		return nil
	case t.Kind() == reflect.Pointer:
		return leaves(t.Elem(), path...)
	case t.Kind() == reflect.Slice:
		return leaves(t.Elem(), append(path[:len(path):len(path)], "[]")...)
	case t.Kind() == reflect.Map:
		return leaves(t.Elem(), append(path[:len(path):len(path)], "{}")...)
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64:
		return []leaf{{path, t}}
	case t.Kind() != reflect.Struct:
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case key == "-" || !f.IsExported():
		case options == "inline":
			all = append(all, leaves(f.Type, path...)...)
		default:
			all = append(all, leaves(f.Type, append(path[:len(path):len(path)], key)...)...)
		}
	}
	return all
}

// needed are the entries that mappings need, by their places.
var needed = map[string][]string{
	"":             {"layout: {databases: 1, tables: 1, prefix: toc}", "servers: [{name: a, dsn: 'u@tcp(h)/'}]"},
	"schedules.[]": {"name: a", "biz_type: b", "cron: '@daily'"},
}

// document is YAML with one value, beside what its mappings need.
func document(path []string, value string) string {
	text := value
	for i := len(path) - 1; i >= 0; i-- {
		switch path[i] {
		case "[]":
			text = "[" + text + "]"
		case "{}":
			text = "{x: " + text + "}"
		default:
			entries := []string{path[i] + ": " + text}
			for _, entry := range needed[strings.Join(path[:i], ".")] {
				if !strings.HasPrefix(entry, path[i]+":") && path[0] != "biz_types" && (i > 0 || path[0] != "schedules") {
					entries = append(entries, entry)
				}
			}
			text = "{" + strings.Join(entries, ", ") + "}"
		}
	}
	return text
}

// without is the document without the value.
func (l leaf) without() string {
	path := l.path[:len(l.path)-1]
	if l.path[len(path)] == "[]" {
		return document(path, "[]")
	}
	return document(path, "{"+strings.Join(needed[strings.Join(path, ".")], ", ")+"}")
}

// edges are values that no field takes.
func (l leaf) edges() []string {
	if l.of.Kind() == reflect.Int64 && l.of != reflect.TypeFor[int64]() {
		return []string{"-1s", "-1ns", "2562047h47m16.854775807s", "9223372036854775808h", "-9223372036854775808ns", "1e300s", ".inf", ".nan", "NaN", "30", "1ns", "999us", "0.1ms"}
	}
	values := []string{"-1", "18446744073709551616", "99999999999999999999999999999", "1e300", ".inf", "-.inf", ".nan", "1s"}
	if key := l.path[len(l.path)-1]; key != "number" && key != "biz_id" && key != "payload_version" { // they are names, not amounts
		values = append(values, "9223372036854775807")
	}
	return values
}

// Numbers and durations at the edges are refused where a file is read, in a line that names the key.
func TestValuesAtTheEdgesOfFilesAreRefused(t *testing.T) {
	t.Parallel()
	for file, of := range map[string]struct {
		leaves []leaf
		parse  func(text string) error
	}{
		"policies": {leaves(reflect.TypeFor[biztype.Policy](), "biz_types", "[]"), func(text string) error {
			_, err := biztype.Parse([]byte(text), "f.yaml")
			return err
		}},
		"schedules": {leaves(reflect.TypeFor[schedule.Definition](), "schedules", "[]"), func(text string) error {
			_, err := schedule.Parse([]byte(text), "f.yaml")
			return err
		}},
		"config": {leaves(reflect.TypeFor[config.File]()), func(text string) error {
			_, err := config.Parse([]byte(text), "f.yaml", func(string) (string, bool) { return "", false })
			return err
		}},
	} {
		t.Log(file, len(of.leaves))
		for _, l := range of.leaves {
			without := fmt.Sprint(of.parse(l.without()))
			for _, value := range l.edges() {
				err := of.parse(document(l.path, value))
				said := fmt.Sprint(err)
				named := slices.ContainsFunc(strings.Split(said, "\n"), func(line string) bool { return !strings.Contains(without, line) })
				if err == nil || !named {
					t.Errorf("%s %s: %s is taken: %s", file, strings.Join(l.path, "."), value, strings.ReplaceAll(said, "\n", " | "))
				}
			}
		}
	}
}
