package tocsin_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// Whoever takes over a server's address may hold databases of the same names.
func TestAnAddOverANewConnectionLooksWhoIsBehindIt(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	c := open(t, cfg)
	task := remind.New(1, "x", tocsin.In(day))
	add(t, c, task)

	stranger := cfg
	stranger.Servers = []tocsin.Server{{Name: "db1", DSN: secondServer(t).DSN()}}
	if _, err := ddl.Apply(t.Context(), stranger, ddl.Options{Cluster: "stranger"}); err != nil {
		t.Fatal(err)
	}
	p.LeadTo(stranger.Servers[0].DSN)
	p.BreakAt("/* tocsin add */", true, 1)
	if _, err := c.Add(t.Context(), task); !errors.Is(err, tocsin.ErrLayout) {
		t.Errorf("added to a stranger: %v", err)
	}
	if p.Breaks() != 1 {
		t.Error("the old connection still stands")
	}
	there := session(t, stranger.Servers[0].DSN, "")
	if n := count(t, there, "SELECT COUNT(*) FROM "+cfg.Layout.Table(cfg.Layout.TableOf(1))); n != 0 {
		t.Errorf("the stranger has %d tasks", n)
	}
}

func TestARowThatSaysRetiredIsSeenWithinASecond(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c, db := open(t, cfg), session(t, devtest.DSN(t), "")
	bizID := bizOn(cfg.Layout, 0, 1)
	add(t, c, remind.New(bizID, "x", tocsin.In(day))) // the connection has looked
	exec(t, db, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'retired'")
	retired, last := time.Now(), time.Time{}
	for err := error(nil); !errors.Is(err, tocsin.ErrLayout); {
		if last = time.Now(); last.Sub(retired) > 30*time.Second {
			t.Fatalf("tasks are still taken: %v", err)
		}
		_, err = c.Add(t.Context(), remind.New(bizID, "x", tocsin.In(day)))
	}
	if last.Sub(retired) > 10*time.Second {
		t.Errorf("seen after %s", last.Sub(retired))
	}
}

func TestARetiredDatabaseLeavesItsNeighboursAlone(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c, db := open(t, cfg), session(t, devtest.DSN(t), "")
	retired, active := bizOn(cfg.Layout, 0, 1), bizOn(cfg.Layout, 1, 1)
	exec(t, db, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'retired'")
	if _, err := c.Add(t.Context(), remind.New(active, "x", tocsin.In(day))); err != nil {
		t.Errorf("add beside it: %v", err)
	}
	if _, err := c.Add(t.Context(), remind.New(retired, "x", tocsin.In(day))); !errors.Is(err, tocsin.ErrLayout) {
		t.Errorf("add to it, over a connection that was admitted next door: %v", err)
	}
	added, err := c.AddMany(t.Context(), []tocsin.NewTask{remind.New(retired, "x", tocsin.In(day)), remind.New(active, "x", tocsin.In(day))})
	if !errors.Is(err, tocsin.ErrLayout) || !errors.Is(added[0].Err, tocsin.ErrLayout) || added[1].Err != nil {
		t.Errorf("add many: %+v, %v", added, err)
	}
	if n := len(must[[]tocsin.Info](t)(c.List(t.Context(), active))); n != 2 {
		t.Errorf("%d are stored next door, want 2", n)
	}
	if n := len(must[[]tocsin.Info](t)(c.List(t.Context(), retired))); n != 0 {
		t.Errorf("%d are stored in the retired one", n)
	}
}
