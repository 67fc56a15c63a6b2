package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/upkeep"
)

// migratedTables counts the task tables that are altered.
func (s *site) migratedTables() (n int) {
	s.t.Helper()
	err := s.db.QueryRow(`SELECT COUNT(*) FROM information_schema.tables
		WHERE table_schema LIKE ? AND table_name LIKE 'task%' AND LOWER(create_options) LIKE '%stats_auto_recalc=0%'`, s.prefix+"%").Scan(&n)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// killedApply kills a `ddl apply` when it has migrated some of the task tables. It can't migrate the last one before, as a
// transaction holds that.
func (s *site) killedApply(tables int) {
	s.t.Helper()
	tx, err := s.db.Begin()
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("SELECT COUNT(*) FROM " + s.layout.Table(s.layout.Total()-1)); err != nil {
		s.t.Fatal(err)
	}
	apply := command(s.t.Context(), s.dir, "ddl", "apply")
	if err := apply.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.waitFor(fmt.Sprintf("%d tables are migrated", tables), func() bool { return s.migratedTables() >= tables })
	_ = apply.Process.Signal(syscall.SIGKILL)
	if _ = apply.Wait(); apply.ProcessState.ExitCode() != -1 {
		s.t.Fatalf("apply ended before it was killed: %s", apply.ProcessState)
	}
	s.waitFor("the server has given up its last ALTER", func() bool {
		var n int
		err := s.db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'ALTER /* tocsin%" + s.layout.Database(s.layout.Databases-1) + "%'").Scan(&n)
		return err == nil && n == 0
	})
}

func TestFinishWaitsForNodesOfOlderPrograms(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	devtest.Version2(t, s.dsn(), s.prefix, s.layout.Databases, s.layout.Tables)
	s.applyDDL()
	old := s.node("orders", "old", 8)
	s.run("ddl", "finish").refused(t, exitFailed,
		"node "+old+" of group orders runs a program for schema version 1, the tables are of version 3: replace it by a newer program (--force finishes all the same)")
	s.run("ddl", "verify").says(t, "works with programs for 2 or newer")
	withEtcd := s.text("tocsin.yaml")
	s.write("tocsin.yaml", withoutEtcd(withEtcd))
	s.run("ddl", "finish").refused(t, exitFailed, "etcd 127.0.0.1:1", "--force")
	s.write("tocsin.yaml", withEtcd)
	s.run("ddl", "finish", "--force").says(t, "schema version 3: 2 databases refuse programs for older ones from now on")
}

// A program that is older than the tables: they have columns that it does not know, in front and behind.
func TestEveryCommandWorksBesideColumnsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	for db := range s.layout.Databases {
		tables := []string{"layout", "biz_type", "owner", "doorbell"}
		for n := range s.layout.Tables {
			tables = append(tables, s.layout.TableName(n))
		}
		for _, table := range tables {
			s.exec(fmt.Sprintf("ALTER TABLE {prefix}_%d.%s ADD COLUMN first VARCHAR(9) NULL FIRST, ADD COLUMN last VARBINARY(64) NOT NULL DEFAULT ''", db, table))
		}
		s.exec(fmt.Sprintf("UPDATE {prefix}_%d.layout SET schema_version = 4", db))
	}
	s.run("ddl", "apply").refused(t, exitFailed, "has schema version 4, this program is for 3: use the tocsin that migrated it, or a newer one")
	if r := s.run("ddl", "verify"); r.code != exitFailed || strings.Count(r.stdout, "\n") != 2 || strings.Count(r.stdout, "has schema version 4, this program is for 3") != 2 {
		t.Errorf("verify: exit code %d\n%s", r.code, r.stdout)
	}
	s.applyBiz(strings.Replace(s.text("biz.yaml"), "timeout: 30s", "timeout: 31s", 1))
	s.run("biz", "show", "coupon.remind").says(t, "timeout: 31s")
	node := s.serve("older")
	s.ownedBy(map[string]int{"older": 8})
	s.fill(100, time.Second)
	s.waitFor("tasks are delivered", func() bool { seen, _, _ := c.counts(); return seen == 100 && s.notDone() == 0 })
	node.end(t)
	s.operate(t)
}

// operate runs the commands that read and change tasks.
func (s *site) operate(t *testing.T) {
	t.Helper()
	add := func(bizID int) tocsin.JobID {
		return decode[taskJSON](t, s.run("task", "add", "--json", "--type", "coupon.remind", "--biz-id", fmt.Sprint(bizID), "--in", "1h", "--dedup", "once")).JobID
	}
	id := add(1001)
	if add(1001) != id {
		t.Error("a dedup_key was added twice")
	}
	s.run("task", "reschedule", id.String(), "--in", "2h").ok(t)
	s.run("task", "get", id.String()).says(t, "pending")
	s.run("task", "bury", id.String(), "--reason", "a test").ok(t)
	s.run("task", "redrive", id.String()).ok(t)
	s.run("task", "cancel", id.String()).ok(t)
	s.run("task", "list", "--biz-id", "1001").says(t, "cancelled")
	s.set(add(1002), "action_time = UTC_TIMESTAMP(3) - INTERVAL 1 HOUR, due_time = action_time")
	s.run("sweep", "--grace", "0s").says(t, "1 delivered")
	if got := decode[upkeep.AuditReport](t, s.run("audit", "--json")); len(got.Faults) != 0 {
		t.Errorf("audit: %+v", got.Faults)
	}
	s.run("purge").ok(t)
}
