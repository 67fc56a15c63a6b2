package store

import (
	"database/sql"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// A process that is frozen in a transaction keeps others from its rows until the server ends its session.
func TestAServerEndsASilentTransaction(t *testing.T) {
	for ownership, want := range map[string]time.Duration{layoutrow.ByEtcd: waitTimeout, layoutrow.ByRows: rowsWaitTimeout} {
		t.Run(ownership, func(t *testing.T) {
			t.Parallel()
			layout := small
			layout.Prefix = devtest.Prefix(t)
			cfg := tocsin.Config{Layout: layout, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}}
			if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: "test", Ownership: ownership}); err != nil {
				t.Fatal(err)
			}
			s, err := Open(cfg, Ownership(ownership))
			if err != nil {
				t.Fatal(err)
			}
			b := &bench{Store: s, tb: t, db: s.servers[0].DB}
			defer func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}()
			b.add(task{id: id(0, 0)})
			err = b.Transact(t.Context(), 0, func(conn *sql.Conn) error {
				var seconds int
				if err := conn.QueryRowContext(t.Context(), `SELECT @@SESSION.wait_timeout`).Scan(&seconds); err != nil {
					return err
				}
				if got := time.Duration(seconds) * time.Second; got != want {
					t.Errorf("the server waits %s for a session, want %s", got, want)
				}
				if ownership == layoutrow.ByEtcd { // the same, later
					return nil
				}
				lock := `SELECT job_id FROM ` + layout.Table(0) + ` WHERE job_id = ? FOR UPDATE`
				if _, err := conn.ExecContext(t.Context(), lock, uint64(id(0, 0))); err != nil {
					return err
				}
				for { // as if this process stood still
					_, err := b.db.ExecContext(t.Context(), `DELETE FROM `+layout.Table(0)+` WHERE job_id = ?`, uint64(id(0, 0)))
					switch {
					case err == nil:
						return nil
					case t.Context().Err() != nil:
						return err
					}
				}
			})
			if committed := err == nil; committed != (ownership == layoutrow.ByEtcd) {
				t.Errorf("the transaction ended with %v", err)
			}
		})
	}
}
