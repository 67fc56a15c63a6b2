package operator_test

import (
	"cmp"
	"context"
	"errors"
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

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/webhook"
	"github.com/tocsinhq/tocsin/worker"
)

// asked are the exported structs that callers fill in and that have numbers, durations or times, by package. Others are results, or
// passed between packages of this module.
var asked = map[string][]string{
	"tocsin":   {"Alarm", "Backoff", "Config", "Fallback", "Inserts", "Layout", "ListPlace", "ListQuery", "Policy", "Pull", "Server", "Webhook"},
	"node":     {"Config"},
	"worker":   {"Config"},
	"schedule": {"Definition", "Place", "Query"},
	"operator": {"Act", "ActsQuery", "DeadQuery", "Place", "Query", "RecentQuery"},
	"ddl":      {"MoveOptions", "Options", "RestoreOptions"},
	"webhook":  {"Config", "SinkConfig"},
	"outbox":   {"Key", "Range", "Row", "Session"}, // of drivers
}

// results are the structs with numbers that callers only read.
var results = map[string][]string{
	"tocsin":   {"Added", "Call", "Change", "Changing", "Info", "InsertLimitError", "Tasks"},
	"node":     {"Outcome", "Report"},
	"schedule": {"Applied", "Backfilled", "Began", "Due", "Fire", "LastRun", "Made", "MissedRun", "OpenRun", "PassResult", "Run", "Schedule", "SettledRun", "Turn"},
	"ddl":      {"Finished", "Owned", "Restored", "RestoredType", "Result"},
	"webhook":  {"Alarm", "Task"},
	"operator": {
		"Acted", "Activity", "Answer", "DeadGroup", "DeadGroups", "Examination", "GridLine", "LastOwner", "NodeActivity", "Overview", "Rates", "Recent", "Redriven", "Run",
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
	found := map[string]bool{}
	for _, file := range filesOf(t, dir) {
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

// filesOf parses the files of a package, but for its tests.
func filesOf(t *testing.T, dir string) (files []*ast.File) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

func isNumber(f *ast.Field) bool {
	return slices.ContainsFunc(f.Names, func(n *ast.Ident) bool { return n.IsExported() }) && ofNumbers(f.Type)
}

// ofNumbers reports whether a type is one of numbers, durations or times, or a pointer to one, or a list. N stands for any whole number.
func ofNumbers(of ast.Expr) bool {
	for {
		switch inner := of.(type) {
		case *ast.StarExpr:
			of = inner.X
			continue
		case *ast.ArrayType:
			of = inner.Elt
			continue
		case *ast.Ellipsis:
			of = inner.Elt
			continue
		case *ast.SelectorExpr:
			return slices.Contains([]string{"Duration", "Time", "JobID"}, inner.Sel.Name)
		case *ast.Ident:
			return slices.Contains([]string{"int", "int32", "int64", "uint32", "uint64", "float64", "Duration", "JobID", "N"}, inner.Name)
		}
		return false
	}
}

// engines are functions with numbers, durations or times that only packages of this module call, or that only show what they are given.
var engines = []string{
	"schedule.Runs.Begin hold", "schedule.Unwanted fire", "schedule.Runs.Look server", "schedule.Turn.Refused now", "schedule.Turn.Late now", "operator.Short d", "operator.Ranges numbers",
	"operator.Grid perDatabase", "operator.Grid width", "webhook.Body now", "outbox.Full limit", "outbox.Row.Left at",
}

// ofLayout are numbers of tables and databases, which count from 0 to those of the layout.
var ofLayout = []string{"tocsin.Layout.DatabaseOf table", "tocsin.Layout.Database database", "tocsin.Layout.Table table", "tocsin.Layout.TableName table"}

var errMeant = errors.New("it means what it says")

// meant returns an error if the extreme means what it says.
func meant(is bool) error {
	if !is {
		return nil
	}
	return errMeant
}

// withIDs calls a function with ids that no task and no schedule has.
func withIDs(call func(tocsin.JobID) error) []error {
	return []error{call(0), call(1), call(math.MaxUint64), call(math.MaxInt64)}
}

// parameters are the numbers, durations and times that callers hand to functions, each with what calls at its extremes return.
func parameters(t *testing.T) map[string][]error {
	o, c := open(t)
	late, ctx, layout := time.Duration(math.MaxInt64), t.Context(), c.Config.Layout
	add := func(task tocsin.NewTask) error { return second(c.Client.Add(ctx, task)) }
	policy := tocsin.Policy{Name: "a.b"}.WithDefaults()
	batch := func(most int) (err error) {
		defer func() { err = meant(recover() == nil) }()
		node.HandleBatch(&node.Handlers{}, closing, most, func(context.Context, []*tocsin.Task[string]) []error { return nil })
		return nil
	}
	waits := func(err error) error { _, in, _ := tocsin.AsOutcome(err); return meant(in >= 0) }
	found, err := c.Client.List(ctx, math.MaxUint64)
	all := map[string][]error{
		"tocsin.In d":                  {add(closing.New(1, "", tocsin.In(late))), meant(add(closing.New(1, "", tocsin.In(-late))) == nil)},
		"tocsin.At t":                  {add(closing.New(1, "", tocsin.At(time.Unix(math.MaxInt64, 0)))), add(closing.New(1, "", tocsin.At(time.Unix(math.MinInt64, 0))))},
		"tocsin.BizType.New bizID":     {add(closing.New(0, "", tocsin.In(0)))},
		"tocsin.BizType.Of bizID":      {second(c.Client.Cancel(ctx, closing.Of(0)))},
		"tocsin.New bizID":             {add(tocsin.New(closing, int64(-1), "", tocsin.In(0))), add(tocsin.New(closing, int64(math.MinInt64), "", tocsin.In(0)))},
		"tocsin.Of bizID":              {second(c.Client.Cancel(ctx, tocsin.Of(closing, int64(-1))))},
		"tocsin.List bizID":            {second(tocsin.List(ctx, c.Client, int64(-1)))},
		"tocsin.Client.List bizID":     {meant(len(found) == 0 && err == nil)},
		"tocsin.Client.ServerOf bizID": {meant(c.Client.ServerOf(math.MaxUint64) != "")},
		"tocsin.Layout.TableOf bizID":  {meant(layout.TableOf(math.MaxUint64) < layout.Total())},
		"tocsin.ByID id":               withIDs(func(id tocsin.JobID) error { return second(c.Client.Cancel(ctx, tocsin.ByID(id))) }),
		"tocsin.Client.Get id":         withIDs(func(id tocsin.JobID) error { return second(c.Client.Get(ctx, id)) }),
		"tocsin.OutputOf id":           withIDs(func(id tocsin.JobID) error { tocsin.OutputOf(ctx, id, "x"); return errMeant }),
		"tocsin.Policy.Wait n":         {meant(policy.Wait(math.MaxInt, func() float64 { return 0.5 }) <= policy.Backoff.Max.D()), meant(policy.Wait(math.MinInt, func() float64 { return 0 }) > 0)},
		"tocsin.BizType.Version n":     {add(closing.Version(math.MinInt).New(1, "", tocsin.In(0))), meant(add(closing.Version(math.MaxInt).New(2, "", tocsin.In(0))) == nil)},
		"tocsin.RetryIn d":             {waits(tocsin.RetryIn(late, errMeant)), waits(tocsin.RetryIn(-late, errMeant))},
		"tocsin.Snooze d":              {waits(tocsin.Snooze(late)), waits(tocsin.Snooze(-late))},
		"node.HandleBatch most":        {batch(math.MinInt), batch(math.MaxInt)},

		"operator.Operator.Redrive id":        withIDs(func(id tocsin.JobID) error { return second(o.Redrive(ctx, id)) }),
		"operator.Operator.RedriveSameKey id": withIDs(func(id tocsin.JobID) error { return second(o.RedriveSameKey(ctx, id)) }),
		"operator.Operator.Bury id":           withIDs(func(id tocsin.JobID) error { return second(o.Bury(ctx, id, "x")) }),
		"operator.View.Why id": withIDs(func(id tocsin.JobID) error { // it says that the task is not there
			return cmp.Or(second(operator.View{Tables: c.Config, ByRows: true}.Why(ctx, id, nil, nil)), errMeant)
		}),
		"ddl.SetSweepGrace grace": {second(ddl.SetSweepGrace(ctx, c.Config, late, true)), second(ddl.SetSweepGrace(ctx, c.Config, -1, true)), second(ddl.SetSweepGrace(ctx, c.Config, time.Minute+1, true))},
		"webhook.NewMemory n":     {meant(webhook.NewMemory(math.MaxInt).Put(ctx, "k") == nil), meant(webhook.NewMemory(math.MinInt).Put(ctx, "k") == nil)},
		"outbox.DelayOf ms":       {meant(*outbox.DelayOf(math.MinInt64) == 0), meant(*outbox.DelayOf(math.MaxInt64) > 0)},
		"outbox.AgeOf micros":     {meant(outbox.AgeOf(math.MinInt64) < 0), meant(outbox.AgeOf(math.MaxInt64) > 0)},
	}
	maps.Copy(all, parametersOfSchedules(t, c.Config))
	return all
}

func parametersOfSchedules(t *testing.T, cfg tocsin.Config) map[string][]error {
	ctx := t.Context()
	s, err := schedule.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	d := schedule.Definition{Name: "hourly", BizType: closing.Name(), Cron: "@hourly"}
	if _, err := s.Create(ctx, d); err != nil {
		t.Fatal(err)
	}
	stored, err := s.Get(ctx, d.Name)
	if err != nil {
		t.Fatal(err)
	}
	daily, now, first, last := d, time.Now(), time.Unix(math.MinInt64, 0), time.Unix(math.MaxInt64, 0)
	daily.Cron = "@daily"
	none, one := d.Next(now, math.MinInt)
	no, two := stored.Following(now, math.MinInt)
	return map[string][]error{
		"schedule.Definition.Next after": {second(d.Next(first, 1)), second(d.Next(last, 1))}, "schedule.Definition.Next n": {second(d.Next(now, math.MaxInt)), meant(len(none) == 0 && one == nil)},
		"schedule.Schedule.Following after":  {second(stored.Following(first, 1)), second(stored.Following(last, 1))},
		"schedule.Schedule.Following n":      {second(stored.Following(now, math.MaxInt)), meant(len(no) == 0 && two == nil)},
		"schedule.Schedules.Next n":          {second(s.Next(ctx, d.Name, math.MaxInt))},
		"schedule.Schedules.Update revision": {second(s.Update(ctx, daily, math.MaxUint32))},
		"schedule.Schedules.Backfill from":   {second(s.Backfill(ctx, d.Name, first, now, false))},
		"schedule.Schedules.Backfill to":     {second(s.Backfill(ctx, d.Name, now, last, false))},
		"schedule.Schedules.OpenRuns limit":  {second(s.OpenRuns(ctx, d.Name, math.MaxInt)), second(s.OpenRuns(ctx, d.Name, -1))},
		"schedule.Schedules.DeleteID id":     withIDs(func(id tocsin.JobID) error { return s.DeleteID(ctx, id) }),
	}
}

// Each number, duration and time that a caller hands to a function is refused in one line at its extremes, or means what it says.
func TestParametersAtTheEdges(t *testing.T) {
	t.Parallel()
	judged := map[string]bool{}
	for _, name := range slices.Concat(engines, ofLayout) {
		judged[name] = true
	}
	for name, calls := range parameters(t) {
		judged[name] = true
		for i, err := range calls {
			if server := (*mysql.MySQLError)(nil); err == nil || strings.Contains(err.Error(), "\n") || errors.As(err, &server) {
				t.Errorf("%s, call %d: %v", name, i, err)
			}
		}
	}
	found := map[string]bool{}
	for name := range asked {
		for _, parameter := range numbersOfFunctions(t, "../"+strings.Replace(name, "tocsin", ".", 1)) {
			found[parameter] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(judged)); !slices.Equal(got, want) {
		t.Errorf("there are %q, and %q are judged", slices.DeleteFunc(got, func(n string) bool { return judged[n] }), slices.DeleteFunc(want, func(n string) bool { return found[n] }))
	}
}

// numbersOfFunctions lists the numbers, durations and times that the exported functions of a package take, as package.Type.Func parameter.
func numbersOfFunctions(t *testing.T, dir string) (all []string) {
	for _, file := range filesOf(t, dir) {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			name := file.Name.Name + "."
			if f.Recv != nil {
				of := f.Recv.List[0].Type
				if pointer, ok := of.(*ast.StarExpr); ok {
					of = pointer.X
				}
				if generic, ok := of.(*ast.IndexExpr); ok {
					of = generic.X
				}
				if !of.(*ast.Ident).IsExported() {
					continue
				}
				name += of.(*ast.Ident).Name + "."
			}
			for _, p := range f.Type.Params.List {
				for _, parameter := range p.Names {
					if ofNumbers(p.Type) {
						all = append(all, name+f.Name.Name+" "+parameter.Name)
					}
				}
			}
		}
	}
	return all
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
