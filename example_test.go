package tocsin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
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
	db := session(tb, devtest.DSN(tb), "") // the service's own pool

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
