package client_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// refusal is a way in which a server refuses statements or connections for a while.
type refusal struct{ begin, end []string }

// refusals of a server that has the user shop, whose sessions are killed when one begins.
func refusals(tb testing.TB) map[string]refusal {
	tb.Helper()
	all := map[string]refusal{
		"read-only":                    {[]string{"SET GLOBAL read_only = 1"}, []string{"SET GLOBAL read_only = 0"}},
		"no more connections, of many": {[]string{"ALTER USER shop WITH MAX_USER_CONNECTIONS 1"}, []string{"ALTER USER shop WITH MAX_USER_CONNECTIONS 0"}},
	}
	if devtest.IsMySQL(tb) {
		all["offline mode"] = refusal{[]string{"SET GLOBAL offline_mode = 1"}, []string{"SET GLOBAL offline_mode = 0"}}
	}
	return all
}

// TestAnAddOutlastsARefusalAndALongOneIsNoDoubt: while a server refuses, an add is tried again, and fails as of a server that can't be reached.
func TestAnAddOutlastsARefusalAndALongOneIsNoDoubt(t *testing.T) {
	t.Parallel()
	cfg, admin := ownUser(t)
	c := open(t, cfg)
	for name, r := range refusals(t) {
		execAll(t, admin, r.begin)
		killAll(t, admin)
		keeper, err := session(t, cfg.Servers[0].DSN, "").Conn(t.Context()) // has the only connection, if there is only one
		added := make(chan error, 1)
		go func() {
			_, err := c.Add(t.Context(), remind.New(11, name, tocsin.In(day)))
			added <- err
		}()
		select {
		case err := <-added:
			t.Errorf("%s: the add ended while the server refused: %v", name, err)
		case <-time.After(200 * time.Millisecond):
			execAll(t, admin, r.end)
			if err := <-added; err != nil {
				t.Errorf("%s: the add did not outlast it: %v", name, err)
			}
		}
		execAll(t, admin, r.begin)
		if err == nil {
			_ = keeper.Close()
		}
		killAll(t, admin)
		keeper, err = session(t, cfg.Servers[0].DSN, "").Conn(t.Context())
		if _, err := c.Add(t.Context(), remind.New(12, "x", tocsin.In(day))); !errors.Is(err, tocsin.ErrUnreachable) || errors.Is(err, tocsin.ErrUnknownOutcome) {
			t.Errorf("%s, for long: %v", name, err)
		}
		execAll(t, admin, r.end)
		if err == nil {
			_ = keeper.Close()
		}
		if list := listed(t, c, 12); len(list) != 0 {
			t.Errorf("%s: stored: %+v", name, list)
		}
	}
	if list := listed(t, c, 11); len(list) != len(refusals(t)) {
		t.Errorf("%d of %d adds are stored", len(list), len(refusals(t)))
	}
}

// ownUser is a cluster on a server of its own, used as the user shop.
func ownUser(t *testing.T) (cfg tocsin.Config, admin *sql.DB) {
	t.Helper()
	m := secondServer(t)
	cfg = cluster(t, tocsin.Server{Name: "db1", DSN: m.DSN()})
	admin = session(t, m.DSN(), "")
	execAll(t, admin, []string{"CREATE USER shop@'%' IDENTIFIED BY 'hush'", "GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO shop@'%'"})
	cfg.Servers[0].DSN = strings.Replace(m.DSN(), "root@", "shop:hush@", 1)
	return cfg, admin
}

func execAll(t *testing.T, db *sql.DB, statements []string) {
	t.Helper()
	for _, statement := range statements {
		exec(t, db, statement)
	}
}

// killAll ends the sessions of the user shop.
func killAll(t *testing.T, admin *sql.DB) {
	t.Helper()
	rows := must[*sql.Rows](t)(admin.Query("SELECT id FROM information_schema.processlist WHERE user = 'shop'"))
	defer rows.Close()
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		_, _ = admin.Exec(fmt.Sprint("KILL ", id)) // it may have ended
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestAnAddThatSomebodyKilledIsRepeated kills the statement while it waits for the table.
func TestAnAddThatSomebodyKilledIsRepeated(t *testing.T) {
	t.Parallel()
	cfg, admin := ownUser(t)
	c := open(t, cfg)
	table := cfg.Layout.Table(cfg.Layout.TableOf(11))
	holder := must[*sql.Conn](t)(admin.Conn(t.Context()))
	defer holder.Close()
	if _, err := holder.ExecContext(t.Context(), "LOCK TABLES "+table+" WRITE"); err != nil {
		t.Fatal(err)
	}
	added := make(chan error, 1)
	go func() {
		_, err := c.Add(t.Context(), remind.New(11, "x", tocsin.In(day)))
		added <- err
	}()
	for killed := false; !killed; {
		var id int
		err := admin.QueryRow("SELECT id FROM information_schema.processlist WHERE user = 'shop' AND info LIKE '%INSERT%' AND state LIKE 'Waiting%'").Scan(&id)
		if killed = err == nil; killed {
			_, _ = admin.Exec(fmt.Sprint("KILL QUERY ", id))
		} else if !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
	}
	if _, err := holder.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	if err := <-added; err != nil {
		t.Errorf("%s: %v", mysql.ClassOf(err), err)
	}
	if list := listed(t, c, 11); len(list) != 1 {
		t.Errorf("stored: %+v", list)
	}
}
