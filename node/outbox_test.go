package node_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/outbox"
)

// README's example with the tasks on two servers, one of which holds the orders too: each task commits with its order,
// wherever its table is, and is gone if the order is paid.
func TestTheReadmesExampleOnTwoServers(t *testing.T) {
	t.Parallel()
	p := unmade(t, 2).split(startServer(t).DSN())
	prefix := p.cfg.Cluster
	p.cfg.Outbox, p.ownership = tocsin.Outbox{Table: prefix + "_shop.tocsin_outbox", Beside: "db1"}, node.ByRows
	p = p.made(t, closePolicy())
	db := shopOf(t, prefix+"_shop")
	closed := make(chan uint64, 100)
	h := closing(func(_ context.Context, task *tocsin.Task[order]) error { closed <- task.Payload.ID; return nil })
	cfg := p.config("orders")
	cfg.Outboxes = []outbox.Config{{DSN: devtest.DSN(t), Table: p.cfg.Outbox.Table}}
	run(t, cfg, h)

	const orders = 20
	relayed := 0
	for id := uint64(1); id <= orders; id++ {
		inTx(t, db, func(tx *sql.Tx) error { // the order is placed
			added, err := p.client.AddTx(t.Context(), tx, orderClose.New(id, order{ID: id}, tocsin.In(5*time.Second)))
			if added.Relayed != (p.cfg.Layout.DatabaseOf(p.cfg.Layout.TableOf(id)) == 1) || added.Relayed != (added.JobID == 0) {
				t.Errorf("order %d: %+v", id, added)
			}
			if added.Relayed {
				relayed++
			}
			return err
		})
		if id%2 == 0 {
			inTx(t, db, func(tx *sql.Tx) error { // the order is paid
				_, err := p.client.CancelTx(t.Context(), tx, orderClose.Of(id))
				return err
			})
		}
	}
	if relayed == 0 || relayed == orders {
		t.Errorf("%d of %d tasks went through the outbox", relayed, orders)
	}
	got := map[uint64]int{}
	for range orders / 2 {
		got[receive(t, closed, "the orders to be closed")]++
	}
	for id := uint64(1); id <= orders; id++ {
		if got[id] != int(id%2) {
			t.Errorf("order %d was closed %d times", id, got[id])
		}
	}
}

// shopOf makes a business database with an outbox on the shared server.
func shopOf(t *testing.T, name string) *sql.DB {
	t.Helper()
	db := openDB(t, devtest.DSN(t))
	execute(t, db, "CREATE DATABASE "+name)
	if _, err := ddl.ApplyOutbox(t.Context(), ddl.Outbox{DSN: devtest.DSN(t), Table: name + ".tocsin_outbox"}); err != nil {
		t.Fatal(err)
	}
	return db
}

func inTx(t *testing.T, db *sql.DB, do func(*sql.Tx) error) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
