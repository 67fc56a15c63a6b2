package pgtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg/pgtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/tocsintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tocsintest.Main(m)) }

var closeOrder = tocsin.Define[string]("order.close")

func TestATaskOfATransactionInPostgreSQLIsSeenRelayedAndDelivered(t *testing.T) {
	t.Parallel()
	c, url := pgtest.WithOutbox(t, tocsintest.Start(t, closeOrder))
	bySQL, err := c.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bySQL.Rollback() }()
	if _, err := c.Client.AddTx(t.Context(), bySQL, closeOrder.New(7, "by sql", tocsin.In(time.Hour))); err != nil {
		t.Fatal(err)
	}
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.Background()) }()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	due := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond)
	if _, err := tocsinpg.In(c.Client, tx).Add(t.Context(), closeOrder.NewKey("ord_8", "by pgx", tocsin.At(due))); err != nil {
		t.Fatal(err)
	}
	if in := time.Until(tocsintest.RequireAdded(t, c, bySQL, closeOrder.Of(7)).DueTime); in < 50*time.Minute || in > 61*time.Minute {
		t.Errorf("it is due in %s", in)
	}
	tocsintest.RequireNotAdded(t, c, bySQL, closeOrder.OfKey("ord_8"))
	added := tocsintest.RequireAdded(t, c, pgtest.Tx(t, tx), closeOrder.OfKey("ord_8"))
	if added.Payload != "by pgx" || !added.DueTime.Equal(due) {
		t.Errorf("added %+v", added)
	}
	tocsintest.RequireNotAdded(t, c, pgtest.Tx(t, tx), closeOrder.Of(7))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := bySQL.Commit(); err != nil {
		t.Fatal(err)
	}
	var h node.Handlers
	node.Handle(&h, closeOrder, func(context.Context, *tocsin.Task[string]) error { return nil })
	got := nodetest.RunDue(t, c, &h, due.Add(time.Minute))
	if want := "[order.close 7: complete order.close ord_8: complete]"; fmt.Sprint(got) != want {
		t.Errorf("deliveries %v, want %s", got, want)
	}
}

func ExampleWithOutbox() {
	var t *testing.T // of the test
	placeOrder := func() {
		c, url := pgtest.WithOutbox(t, tocsintest.Start(t, closeOrder))
		db, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		if _, err := tocsinpg.In(c.Client, tx).Add(t.Context(), closeOrder.New(7, "unpaid", tocsin.In(30*time.Minute))); err != nil {
			t.Fatal(err)
		}
		tocsintest.RequireAdded(t, c, pgtest.Tx(t, tx), closeOrder.Of(7))
	}
	_ = placeOrder
}
