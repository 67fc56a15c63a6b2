package tocsin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestOpenRefusesWhatIsStoredOtherwise(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	db := session(t, devtest.DSN(t), "")
	name := cfg.Layout.Database(0)
	stored := map[string]struct {
		change, back string
		config       func(*tocsin.Config)
		want         string
	}{
		"another layout": {
			config: func(c *tocsin.Config) { c.Layout.Tables = 16 },
			want:   "layout of the config is 2x16, that of " + name + " on db1 is 2x2",
		},
		"a layout of more databases": {
			config: func(c *tocsin.Config) { c.Layout.Databases = 4 },
			want:   "layout of the config is 4x2, that of " + name + " on db1 is 2x2",
		},
		"another cluster": {
			config: func(c *tocsin.Config) { c.Cluster = "other" },
			want:   `cluster of the config is "other", that of ` + name + ` on db1 is `,
		},
		"no tables at all": {
			config: func(c *tocsin.Config) { c.Layout.Prefix = "nothing_here" },
			want:   "run `tocsin ddl apply`",
		},
	}
	for what, c := range stored {
		t.Run(what, func(t *testing.T) {
			changed := cfg
			c.config(&changed)
			_, err := tocsin.Open(t.Context(), changed)
			if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	for d := range cfg.Layout.Databases {
		exec(t, db, "UPDATE "+cfg.Layout.Database(d)+".layout SET state = 'retired'")
	}
	if _, err := tocsin.Open(t.Context(), cfg); !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), "is retired") {
		t.Errorf("retired database: %v", err)
	}
	for d := range cfg.Layout.Databases {
		exec(t, db, "DELETE FROM "+cfg.Layout.Database(d)+".layout")
	}
	if _, err := tocsin.Open(t.Context(), cfg); !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), "has no layout row") {
		t.Errorf("no layout row: %v", err)
	}
}

func TestOpenNamesUnreachableServersWithoutTheirPassword(t *testing.T) {
	t.Parallel()
	addr := devtest.FreeAddress()
	_, err := tocsin.Open(t.Context(), tocsin.Config{
		Layout: tocsin.Layout{Databases: 2, Tables: 1},
		Servers: []tocsin.Server{
			{Name: "db1", DSN: "toc:hush@tcp(" + addr + ")/", Databases: []int{0}},
			{DSN: "toc:hush@tcp(" + addr + ")/", Databases: []int{1}},
		},
	})
	if !errors.Is(err, tocsin.ErrUnreachable) {
		t.Fatal(err)
	}
	text := err.Error()
	for _, want := range []string{"db1", "toc@" + addr, "connection refused"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s does not name %s", text, want)
		}
	}
	if strings.Contains(text, "hush") || strings.Contains(text, "\n") {
		t.Errorf("got %q", text)
	}
}

func TestOpenNeedsOneServerAndChecksTheOthersWhenUsed(t *testing.T) {
	t.Parallel()
	second := secondServer(t)
	p, dsn := devtest.NewProxy(t, second.DSN())
	cfg := cluster(t,
		tocsin.Server{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}},
		tocsin.Server{Name: "db2", DSN: dsn, Databases: []int{1}},
	)
	here, there := bizOn(cfg.Layout, 0, 1), bizOn(cfg.Layout, 1, 1)
	p.SetDown(true)
	c := open(t, cfg)
	add(t, c, remind.New(here, "x", tocsin.In(day)))
	_, err := c.Add(t.Context(), remind.New(there, "x", tocsin.In(day)))
	if !errors.Is(err, tocsin.ErrUnreachable) || !strings.Contains(err.Error(), "db2") {
		t.Errorf("a task for the server that is down: %v", err)
	}
	p.SetDown(false)
	add(t, c, remind.New(there, "x", tocsin.In(day)))

	p.SetDown(true)
	c = open(t, cfg)
	p.SetDown(false)
	exec(t, session(t, second.DSN(), ""), "UPDATE "+cfg.Layout.Database(1)+".layout SET cluster_id = 'another'")
	_, err = c.Add(t.Context(), remind.New(there, "x", tocsin.In(day)))
	if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), `is "another"`) {
		t.Errorf("a task for the server of another cluster: %v", err)
	}
}

func TestABizTypeThatIsAppliedLaterIsFound(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	late := tocsin.Define[string]("late.type")
	_, err := c.Add(t.Context(), late.New(1, "x", tocsin.In(0)))
	if !errors.Is(err, tocsin.ErrUnknownBizType) || err.Error() != `unknown biz type "late.type": apply it with 'tocsin biz apply'` {
		t.Fatal(err)
	}
	applyTypes(t, cfg, map[int]string{99: "late.type"})
	for began := time.Now(); err != nil; _, err = c.Add(t.Context(), late.New(1, "x", tocsin.In(0))) {
		if !errors.Is(err, tocsin.ErrUnknownBizType) || time.Since(began) > 10*time.Second {
			t.Fatal(err)
		}
	}
}
