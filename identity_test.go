package tocsin_test

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// Database 1 belongs to another cluster with the same id.
func TestNoTaskGoesIntoADatabaseOfAnotherIdentity(t *testing.T) {
	t.Parallel()
	cfg := cluster(t,
		tocsin.Server{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}},
		tocsin.Server{Name: "db2", DSN: devtest.DSN(t), Databases: []int{1}},
	)
	exec(t, session(t, devtest.DSN(t), ""), "UPDATE "+cfg.Layout.Database(1)+".layout SET identity = 'other'")
	c := open(t, cfg)
	add(t, c, remind.New(bizOn(cfg.Layout, 0, 1), "x", tocsin.In(day)))
	_, err := c.Add(t.Context(), remind.New(bizOn(cfg.Layout, 1, 1), "x", tocsin.In(day)))
	if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), "that of "+cfg.Layout.Database(1)+" on db2 is other") {
		t.Errorf("got %v", err)
	}
}

// A transaction on the server of another cluster with the same id looks like one on ours.
func TestNoTransactionOnADatabaseOfAnotherIdentityIsUsed(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	db := session(t, devtest.DSN(t), "")
	c := open(t, cfg)
	bizID := bizOn(cfg.Layout, 1, 1)
	stored := add(t, c, remind.New(bizID, "x", tocsin.In(day)))
	for name, do := range txCalls(t, c, bizID, stored.JobID) {
		if err := rolledBack(t, db, do); err != nil {
			t.Errorf("%s before: %v", name, err)
		}
		exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET identity = CONCAT(identity, 'x')")
		err := rolledBack(t, db, do)
		if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), "it is of another cluster with the same id") {
			t.Errorf("%s: %v", name, err)
		}
		exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET identity = LEFT(identity, LENGTH(identity) - 1)")
	}
}

// The server of another cluster answers before ours do.
func TestAForeignServerThatAnswersFirstTakesNoTask(t *testing.T) {
	t.Parallel()
	ours, oursDSN := devtest.NewProxy(t, devtest.DSN(t))
	theirs, theirsDSN := devtest.NewProxy(t, devtest.DSN(t))
	cfg := cluster(t)
	db := session(t, devtest.DSN(t), "")
	exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET identity = 'other'")
	exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".biz_type SET number = number + 70")
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: oursDSN, Databases: []int{0}}, {Name: "db2", DSN: theirsDSN, Databases: []int{1}}}
	_, answerOurs := ours.HoldAt("/* tocsin layout */")
	last, answerTheirs := theirs.HoldAt("/* tocsin biz types */")
	var answers sync.WaitGroup
	defer answers.Wait()
	answers.Go(func() {
		defer answerOurs()
		<-last
		answerTheirs()
		time.Sleep(100 * time.Millisecond) // well within what Open waits for the others
	})
	c := open(t, cfg)
	_, err := c.Add(t.Context(), remind.New(bizOn(cfg.Layout, 1, 1), "x", tocsin.In(day)))
	if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), "it is of another cluster with the same id") {
		t.Errorf("got %v", err)
	}
	added := add(t, c, remind.New(bizOn(cfg.Layout, 0, 1), "x", tocsin.In(day)))
	foreign := "SELECT COUNT(*) FROM " + cfg.Layout.Table(added.JobID.Table()) + " WHERE biz_type > 70"
	if n := count(t, db, foreign); n != 0 {
		t.Error("the task has the number that its biz type has elsewhere")
	}
}

func TestTasksGoIntoTablesOlderThanIdentities(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	exec(t, session(t, devtest.DSN(t), ""), "ALTER TABLE "+cfg.Layout.Database(1)+".layout DROP COLUMN identity")
	c := open(t, cfg)
	for db := range 2 {
		add(t, c, remind.New(bizOn(cfg.Layout, db, 1), "x", tocsin.In(day)))
		err := rolledBack(t, session(t, devtest.DSN(t), ""), func(tx *sql.Tx) error {
			_, err := c.AddTx(t.Context(), tx, remind.New(bizOn(cfg.Layout, db, 1), "x", tocsin.In(day)))
			return err
		})
		if err != nil {
			t.Errorf("AddTx: %v", err)
		}
	}
}
