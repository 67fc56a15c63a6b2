package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tocsinhq/tocsin"
)

// plain is a request of each operation that takes something: its query, if it is a GET, or its body.
var plain = map[string]string{
	"act_on_tasks": `{"act": "reschedule", "job_ids": ["1"], "reason": "r", "delay_ms": 1000}`, "add_task": task(`"payload_version": 1`), "add_tasks": `{"tasks": [` + task(`"payload_version": 1`) + `]}`,
	"backfill_schedule": `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z"}`, "cancel_tasks": `{"biz_type": "order.close", "biz_id": "1"}`, "create_schedule": hourly("made", ""),
	"preview_schedule": hourly("made", ""), "put_schedule": hourly("fields", ""), "redrive_tasks": `{"biz_type": "order.close"}`, "reschedule_task": `{"delay_ms": 1000}`,
	"reschedule_tasks": `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1000}`, "reserve_tasks": `{"biz_types": ["pull.error"], "wait_ms": 0}`, "extend_leases": `{"leases": ["x"]}`,
	"settle_leases":      `{"settle": [{"lease": "1.0.00000000000000000000000000", "do": "snooze", "delay_ms": 1}], "reserve": {"biz_types": ["pull.error"], "wait_ms": 0}}`,
	"activate_schedules": `{"names": ["fields"]}`, "deactivate_schedules": `{"names": ["fields"]}`, "list_tasks": "status=pending",
	"pause_biz_type": `{}`, "resume_biz_type": `{}`, "activate_schedule": `{}`, "deactivate_schedule": `{}`, "bury_task": `{}`, "redrive_task": `{}`, "run_schedule": "", "delete_schedule": "",
	"group_dead_tasks": "", "list_acts": "", "list_runs": "", "list_schedules": "", "list_fire_times": "", "list_schedule_runs": "", "list_task_runs": "", "get_schedule": "", "get_biz_type": "",
	"get_task": "", "explain_task": "", "cancel_task": "", "list_nodes": "", "list_tables": "",
}

// boundless are fields whose bounds are not in the schema.
var boundless = map[string]string{
	"{}":        "the headers together have 1024 characters",
	"leases.[]": "a lease that nobody has is lost", "biz_types.[]": "a name that nobody has is not found", "names.[]": "a name that nobody has is not found",
}

// durations are fields whose text is one.
var durations = []string{"jitter", "start_within"}

// given is a value that a request may give.
type given struct {
	operation, method, path string
	in                      string // query, path, header, or body
	name                    []string
	of                      *openapi3.Schema
}

func (g given) String() string { return g.operation + " " + g.in + " " + strings.Join(g.name, ".") }

// below lists the values in a schema.
func (g given) below(ref *openapi3.SchemaRef) (all []given) {
	s := ref.Value
	deeper := func(name string, ref *openapi3.SchemaRef) {
		of := g
		of.name = append(slices.Clone(g.name), name)
		all = append(all, of.below(ref)...)
	}
	switch g.of = s; {
	case s.Type.Is("boolean"):
	case s.Items != nil:
		deeper("[]", s.Items)
	case s.AdditionalProperties.Schema != nil:
		deeper("{}", s.AdditionalProperties.Schema)
	case len(s.Properties) == 0 && len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) == 0:
		return []given{g}
	}
	for name, property := range s.Properties {
		deeper(name, property)
	}
	for _, one := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf) {
		all = append(all, g.below(one)...)
	}
	return all
}

// last is the name of the field, with those of lists.
func (g given) last() string {
	if at := len(g.name) - 1; at > 0 && strings.ContainsAny(g.name[at], "[]") {
		return g.name[at-1] + "." + g.name[at]
	}
	return g.name[len(g.name)-1]
}

// edges are values that the field must refuse, and others, which it may take. They are JSON.
func (g given) edges(t *testing.T) (refused, others []string) {
	s := g.of
	quoted := func(texts ...string) (all []string) {
		for _, text := range texts {
			all = append(all, fmt.Sprintf("%q", text))
		}
		return all
	}
	switch {
	case s.Format == "date-time":
		refused = quoted("10000-01-01T00:00:00Z", "9999-12-31T23:59:59-00:01", "-0001-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "0999-12-31T23:59:59Z", "2030-01-01T00:00:60Z", "2030-01-01T00:00:00+25:00", "2030-01-01")
		return append(refused, `1893456000`), quoted("9999-12-31T23:59:59.9999Z", "2030-01-01T00:00:00.0001Z", "1970-01-01T00:00:00Z")
	case g.last() == "wait_ms":
		return []string{"-1", "25001"}, []string{"0"} // it waits as long as it is told
	case s.Type.Is("integer"):
		refused = []string{"9223372036854775808", "-9223372036854775809", "1e300", "1.5", "0.0001", `"x"`}
		for end, by := range map[*float64]int64{s.Min: -1, s.Max: 1} {
			if end == nil && boundless[g.last()] == "" {
				t.Errorf("%s has no bound in the schema", g)
			} else if end != nil {
				value, _ := big.NewFloat(*end).Int(nil)
				others = append(others, value.String())
				refused = append(refused, value.Add(value, big.NewInt(by)).String())
			}
		}
		return refused, others
	case len(s.Enum) > 0:
		return quoted("x", " ", strings.Repeat("x", 9999)), nil
	case s.Pattern != "":
		return quoted("0", "-1", "18446744073709551616", "1.5", "1e3", "01", "+1", " 1", strings.Repeat("1", 9999)), quoted("18446744073709551615", "9223372036854775808")
	case slices.Contains(durations, g.last()):
		return quoted("-1s", "-1ns", "2562047h47m16.854775808s", "9223372036854775808h", "1e300s", ".inf", "NaN", "30", "1ns", "1500us", "0.1ms"), quoted("0s", "1ms", "1h")
	case s.MaxLength == nil && boundless[g.last()] == "":
		t.Errorf("%s has no bound in the schema", g)
	case s.MaxLength == nil:
		return nil, quoted("", strings.Repeat("x", 9999))
	}
	if most := int(*s.MaxLength); g.in != "header" {
		refused, others = quoted(strings.Repeat("a", most+1), strings.Repeat("ü", most+1)), quoted(strings.Repeat("a", most), strings.Repeat("ü", most))
	} else {
		refused, others = quoted(strings.Repeat("a", most+1)), quoted(strings.Repeat("a", most))
	}
	if s.MinLength > 0 {
		refused = append(refused, `""`)
	}
	return refused, others
}

// isRefusal reports whether an answer refuses the field in one line that names it. One to many things, and a preview, refuse each by itself.
func (g given) isRefusal(got reply) bool {
	switch {
	case got.status == http.StatusOK && g.operation == "preview_schedule":
		return strings.Contains(got.text, `"location":"body.`+g.name[0]+`"`)
	case got.status == http.StatusOK:
		return strings.Contains(got.text, `"failed":1`)
	case got.status == http.StatusNotFound && g.in == "path":
		return true
	}
	return got.status >= 400 && got.status < 500 && !strings.Contains(got.Detail, "\n") && strings.Contains(got.text, strings.TrimSuffix(g.last(), ".[]"))
}

// request is a request with a value.
func (g given) request(t *testing.T, value, id string) request {
	text := value
	_ = json.Unmarshal([]byte(value), &text)
	named := "fields"
	if strings.Contains(g.path, "/biz-types/") {
		named = "order.close"
	}
	r := request{method: g.method, header: map[string]string{"If-Match": "*"}}
	path, body := g.path, plain[g.operation]
	switch g.in {
	case "path":
		path = strings.NewReplacer("{id}", url.PathEscape(text), "{name}", url.PathEscape(text)).Replace(path)
	case "header":
		r.header[g.name[0]] = text
	case "body":
		body = placed(t, body, g.name, value)
	}
	r.path = strings.NewReplacer("{id}", id, "{name}", named).Replace(path)
	if g.in == "query" {
		r.path += "?" + g.name[0] + "=" + url.QueryEscape(text)
		if g.method == http.MethodGet && body != "" && !strings.HasPrefix(body, g.name[0]+"=") {
			r.path += "&" + body
		}
	}
	if g.method != http.MethodGet {
		r.body = body
	}
	return r
}

// instead are fields that a field is given in place of.
var instead = map[string]string{"due_time": "delay_ms", "biz_key": "biz_id", "key": "biz_id"}

// placed is JSON with a value in a place.
func placed(t *testing.T, text string, place []string, value string) string {
	if len(place) == 0 {
		return value
	}
	inner := func(in json.RawMessage) string { return placed(t, string(in), place[1:], value) }
	var list []json.RawMessage
	fields := map[string]json.RawMessage{}
	switch {
	case place[0] == "{}":
		return `{"a": ` + inner(nil) + `}`
	case place[0] == "[]" && text == "":
		return "[" + inner(nil) + "]"
	case place[0] == "[]":
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		return "[" + inner(list[0]) + "]"
	}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, instead[place[0]])
	fields[place[0]] = json.RawMessage(inner(fields[place[0]]))
	entries := []string{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		entries = append(entries, fmt.Sprintf("%q: %s", name, fields[name]))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// checksums are those of all tables of tasks, schedules and biz types.
func (s *served) checksums() string {
	s.t.Helper()
	var tables, sums []string
	for table := range s.Config.Layout.Total() {
		tables = append(tables, s.Config.Layout.Table(table))
	}
	for db := range s.Config.Layout.Databases {
		name := s.Config.Layout.Database(db)
		tables = append(tables, name+".schedule", name+".biz_type") // a refused change is an act too
	}
	rows, err := s.DB.QueryContext(s.t.Context(), "CHECKSUM TABLE "+strings.Join(tables, ", "))
	if err != nil {
		s.t.Fatal(err)
	}
	for rows.Next() {
		var name, sum string
		if err := rows.Scan(&name, &sum); err != nil {
			s.t.Fatal(err)
		}
		sums = append(sums, sum)
	}
	return strings.Join(sums, " ")
}

// requested lists all values that requests may give.
func requested(t *testing.T) (all []given) {
	doc, err := openapi3.NewLoader().LoadFromFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			g := given{operation: op.OperationID, method: method, path: path}
			for _, p := range op.Parameters {
				g.in, g.name = p.Value.In, []string{p.Value.Name}
				all = append(all, g.below(p.Value.Schema)...)
			}
			if op.RequestBody != nil {
				g.in, g.name = "body", nil
				all = append(all, g.below(op.RequestBody.Value.Content.Get("application/json").Schema)...)
			}
		}
	}
	return all
}

// Each number, time, duration and text that a request may give has bounds. A value beyond them is refused in one line that names the field,
// before anything is written; one within them is no fault of the server.
func TestFieldsOfTheAPIAtTheEdges(t *testing.T) {
	t.Parallel()
	s := newWalk(t)
	s.create(hourly("fields", ""))
	want[any](&s.served, http.StatusOK, post("/schedules/fields:deactivate", "")) // nobody makes runs of it
	id := s.add(closing.New(5, "", tocsin.In(time.Hour)))
	all, tried := requested(t), 0
	within := map[string][]request{}
	before := s.checksums()
	for _, g := range all {
		if _, known := plain[g.operation]; !known {
			t.Errorf("nobody has judged %s", g)
			continue
		}
		refused, others := g.edges(t)
		for _, value := range refused {
			tried++
			if got := s.do(g.request(t, value, id)); !g.isRefusal(got) {
				t.Errorf("%s %.60s: %d %.300s", g, value, got.status, got.text)
			}
		}
		for _, value := range others {
			within[g.String()+" "+value] = append(within[g.String()+" "+value], g.request(t, value, id))
		}
	}
	if s.checksums() != before {
		t.Error("a request that was refused has written something")
	}
	for name, requests := range within {
		for _, r := range requests {
			tried++
			if got := s.do(r); got.status >= 500 {
				t.Errorf("%.100s: %d %.300s", name, got.status, got.text)
			}
		}
	}
	t.Log(len(all), tried)
	if len(all) < 150 || tried < 1000 {
		t.Errorf("only %d values of %d fields", tried, len(all))
	}
}
