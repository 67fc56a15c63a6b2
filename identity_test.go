package tocsin_test

import (
	"errors"
	"strings"
	"testing"

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

func TestTasksGoIntoTablesOlderThanIdentities(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	exec(t, session(t, devtest.DSN(t), ""), "ALTER TABLE "+cfg.Layout.Database(1)+".layout DROP COLUMN identity")
	c := open(t, cfg)
	for db := range 2 {
		add(t, c, remind.New(bizOn(cfg.Layout, db, 1), "x", tocsin.In(day)))
	}
}
