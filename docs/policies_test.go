package docs_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
)

// policyKeys reads the table of keys: the cells of each row, by key.
func policyKeys(t *testing.T) (keys []string, rows map[string][]string) {
	t.Helper()
	text := read(t, "policies.md")
	_, table, _ := strings.Cut(text, "\n|---|---|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows = map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		key := strings.Trim(cells[0], "`")
		keys, rows[key] = append(keys, key), cells
	}
	return keys, rows
}

// fieldsOf lists the keys of a struct in YAML, and their fields.
func fieldsOf(t reflect.Type, key, field string) (keys, fields []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		in := f.Type
		if in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		switch {
		case name == "-":
		case in.Kind() == reflect.Struct && field != "Fallback.": // whose links have the keys of the first one
			more, fs := fieldsOf(in, key+name+".", field+f.Name+".")
			keys, fields = append(keys, more...), append(fields, fs...)
		default:
			keys, fields = append(keys, key+name), append(fields, field+f.Name)
		}
	}
	return keys, fields
}

// policyWith returns a policy that is valid except for one key.
func policyWith(t *testing.T, key string, value any) (biztype.Policy, error) {
	t.Helper()
	fields := map[string]any{"name": "a", "number": 1, "group": "g"}
	switch outer, inner, deep := strings.Cut(key, "."); {
	case outer == "alarm":
		fields["alarm"] = map[string]any{"to": "b", inner: value}
	case outer == "webhook":
		fields[outer] = map[string]any{"url": "https://host/", inner: value}
	case outer == "pull":
		fields[outer] = map[string]any{inner: value}
	case outer == "sink":
		delete(fields, "group")
		fields[outer] = map[string]any{"name": "k", inner: value}
	case outer == "fallback":
		fields["sink"] = map[string]any{"name": "k"}
		fields[outer] = map[string]any{"sink": map[string]any{"name": "l"}, inner: value}
	case deep:
		fields[outer] = map[string]any{"base": "1ms", inner: value}
	case key != "":
		fields[key] = value
		if key == "per_key" {
			fields["strict"] = true
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	var p biztype.Policy
	if err := json.Unmarshal(text, &p); err != nil {
		return p, err
	}
	return p, biztype.Validate([]biztype.Policy{p})
}

// above is more than a number or a duration.
func above(text string) string {
	if d, err := time.ParseDuration(text); err == nil {
		return (d + time.Millisecond).String()
	}
	return text + "0"
}

var span = regexp.MustCompile("^`?([0-9][0-9a-z]*)`? to `?([0-9][0-9a-z]*)`?")

func TestThePageOfPoliciesHasEveryKeyWithItsBounds(t *testing.T) {
	t.Parallel()
	keys, rows := policyKeys(t)
	want, fields := fieldsOf(reflect.TypeFor[biztype.Policy](), "", "")
	if slices.Sort(keys); !slices.Equal(keys, slices.Sorted(slices.Values(want))) {
		t.Fatalf("the page has %q, a policy %q", keys, want)
	}
	checked := 0
	for i, key := range want {
		if in := rows[key][1]; key != "name" && in != "`"+fields[i]+"`" {
			t.Errorf("%s: the page says %s, the field is %s", key, in, fields[i])
		}
		bounds := span.FindStringSubmatch(rows[key][3])
		if bounds == nil {
			continue
		}
		checked++
		for text, ok := range map[string]bool{bounds[1]: true, bounds[2]: true, "-" + bounds[2]: false, above(bounds[2]): false} {
			var value any = text
			if !strings.ContainsAny(text, "smh") {
				value = json.Number(text)
			}
			if _, err := policyWith(t, key, value); (err == nil) != ok {
				t.Errorf("%s: %v: %v", key, value, err)
			}
		}
	}
	if checked < 8 {
		t.Errorf("%d rows have bounds", checked)
	}
}

func TestThePageOfPoliciesHasTheDefaults(t *testing.T) {
	t.Parallel()
	_, rows := policyKeys(t)
	for key, cells := range rows {
		said, _, _ := strings.Cut(strings.Trim(cells[2], "`"), ":")
		said, _, _ = strings.Cut(said, "`")
		if strings.HasPrefix(said, "required") || key == "group" || key == "alarm.on" {
			continue
		}
		with := ""
		if strings.HasPrefix(key, "alarm.") || strings.HasPrefix(key, "sink.") || key == "pull.lease" || key == "fallback.after" {
			with = key
		}
		p, err := policyWith(t, with, nil)
		if err != nil {
			t.Fatal(key, err)
		}
		got := valueAt(t, p.WithDefaults(), key)
		is, errA := time.ParseDuration(got)
		if on, errB := time.ParseDuration(said); got != said && (errA != nil || errB != nil || is != on) {
			t.Errorf("%s: the page says %q, the program %q", key, said, got)
		}
	}
}

// valueAt returns what a policy has for a key, as the page says it.
func valueAt(t *testing.T, p biztype.Policy, key string) string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var at any
	if err := json.Unmarshal(text, &at); err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(key, ".") {
		inner, _ := at.(map[string]any)
		at = inner[part]
	}
	switch key {
	case "rate":
		if at == nil {
			return "0"
		}
	case "strict", "paused", "history":
		if at == nil {
			return "false"
		}
	}
	if at == nil {
		return "none"
	}
	return fmt.Sprint(at)
}

// rolesTable is the table of all roles as docs/security.md shows it.
func rolesTable() string {
	var b strings.Builder
	b.WriteString("| role | for | rights |\n|---|---|---|\n")
	for _, r := range ddl.Roles() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Name, r.Does, strings.ReplaceAll(strings.Join(r.Needs(), "; "), "task_*", "`task_*`"))
	}
	return b.String()
}

func TestTheRolesOfTheDocsAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	text := read(t, "security.md")
	if want := rolesTable(); !strings.Contains(text, want) {
		t.Errorf("docs/security.md lacks this table:\n%s", want)
	}
}
