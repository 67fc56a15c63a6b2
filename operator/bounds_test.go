package operator_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/worker"
)

// asked are the exported structs that callers fill in and that have numbers, durations or times, by package. Others are results, or
// passed between packages of this module.
var asked = map[string][]string{
	"tocsin":   {"Alarm", "Backoff", "Config", "Fallback", "Inserts", "Layout", "ListPlace", "ListQuery", "Policy", "Pull", "Server", "Webhook"},
	"node":     {"Config"},
	"worker":   {"Config"},
	"schedule": {"Definition", "Place", "Query"},
	"operator": {"ActsQuery", "DeadQuery", "Place", "Query", "RecentQuery"},
	"ddl":      {"MoveOptions", "Options", "RestoreOptions"},
	"webhook":  {"Config", "SinkConfig"},
	"outbox":   {"Key", "Range", "Row", "Session"}, // of drivers
}

// results are the structs with numbers that callers only read.
var results = map[string][]string{
	"tocsin":   {"Call", "Change", "Changing", "Info", "InsertLimitError", "Tasks"},
	"node":     {"Outcome", "Report"},
	"schedule": {"Applied", "Backfilled", "Began", "Due", "Fire", "LastRun", "Made", "MissedRun", "OpenRun", "PassResult", "Run", "Schedule", "SettledRun", "Turn"},
	"ddl":      {"Finished", "Owned", "Restored", "RestoredType", "Result"},
	"webhook":  {"Alarm", "Task"},
	"operator": {
		"Activity", "Answer", "DeadGroup", "DeadGroups", "Examination", "GridLine", "LastOwner", "NodeActivity", "Overview", "Rates", "Recent", "Redriven", "Run",
		"Sample", "ServerOverview", "ServerTrouble", "Share", "Stats", "Tables", "Tally", "TypeActivity", "TypeOverview", "Unserved", "Value", "View", "Watch",
	},
}

// A struct with a number that is new must be judged: whether callers fill it in, and then which values it refuses.
func TestAllStructsWithNumbersAreJudged(t *testing.T) {
	t.Parallel()
	for name := range asked {
		dir := "../" + strings.Replace(name, "tocsin", ".", 1)
		found := structsWithNumbers(t, dir)
		if want := slices.Sorted(slices.Values(slices.Concat(asked[name], results[name]))); !slices.Equal(found, want) {
			t.Errorf("package %s has %q, and %q are judged", name, found, want)
		}
	}
}

func structsWithNumbers(t *testing.T, dir string) []string {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			if of, ok := spec.Type.(*ast.StructType); ok && slices.ContainsFunc(of.Fields.List, isNumber) {
				found[spec.Name.Name] = true
			}
			return false
		})
	}
	return slices.Sorted(maps.Keys(found))
}

func isNumber(f *ast.Field) bool {
	if !slices.ContainsFunc(f.Names, func(n *ast.Ident) bool { return n.IsExported() }) {
		return false
	}
	of := f.Type
	for {
		switch inner := of.(type) {
		case *ast.StarExpr:
			of = inner.X
			continue
		case *ast.ArrayType:
			of = inner.Elt
			continue
		case *ast.SelectorExpr:
			return inner.Sel.Name == "Duration" || inner.Sel.Name == "Time"
		case *ast.Ident:
			return slices.Contains([]string{"int", "int32", "int64", "uint32", "uint64", "float64", "Duration"}, inner.Name)
		}
		return false
	}
}

// valid are structs that are accepted, each with what accepts it.
func valid() map[string]struct {
	of    any
	check func(any) error
} {
	tables := tocsin.Config{Layout: tocsin.Layout{Databases: 1, Tables: 1}, Cluster: "c", Servers: []tocsin.Server{{DSN: "u:p@tcp(h:1)/"}}}
	policy := tocsin.Policy{Name: "a.b", Number: 1, Webhook: &tocsin.Webhook{URL: "http://h/"}}
	return map[string]struct {
		of    any
		check func(any) error
	}{
		"tocsin.Config": {&tables, func(c any) error { return c.(*tocsin.Config).Validate() }},
		"tocsin.Layout": {&tocsin.Layout{Databases: 1, Tables: 1}, func(l any) error { return l.(*tocsin.Layout).Validate() }},
		"tocsin.Inserts": {&tocsin.Inserts{Rate: 1}, func(i any) error {
			c := tables
			c.Inserts = map[string]tocsin.Inserts{"a": *i.(*tocsin.Inserts)}
			return c.Validate()
		}},
		"tocsin.Server": {&tables.Servers[0], func(s any) error { c := tables; c.Servers = []tocsin.Server{*s.(*tocsin.Server)}; return c.Validate() }},
		"tocsin.Policy": {&policy, func(p any) error { return biztype.Validate([]tocsin.Policy{*p.(*tocsin.Policy)}) }},
		"tocsin.Backoff": {&tocsin.Backoff{}, func(b any) error {
			p := policy
			p.Backoff = *b.(*tocsin.Backoff)
			return biztype.Validate([]tocsin.Policy{p})
		}},
		"node.Config":         {&node.Config{Tables: tables, Ownership: node.ByRows}, func(c any) error { return c.(*node.Config).Validate() }},
		"worker.Config":       {&worker.Config{URLs: []string{"http://h"}}, func(c any) error { _, err := worker.New(*c.(*worker.Config)); return err }},
		"schedule.Definition": {&schedule.Definition{Name: "a", BizType: "b", Cron: "@daily"}, func(d any) error { return d.(*schedule.Definition).Validate() }},
		"ddl.Options":         {&ddl.Options{}, func(o any) error { _, err := ddl.Plan(tables, *o.(*ddl.Options)); return err }},
	}
}

// harmless are extreme values that mean what they say.
var harmless = map[string]bool{
	"tocsin.Policy.Edition":     true, // it is compared only
	"tocsin.Policy.Number":      true, // up to 2^63-1
	"node.Config.QueueCap":      true, // a bound of memory that is never reached
	"node.Config.PayloadBytes":  true,
	"node.Config.SweepTimeout":  true, // negative: none
	"schedule.Definition.BizID": true, "schedule.Definition.PayloadVersion": true,
	"worker.Config.AtOnce": true, // a bound that is never reached
}

// Each number, duration and time of a struct that callers fill in is refused in one line at its extremes, or means what it says. Nothing panics.
func TestExtremesAreRefused(t *testing.T) {
	t.Parallel()
	times := []time.Time{time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(999, 1, 1, 0, 0, 0, 0, time.UTC)}
	for name, c := range valid() {
		if err := c.check(c.of); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v := reflect.ValueOf(c.of).Elem()
		for i := range v.NumField() {
			f, field := v.Field(i), name+"."+v.Type().Field(i).Name
			var extremes []any
			switch {
			case !v.Type().Field(i).IsExported():
				continue
			case f.Type() == reflect.TypeFor[time.Time]():
				for _, at := range times {
					extremes = append(extremes, at)
				}
			case f.CanInt():
				extremes = []any{int64(math.MaxInt64), int64(math.MinInt64), int64(-1)}
			case f.CanUint():
				extremes = []any{uint64(math.MaxUint64)}
			case f.CanFloat():
				extremes = []any{math.NaN(), math.Inf(1), math.Inf(-1), -1.0, math.MaxFloat64}
			}
			was := reflect.New(f.Type()).Elem()
			was.Set(f)
			for _, extreme := range extremes {
				f.Set(reflect.ValueOf(extreme).Convert(f.Type()))
				err := c.check(c.of)
				if err == nil && !harmless[field] {
					t.Errorf("%s may be %v", field, extreme)
				}
				if err != nil && strings.Count(err.Error(), "\n") > 1 {
					t.Errorf("%s: %v", field, err)
				}
				f.Set(was)
			}
		}
	}
}

// Questions with times that no column holds, or with sizes that nobody can mean, are refused before a server is asked.
func TestQuestionsAtTheEdgesAreRefused(t *testing.T) {
	t.Parallel()
	o, _ := open(t)
	at := time.Unix(math.MaxInt64, 0)
	for name, err := range map[string]error{
		"find from":     second(o.Find(t.Context(), operator.Query{From: at, Limit: 1})),
		"find to":       second(o.Find(t.Context(), operator.Query{To: at, Limit: 1})),
		"find limit":    second(o.Find(t.Context(), operator.Query{Limit: math.MaxInt})),
		"redrive since": second(o.RedriveDead(t.Context(), operator.DeadQuery{Since: at})),
		"redrive until": second(o.RedriveDead(t.Context(), operator.DeadQuery{Until: at})),
		"redrive pace":  second(o.RedriveDead(t.Context(), operator.DeadQuery{PerSecond: math.MinInt})),
		"runs from":     second(o.RecentRuns(t.Context(), operator.RecentQuery{From: at, Limit: 1})),
		"runs to":       second(o.RecentRuns(t.Context(), operator.RecentQuery{To: at, Limit: 1})),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, _, err := o.Acts(t.Context(), operator.ActsQuery{From: at, Limit: 1}); err == nil {
		t.Error("acts from is accepted")
	}
}

func second[T any](_ T, err error) error { return err }
