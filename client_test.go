package tocsin_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
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
	for name, when := range map[string]tocsin.When{"near": tocsin.In(0), "far": tocsin.In(day)} {
		if _, err := c.Add(t.Context(), remind.New(retired, "x", when)); !errors.Is(err, tocsin.ErrLayout) {
			t.Errorf("add to it, %s, over a connection that was admitted next door: %v", name, err)
		}
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

// Database 1 belongs to another cluster with the same id, whose server answers before ours do.
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
	if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), "that of "+cfg.Layout.Database(1)+" on db2 is other: it is of another cluster with the same id") {
		t.Errorf("got %v", err)
	}
	added := add(t, c, remind.New(bizOn(cfg.Layout, 0, 1), "x", tocsin.In(day)))
	foreign := "SELECT COUNT(*) FROM " + cfg.Layout.Table(added.JobID.Table()) + " WHERE biz_type > 70"
	if n := count(t, db, foreign); n != 0 {
		t.Error("the task has the number that its biz type has elsewhere")
	}
}

func TestTasksGoIntoDatabasesWithoutAnIdentity(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	exec(t, session(t, devtest.DSN(t), ""), "UPDATE "+cfg.Layout.Database(1)+".layout SET identity = ''")
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

// Nodes hold a promoted replica that lags too far. A client that comes later names that reason, and uses the replica once an
// operator has accepted it.
func TestAReplicaThatIsHeldIsTheConfigs(t *testing.T) {
	t.Parallel()
	p := devtest.NewPair(t, true)
	cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 1, Tables: 2}, Servers: []tocsin.Server{{Name: "db1", DSN: p.DSN()}}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
		t.Fatal(err)
	}
	primary := cfg
	primary.Servers = []tocsin.Server{{Name: "db1", DSN: "root@tcp(" + p.Address(0) + ")/"}}
	applyTypes(t, primary, policies)
	c := open(t, cfg)
	add(t, c, remind.New(1, "x", tocsin.In(day)))
	p.Exec(0, "SET GLOBAL read_only = 1")
	p.Exec(1, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'held'") // it is read-only, but not for root
	p.Promote(1)
	await := func(enough func(error) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			_, err := c.Add(t.Context(), remind.New(1, "x", tocsin.In(day)))
			if enough(err) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("got %v", err)
			}
		}
	}
	await(func(err error) bool {
		return errors.Is(err, tocsin.ErrLayout) && strings.Contains(err.Error(), "is held, as it is")
	})
	p.Exec(1, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'active'")
	await(func(err error) bool { return err == nil })
}

// A client remembers the marks that it has read, and reads them again within a second.
func TestAnOlderCopyTakesNoTaskAndCanBeRead(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	db := session(t, devtest.DSN(t), "")
	for database := range 2 {
		exec(t, db, "UPDATE "+cfg.Layout.Database(database)+".layout SET mark = ?", time.Now().Add(-time.Minute).UnixMilli())
	}
	c := open(t, cfg)
	stored := add(t, c, remind.New(bizOn(cfg.Layout, 1, 1), "x", tocsin.In(day)))
	for says, change := range map[string]string{
		"is an older copy: it ends at ": "mark = mark - 86400000",
		"is held, as it is":             "mark = mark + 86400000, state = 'held'",
	} {
		exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET "+change)
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			_, err := c.Add(t.Context(), remind.New(bizOn(cfg.Layout, 1, 1), "x", tocsin.In(day)))
			if errors.Is(err, tocsin.ErrLayout) && strings.Contains(err.Error(), says) && strings.Contains(err.Error(), "run `tocsin ddl restore-check`") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("got %v, want %q", err, says)
			}
		}
		add(t, c, remind.New(bizOn(cfg.Layout, 0, 1), "x", tocsin.In(day)))
		if got := get(t, c, stored.JobID); got.JobID != stored.JobID {
			t.Errorf("got %+v", got)
		}
		exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET state = 'active', mark = ?", time.Now().UnixMilli())
	}
	exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET state = 'held'")
	for name, do := range txCalls(t, c, bizOn(cfg.Layout, 1, 1), stored.JobID) {
		if err := rolledBack(t, db, do); !errors.Is(err, tocsin.ErrLayout) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAServerThatTakesNoWritesStoresNothingAndIsNoDoubt(t *testing.T) {
	t.Parallel()
	m := secondServer(t)
	cfg := cluster(t, tocsin.Server{Name: "db1", DSN: m.DSN()})
	admin := session(t, m.DSN(), "")
	exec(t, admin, "CREATE USER shop@'%' IDENTIFIED BY 'hush'")
	exec(t, admin, "GRANT SELECT, INSERT, UPDATE ON *.* TO shop@'%'")
	cfg.Servers[0].DSN = strings.Replace(m.DSN(), "root@", "shop:hush@", 1)
	c := open(t, cfg)
	id := add(t, c, remind.New(11, "x", tocsin.In(day))).JobID
	exec(t, admin, "SET GLOBAL read_only = 1")
	for name, call := range map[string]func() error{
		"Add":     func() error { _, err := c.Add(t.Context(), remind.New(11, "y", tocsin.In(0))); return err },
		"Add far": func() error { _, err := c.Add(t.Context(), remind.New(11, "y", tocsin.In(day))); return err },
		"AddMany": func() error {
			_, err := c.AddMany(t.Context(), []tocsin.NewTask{remind.New(11, "y", tocsin.In(0))})
			return err
		},
		"Cancel": func() error { _, err := c.Cancel(t.Context(), tocsin.ByID(id)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := call(); !errors.Is(err, tocsin.ErrUnreachable) || errors.Is(err, tocsin.ErrUnknownOutcome) {
				t.Errorf("got %v", err)
			}
			if list := must[[]tocsin.Info](t)(c.List(t.Context(), 11)); len(list) != 1 || list[0].Status != tocsin.Pending {
				t.Errorf("stored: %+v", list)
			}
		})
	}
}

// The names of biz types are read from the server that answers first, not from the first of the config.
func TestAnUnknownBizTypeWaitsForNoServerThatHangs(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn, Databases: []int{0}}, {Name: "db2", DSN: devtest.DSN(t), Databases: []int{1}}}
	c := open(t, cfg)
	_, release := p.HoldAt("/* tocsin biz types */")
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.Add(ctx, tocsin.Define[string]("no.such").New(1, "x", tocsin.In(day))); !errors.Is(err, tocsin.ErrUnknownBizType) {
		t.Errorf("got %v", err)
	}
}
