package tocsin_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// exampleTB lets an example use what tests use.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (e *exampleTB) Helper()                     {}
func (e *exampleTB) Context() context.Context    { return context.Background() }
func (e *exampleTB) Cleanup(f func())            { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Fatal(args ...any)           { panic(fmt.Sprint(args...)) }
func (e *exampleTB) Fatalf(f string, a ...any)   { panic(fmt.Sprintf(f, a...)) }
func (e *exampleTB) Error(args ...any)           { fmt.Println(args...) }
func (e *exampleTB) Errorf(f string, arg ...any) { fmt.Printf(f+"\n", arg...) }

func (e *exampleTB) done() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}

func Example() {
	tb := &exampleTB{}
	defer tb.done()
	ctx := context.Background()
	client, err := tocsin.Open(ctx, cluster(tb)) // a Config of your own servers
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	added, err := client.Add(ctx, closeOrder.New(4711, order{No: "A-1", Cent: 995}, tocsin.In(30*time.Minute)).Dedup("close"))
	if err != nil {
		fmt.Println(err)
		return
	}
	again, _ := client.Add(ctx, closeOrder.New(4711, order{No: "A-1"}, tocsin.In(time.Hour)).Dedup("close"))
	fmt.Println("the same task:", again.Existing, again.JobID == added.JobID, again.Status)

	change, _ := client.Cancel(ctx, closeOrder.Of(4711)) // the order is paid
	fmt.Println("cancelled:", change.Changed)

	info, _ := client.Get(ctx, added.JobID)
	fmt.Println(info.BizType, info.BizID, info.Status, info.Payload)
	// Output:
	// the same task: true true pending
	// cancelled: 1
	// order.close 4711 cancelled {"No":"A-1","Cent":995}
}

func ExampleClient_AddTx() {
	tb := &exampleTB{}
	defer tb.done()
	ctx := context.Background()
	client := open(tb, cluster(tb))
	db := session(tb) // the service's own pool

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	// ... the service writes its order in tx, and then:
	added, err := client.AddTx(ctx, tx, remind.New(4711, "your coupon ends today", tocsin.In(72*time.Hour)))
	if err != nil {
		fmt.Println(err)
	}
	_ = tx.Rollback() // the order failed, so there is no reminder either

	_, err = client.Get(ctx, added.JobID)
	fmt.Println(errors.Is(err, tocsin.ErrNotFound))
	// Output: true
}

func ExampleClient_AddMany() {
	tb := &exampleTB{}
	defer tb.done()
	client := open(tb, cluster(tb))
	added, err := client.AddMany(context.Background(), []tocsin.NewTask{
		remind.New(1, "one", tocsin.In(time.Hour)),
		remind.New(0, "two", tocsin.In(time.Hour)),
		remind.New(3, "three", tocsin.When{}),
	})
	fmt.Println(err)
	for i, a := range added {
		fmt.Println(i, a.JobID != 0, a.Err)
	}
	// Output:
	// 2 of 3 tasks are not stored: 2 refused (biz type "coupon.remind": biz_id is 0)
	// 0 true <nil>
	// 1 false biz type "coupon.remind": biz_id is 0
	// 2 false no action time: use tocsin.In or tocsin.At
}

func ExampleLayout_TableOf() {
	l := tocsin.Layout{Databases: 8, Tables: 1024}
	n := l.TableOf(4711) // SELECT CRC32(4711) % 8192
	fmt.Println(n, l.Table(n))
	// Output: 1143 toc_1.task_0119
}

func ExampleParseJobID() {
	id, err := tocsin.ParseJobID("117256403667648980")
	fmt.Println(id.Table(), id.Time().Format(time.RFC3339), err)
	_, err = tocsin.ParseJobID("order 7")
	fmt.Println(err)
	// Output:
	// 0 2026-11-20T13:35:05Z <nil>
	// job_id "order 7": want a decimal number from 1 to 2^63-1
}

// ofInterfaces are methods that other packages call.
var ofInterfaces = map[string]bool{"String": true, "MarshalJSON": true, "UnmarshalJSON": true, "MarshalText": true, "UnmarshalText": true, "Error": true, "Unwrap": true, "Deliver": true}

// TestEachCallHasAnExample looks for each exported call of the packages that services import in their examples.
func TestEachCallHasAnExample(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{".", "node"} {
		calls, used := map[string]bool{}, map[string]bool{}
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range parsed.Decls {
				f, ok := decl.(*ast.FuncDecl)
				switch {
				case !ok:
				case !strings.HasSuffix(file, "_test.go"):
					if f.Name.IsExported() && !ofInterfaces[f.Name.Name] && ofExported(f) {
						calls[f.Name.Name] = true
					}
				case strings.HasPrefix(f.Name.Name, "Example"):
					ast.Inspect(f.Body, func(n ast.Node) bool {
						if s, ok := n.(*ast.SelectorExpr); ok {
							used[s.Sel.Name] = true
						}
						return true
					})
				}
			}
		}
		for call := range calls {
			if !used[call] {
				t.Errorf("%s: no example calls %s", folder, call)
			}
		}
		if len(calls) < 10 {
			t.Errorf("%s: found %v", folder, calls)
		}
	}
}

// ofExported reports whether a function has no receiver, or one of an exported type.
func ofExported(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	id, ok := of.(*ast.Ident)
	return ok && id.IsExported()
}

func ExampleDefine() {
	ship := tocsin.Define[order]("order.ship", tocsin.Policy{Timeout: tocsin.Duration(10 * time.Second), Attempts: 5, Edition: 2}).Version(3)
	policy, brought := ship.Policy()
	full := policy.WithDefaults()
	fmt.Println(ship.Name(), ship.PayloadVersion(), brought, full.Attempts, full.Timeout.D(), full.Concurrency, full.AlarmOn(tocsin.OnDead), full.Handled())
	fmt.Println(full.Wait(1, func() float64 { return 0.5 }))

	text, _ := ship.Encode(order{No: "A-1", Cent: 995})
	task, err := ship.Decode(tocsin.Info{Payload: text, Headers: `{"tenant":"shop-7"}`})
	fmt.Println(text, task.Payload.Cent, task.Header("tenant"), err)
	// Output:
	// order.ship 3 true 5 10s 64 false true
	// 3.75s
	// {"No":"A-1","Cent":995} 995 shop-7 <nil>
}

func ExampleNew() {
	type orderID int64 // as a service has it
	task := tocsin.New(closeOrder, orderID(4711), order{}, tocsin.At(time.Now().Add(time.Hour))).
		Header("tenant", "shop-7").OptionalHeader("note", "as far as there is room")
	key := closeOrder.NewKey("ord_01J8Z3", order{}, tocsin.In(time.Hour))
	fmt.Println(task.BizType(), task.BizID(), task.Headers()["tenant"])
	fmt.Println(key.BizKey(), key.BizID() == tocsin.KeyID("ord_01J8Z3"))
	// Output:
	// order.close 4711 shop-7
	// ord_01J8Z3 true
}

func ExampleList() {
	tb := &exampleTB{}
	defer tb.done()
	ctx, client := context.Background(), open(tb, cluster(tb))
	id := int64(4711)
	_, _ = client.Add(ctx, tocsin.New(remind, id, "today", tocsin.In(time.Hour)))
	_, _ = client.Add(ctx, remind.NewKey("cus_9fQ2", "tomorrow", tocsin.In(24*time.Hour)))
	tasks, _ := tocsin.List(ctx, client, id)
	same, _ := client.List(ctx, uint64(id))
	ofKey, _ := client.ListKey(ctx, "cus_9fQ2")
	page, _, _ := client.ListPage(ctx, tocsin.ListQuery{BizID: uint64(id), Limit: 10})
	fmt.Println(len(tasks), len(same), len(ofKey), len(page), tasks[0].Status.Final(), tasks[0].Key() == tasks[0].JobID.String()+".0")
	fmt.Println(client.ServerOf(uint64(id)), client.Layout())
	// Output:
	// 1 1 1 1 false true
	// db1 2x2
}

func ExampleClient_Reschedule() {
	tb := &exampleTB{}
	defer tb.done()
	ctx, client := context.Background(), open(tb, cluster(tb))
	added, _ := client.Add(ctx, remind.New(4711, "today", tocsin.In(time.Hour)))
	_, _ = client.Add(ctx, remind.NewKey("cus_9fQ2", "today", tocsin.In(time.Hour)))
	one, _ := client.Reschedule(ctx, tocsin.ByID(added.JobID), tocsin.In(2*time.Hour))
	all, _ := client.Reschedule(ctx, tocsin.Of(remind, int64(4711)), tocsin.In(3*time.Hour))
	ofKey, _ := client.Cancel(ctx, remind.OfKey("cus_9fQ2"))
	info, _ := client.Get(ctx, added.JobID)
	fmt.Println(one.Changed, all.Changed, ofKey.Changed, info.Version)
	// Output: 1 1 1 2
}

func ExampleClient_CancelTx() {
	tb := &exampleTB{}
	defer tb.done()
	ctx, client := context.Background(), open(tb, cluster(tb))
	tx, err := session(tb).BeginTx(ctx, nil) // the service's own pool
	if err != nil {
		fmt.Println(err)
		return
	}
	added, _ := client.AddManyTx(ctx, tx, []tocsin.NewTask{remind.New(1, "one", tocsin.In(time.Hour)), remind.New(2, "two", tocsin.In(time.Hour))})
	later, _ := client.RescheduleTx(ctx, tx, tocsin.ByID(added[0].JobID), tocsin.In(2*time.Hour))
	never, _ := client.CancelTx(ctx, tx, remind.Of(2))
	fmt.Println(later.Changed, never.Changed, tx.Commit())
	// Output: 1 1 <nil>
}

func ExampleNewTask_Unique() {
	tb := &exampleTB{}
	defer tb.done()
	ctx, client := context.Background(), open(tb, cluster(tb))
	debounced := remind.New(4711, "today", tocsin.In(time.Hour)).Unique("remind", tocsin.While(tocsin.Pending, tocsin.Claimed)).OnConflict(tocsin.Reschedule)
	_, _ = client.Add(ctx, debounced)
	again, err := client.Add(ctx, debounced)
	fmt.Println(again.Existing, again.Rescheduled, err)
	// Output: true true <nil>
}

// Handlers return these.
func ExampleAsOutcome() {
	for _, err := range []error{tocsin.Bury(errors.New("no such order")), tocsin.RetryIn(time.Minute, errors.New("busy")), tocsin.Snooze(time.Hour), nil} {
		verb, in, reason := tocsin.AsOutcome(err)
		fmt.Printf("%s %s %q\n", verb, in, reason)
	}
	// Output:
	// bury 0s "no such order"
	// retry 1m0s "busy"
	// snooze 1h0m0s ""
	// complete 0s ""
}

// A handler completes its task in its own transaction, and leaves an output in the history.
func ExampleCompleteTx() {
	tb := &exampleTB{}
	defer tb.done()
	ctx, client := context.Background(), open(tb, cluster(tb))
	added, _ := client.Add(ctx, remind.New(4711, "today", tocsin.In(0)))
	info, _ := client.Get(ctx, added.JobID) // a handler has it as task.Info
	tx, err := session(tb).BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = tocsin.CompleteTx(ctx, tx, info)
	tocsin.Output(ctx, "accepted")
	tocsin.OutputOf(ctx, info.JobID, "accepted") // of one task of a batch
	fmt.Println(err, tx.Commit())
	// Output: <nil> <nil>
}

// OutboxTx is for transactions that are not those of database/sql, as of pgx.
func ExampleClient_OutboxTx() {
	tb := &exampleTB{}
	defer tb.done()
	cfg := cluster(tb)
	cfg.Outbox = tocsin.Outbox{Table: "shop.tocsin_outbox"}
	ctx, client := context.Background(), open(tb, cfg)
	within := client.OutboxTx(func(_ context.Context, statement string, _ ...any) error { // runs it in the transaction
		fmt.Println(strings.Fields(statement)[0])
		return nil
	})
	one, err := within.Add(ctx, remind.New(4711, "today", tocsin.In(time.Hour)))
	_, _ = within.AddMany(ctx, []tocsin.NewTask{remind.New(4712, "today", tocsin.In(time.Hour))})
	_, _ = within.Reschedule(ctx, remind.Of(4711), tocsin.In(2*time.Hour))
	_, _ = within.Cancel(ctx, remind.Of(4712))
	fmt.Println(one.Relayed, err)
	// Output:
	// INSERT
	// INSERT
	// INSERT
	// INSERT
	// true <nil>
}

func ExampleConfig() {
	cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 2, Tables: 16}, Servers: []tocsin.Server{{DSN: "shop@tcp(db1:3306)/"}}}
	frozen := func(next tocsin.ChangeFunc) tocsin.ChangeFunc {
		return func(_ context.Context, call *tocsin.Changing) error {
			return fmt.Errorf("%s: not on a Friday", call.Op)
		}
	}
	cfg.UseChanges = append(cfg.UseChanges, frozen)
	fmt.Println(cfg.Validate())
	err := cfg.Changes()(context.Background(), tocsin.Changing{Op: "report_stop"}, func(context.Context) error { return nil })
	fmt.Println(err) // as a package of one's own wraps its calls
	// Output:
	// <nil>
	// report_stop: not on a Friday
}

func ExampleLayout() {
	l := tocsin.Layout{Databases: 8, Tables: 1024}
	n := l.TableOf(4711)
	fmt.Println(l.Validate(), l.Total(), l.DatabaseOf(n), l.Database(1), l.TableName(n))
	// Output: <nil> 8192 1 toc_1 task_0119
}

func ExampleHeadersOf() {
	h, err := tocsin.HeadersOf(map[string]string{"tenant": "shop-7"})
	all, _ := h.All()
	fmt.Println(h.Get("tenant"), len(all), err)
	// Output: shop-7 1 <nil>
}
