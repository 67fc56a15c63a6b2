package tocsintest_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// fatal is a test that notes the line it ends with.
type fatal struct {
	testing.TB
	line string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.line = fmt.Sprintf(format, args...)
	panic(f)
}

// fails returns the line with which check ends its test.
func fails(t *testing.T, check func(testing.TB)) (line string) {
	t.Helper()
	f := &fatal{TB: t}
	defer func() {
		if p := recover(); p != nil && p != f {
			panic(p)
		}
		line = f.line
	}()
	check(f)
	return ""
}

func begin(t *testing.T, c *tocsintest.Cluster) *sql.Tx {
	t.Helper()
	tx, err := c.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestRequireAddedSeesWhatATransactionAddsBeforeItCommits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*tocsintest.Cluster{
		"task tables": tocsintest.Start(t, closeOrder),
		"an outbox":   tocsintest.Start(t, closeOrder).WithOutbox(t),
	} {
		t.Run(name, func(t *testing.T) {
			requireSeesAdds(t, c)
		})
	}
}

func requireSeesAdds(t *testing.T, c *tocsintest.Cluster) {
	t.Helper()
	committed := begin(t, c)
	if _, err := c.Client.AddTx(t.Context(), committed, closeOrder.New(1, unpaid{"before"}, tocsin.In(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if err := committed.Commit(); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, c)
	if _, err := tx.ExecContext(t.Context(), "SET time_zone = '+08:00'"); err != nil { // as on a machine in Shanghai
		t.Fatal(err)
	}
	tocsintest.RequireNotAdded(t, c, tx, closeOrder.Of(7))
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for _, task := range []tocsin.NewTask{
		closeOrder.New(7, unpaid{"A-7"}, tocsin.At(due)).Dedup("pay").Header("tenant", "x"),
		closeOrder.NewKey("ord_8", unpaid{"A-8"}, tocsin.In(time.Hour)), closeOrder.New(9, unpaid{"A-9"}, tocsin.In(time.Hour)),
	} {
		if _, err := c.Client.AddTx(t.Context(), tx, task); err != nil {
			t.Fatal(err)
		}
	}
	info := tocsintest.RequireAdded(t, c, tx, closeOrder.Of(7))
	task, err := closeOrder.Decode(info)
	if err != nil || task.Payload.Order != "A-7" || !info.DueTime.Equal(due) || info.DedupKey != "pay" || info.Header("tenant") != "x" {
		t.Errorf("added %+v, %v", info, err)
	}
	byKey := tocsintest.RequireAdded(t, c, tx, closeOrder.OfKey("ord_8"))
	if in := time.Until(byKey.DueTime); in < 50*time.Minute || in > 61*time.Minute {
		t.Errorf("it is due in %s", in)
	}
	if _, err := c.Client.CancelTx(t.Context(), tx, closeOrder.Of(9)); err != nil {
		t.Fatal(err)
	}
	tocsintest.RequireNotAdded(t, c, tx, closeOrder.Of(9)) // it is cancelled
	tocsintest.RequireNotAdded(t, c, tx, closeOrder.Of(1)) // another transaction has added it
	got := fails(t, func(tb testing.TB) { tocsintest.RequireAdded(tb, c, tx, closeOrder.Of(1)) })
	if !strings.Contains(got, "has not added a task of order.close 1; it has added order.close ") || !strings.Contains(got, "order.close ord_8") {
		t.Errorf("it ended with %q", got)
	}
	got = fails(t, func(tb testing.TB) { tocsintest.RequireNotAdded(tb, c, tx, closeOrder.Of(7)) })
	if got != "tocsintest: the transaction has added order.close 7" {
		t.Errorf("it ended with %q", got)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if left, err := c.Client.List(t.Context(), 7); len(left) != 0 || err != nil {
		t.Errorf("after the rollback: %v, %v", left, err)
	}
}

func TestClustersShareAServerAndNothingElse(t *testing.T) {
	t.Parallel()
	a, b := tocsintest.Start(t, closeOrder), tocsintest.Start(t, closeOrder)
	if a.Config.Servers[0].DSN != b.Config.Servers[0].DSN {
		t.Errorf("two servers: %s, %s", a.Config.Servers[0].DSN, b.Config.Servers[0].DSN)
	}
	if _, err := a.Client.Add(t.Context(), closeOrder.New(7, unpaid{"A-1"}, tocsin.In(time.Hour))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*tocsintest.Cluster{a, b} {
		if _, err := c.DB.ExecContext(t.Context(), "CREATE TABLE orders (id BIGINT PRIMARY KEY)"); err != nil {
			t.Error(err)
		}
	}
	if others, err := b.Client.List(t.Context(), 7); len(others) != 0 || err != nil {
		t.Errorf("another cluster has %v, %v", others, err)
	}
}

func ExampleRequireAdded() {
	var t *testing.T // of the test
	placeOrder := func() {
		c := tocsintest.Start(t, closeOrder)
		tx, err := c.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := c.Client.AddTx(t.Context(), tx, closeOrder.New(7, unpaid{"A-1"}, tocsin.In(30*time.Minute))); err != nil {
			t.Fatal(err)
		}
		tocsintest.RequireAdded(t, c, tx, closeOrder.Of(7))
		tocsintest.RequireNotAdded(t, c, tx, closeOrder.Of(8))
	}
	_ = placeOrder
}
