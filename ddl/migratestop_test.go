package ddl

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestATableThatIsHeldHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	table := cfg.Layout.Database(0) + ".task_0002"
	release := hold(t, cfg, table)
	res, err := Apply(t.Context(), cfg, Options{Wait: time.Second})
	if want := "server db1: 1 tables are not migrated, the first is " + table + ": an open transaction of somebody holds it: end it, then run this again ("; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if !strings.Contains(fmt.Sprint(err), "the table was in use for 100ms") {
		t.Errorf("the last ALTER was not ended by its patience: %v", err)
	}
	if res.Altered != changesOf2-1 {
		t.Errorf("%d changes, want all but one", res.Altered)
	}
	wantSaid(t, versions(t, cfg), "2/2", "3/2")
	release()
	if res := applied(t, cfg, Options{}); res.Altered != 1 {
		t.Errorf("when it is free: %+v", res)
	}
}

func TestAnApplyThatWaitsForAnotherNamesIt(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	conn := must(pool(t, cfg).Conn(t.Context()))
	defer conn.Close()
	var taken, id int
	name := applyLock(cfg.Layout).name
	if err := conn.QueryRowContext(t.Context(), "SELECT GET_LOCK(?, 0), CONNECTION_ID()", name).Scan(&taken, &id); err != nil || taken != 1 {
		t.Fatal(taken, err)
	}
	want := fmt.Sprintf("server db1: another `tocsin ddl apply` changes it, over connection %d: wait for its end, then run this again", id)
	if _, err := Apply(t.Context(), cfg, Options{Wait: time.Millisecond}); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	waits := make(chan error)
	go func() {
		_, err := Apply(context.Background(), cfg, Options{})
		waits <- err
	}()
	must(conn.ExecContext(t.Context(), "DO RELEASE_LOCK(?)", name))
	if err := <-waits; err != nil {
		t.Error(err)
	}
}

func TestAChangeThatAnotherMadeIsNoError(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	sites := must(surveySites(t.Context(), cfg, 1))
	defer closeSites(sites)
	want := expectationsAt(layoutrow.SchemaVersion)
	u, err := sites[0].needed(t.Context(), want)
	if err != nil || len(u.changes) != changesOf2 {
		t.Fatal(u, err)
	}
	for range 2 {
		err := u.change(t.Context(), u.changes[0], false)
		for mysql.ClassOf(err) == mysql.Contended { // it waits for a lock 100 ms, and on a busy machine who looked before holds one still
			err = u.change(t.Context(), u.changes[0], false)
		}
		if err != nil {
			t.Error(err)
		}
	}
	bad := u.changes[1]
	bad.text = "ADD COLUMN job_id INT"
	if err := u.change(t.Context(), bad, false); err == nil || !strings.Contains(err.Error(), "alter "+bad.table.full()) {
		t.Errorf("a change that is wrong: %v", err)
	}
}

func TestWithoutTheRightToAlter(t *testing.T) {
	t.Parallel()
	admin := version2(t)
	cfg := limited(t, admin)
	for db := range 2 {
		execute(t, admin, "GRANT CREATE, UPDATE ON `"+cfg.Layout.Database(db)+"`.* TO '"+cfg.Layout.Prefix+"'@'%'")
	}
	_, err := Apply(t.Context(), cfg, Options{})
	if err == nil || !strings.Contains(err.Error(), "grant ALTER, CREATE and INSERT on its database, or let an administrator run what `tocsin ddl plan --migrate` shows") {
		t.Errorf("%v", err)
	}
	for db := range 2 {
		execute(t, admin, "GRANT ALTER ON `"+cfg.Layout.Database(db)+"`.* TO '"+cfg.Layout.Prefix+"'@'%'")
	}
	if res := applied(t, cfg, Options{}); res.Altered != changesOf2 {
		t.Errorf("with it: %+v", res)
	}
}

// envMigrate holds the config of an Apply that stops half-way.
const envMigrate = "TOCSIN_TEST_MIGRATE"

// migrateHalf is the process that TestAMigrationGoesOnAfterAKill kills: it makes half of the changes.
func migrateHalf(text string) int {
	var cfg tocsin.Config
	err := json.Unmarshal([]byte(text), &cfg)
	if err == nil {
		_, err = Apply(context.Background(), cfg, Options{Migrated: func(done, _ int) {
			if done == changesOf2/2 {
				fmt.Println("half")
				select {}
			}
		}})
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func TestAMigrationGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	killApply(t, cfg, envMigrate, func(line string) bool { return line == "half" })
	wantSaid(t, versions(t, cfg), "2/2", "2/2")
	if res := applied(t, cfg, Options{}); res.Altered != changesOf2/2 || res.From != 2 {
		t.Errorf("%+v", res)
	}
	wantSaid(t, versions(t, cfg), "3/2", "3/2")
}
