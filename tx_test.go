package tocsin_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// mapper is a transaction as an object mapper wraps it.
type mapper struct{ tx *sql.Tx }

func (m mapper) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return m.tx.ExecContext(ctx, query, args...)
}

func (m mapper) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return m.tx.QueryContext(ctx, query, args...)
}

func TestATaskCommitsWithAnyKindOfTransaction(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	db := sqlx.NewDb(session(t, devtest.DSN(t), ""), "mysql")
	for name, begin := range map[string]func() (tocsin.Tx, func() error){
		"sql":    func() (tocsin.Tx, func() error) { tx := must[*sql.Tx](t)(db.Begin()); return tx, tx.Commit },
		"sqlx":   func() (tocsin.Tx, func() error) { tx := must[*sqlx.Tx](t)(db.Beginx()); return tx, tx.Commit },
		"mapper": func() (tocsin.Tx, func() error) { tx := must[*sql.Tx](t)(db.Begin()); return mapper{tx}, tx.Commit },
	} {
		tx, commit := begin()
		task := remind.New(7, name, tocsin.In(day)).Dedup(name)
		first := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task))
		again := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task))
		moved := must[tocsin.Change](t)(c.RescheduleTx(t.Context(), tx, tocsin.ByID(first.JobID), tocsin.In(2*day)))
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		info, err := c.Get(t.Context(), first.JobID)
		if err != nil || !again.Existing || again.JobID != first.JobID || moved.Changed != 1 || info.Version != 1 {
			t.Errorf("%s: %+v, %+v, %+v, %v", name, again, moved, info, err)
		}
	}
}

func TestWhatCommitsByItselfIsNoTransaction(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	db := sqlx.NewDb(session(t, devtest.DSN(t), ""), "mysql")
	conn := must[*sql.Conn](t)(db.Conn(t.Context()))
	defer conn.Close()
	for name, tx := range map[string]tocsin.Tx{"sql.DB": db.DB, "sqlx.DB": db, "sql.Conn": conn} {
		_, err := c.AddTx(t.Context(), tx, remind.New(1, "x", tocsin.In(day)))
		if !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), name+" is no transaction") {
			t.Errorf("%s: %v", name, err)
		}
		if err := tocsin.CompleteTx(t.Context(), tx, tocsin.Info{}); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none *sql.Tx
	if _, err := c.AddTx(t.Context(), none, remind.New(1, "x", tocsin.In(day))); err == nil || !strings.Contains(err.Error(), "is nil") {
		t.Errorf("a nil *sql.Tx: %v", err)
	}
	if all, err := c.List(t.Context(), 1); err != nil || len(all) != 0 {
		t.Errorf("stored all the same: %+v, %v", all, err)
	}
}
