package client_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestOpenRefusesWhatIsStoredOtherwise(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	db := session(t, devtest.DSN(t), "")
	name := cfg.Layout.Database(0)
	stored := map[string]struct {
		config func(*tocsin.Config)
		want   string
	}{
		"another layout":             {func(c *tocsin.Config) { c.Layout.Tables = 16 }, "layout of the config is 2x16, that of " + name + " on db1 is 2x2"},
		"a layout of more databases": {func(c *tocsin.Config) { c.Layout.Databases = 4 }, "layout of the config is 4x2, that of " + name + " on db1 is 2x2"},
		"another cluster":            {func(c *tocsin.Config) { c.Cluster = "other" }, `cluster of the config is "other", that of ` + name + ` on db1 is `},
		"no tables at all":           {func(c *tocsin.Config) { c.Layout.Prefix = "nothing_here" }, "run `tocsin ddl apply`"},
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
	for _, all := range []struct{ change, want string }{{"UPDATE {db}.layout SET state = 'retired'", "is retired"}, {"DELETE FROM {db}.layout", "has no layout row"}} {
		for d := range cfg.Layout.Databases {
			exec(t, db, strings.ReplaceAll(all.change, "{db}", cfg.Layout.Database(d)))
		}
		if _, err := tocsin.Open(t.Context(), cfg); !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), all.want) {
			t.Errorf("after %s: %v", all.change, err)
		}
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
	cfg, second := onTwoServers(t)
	p, dsn := devtest.NewProxy(t, second.DSN())
	cfg.Servers[1].DSN = dsn
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
	c, p := throughProxy(t)
	task := remind.New(1, "x", tocsin.In(day))
	add(t, c, task)

	stranger := tocsin.Config{Layout: c.Layout(), Servers: []tocsin.Server{{Name: "db1", DSN: secondServer(t).DSN()}}}
	must[ddl.Result](t)(ddl.Apply(t.Context(), stranger, ddl.Options{Cluster: "stranger"}))
	p.LeadTo(stranger.Servers[0].DSN)
	p.BreakAt("/* tocsin add */", true, 1)
	if _, err := c.Add(t.Context(), task); !errors.Is(err, tocsin.ErrLayout) {
		t.Errorf("added to a stranger: %v", err)
	}
	if p.Breaks() != 1 {
		t.Error("the old connection still stands")
	}
	there := session(t, stranger.Servers[0].DSN, "")
	if n := count(t, there, "SELECT COUNT(*) FROM "+c.Layout().Table(c.Layout().TableOf(1))); n != 0 {
		t.Errorf("the stranger has %d tasks", n)
	}
}

// A transaction on the server of another cluster with the same id looks like one on ours.
func TestNoTransactionOnADatabaseOfAnotherIdentityIsUsed(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	bizID := bizOn(c.Layout(), 1, 1)
	stored := add(t, c, remind.New(bizID, "x", tocsin.In(day)))
	for name, do := range txCalls(t, c, bizID, stored.JobID) {
		if err := rolledBack(t, db, do); err != nil {
			t.Errorf("%s before: %v", name, err)
		}
		exec(t, db, "UPDATE "+c.Layout().Database(1)+".layout SET identity = CONCAT(identity, 'x')")
		err := rolledBack(t, db, do)
		if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), "it is of another cluster with the same id") {
			t.Errorf("%s: %v", name, err)
		}
		exec(t, db, "UPDATE "+c.Layout().Database(1)+".layout SET identity = LEFT(identity, LENGTH(identity) - 1)")
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
	must[ddl.Result](t)(ddl.Apply(t.Context(), cfg, ddl.Options{}))
	primary := cfg
	primary.Servers = []tocsin.Server{{Name: "db1", DSN: "root@tcp(" + p.Address(0) + ")/"}}
	applyTypes(t, primary, policies)
	c := open(t, cfg)
	add(t, c, remind.New(1, "x", tocsin.In(day)))
	p.Exec(0, "SET GLOBAL read_only = 1")
	p.Exec(1, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'held'") // it is read-only, but not for root
	p.Promote(1)
	add := func() error { _, err := c.Add(t.Context(), remind.New(1, "x", tocsin.In(day))); return err }
	eventually(t, "is held, as it is", add)
	p.Exec(1, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'active'")
	eventually(t, "", add)
}

// A client reads the layout rows, and the marks in them, again within a second, whatever connection it uses. A database that takes no
// tasks can be read, and leaves its neighbour alone.
func TestADatabaseThatTakesNoTasksCanBeReadAndLeavesItsNeighbourAlone(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	db := session(t, devtest.DSN(t), "")
	for database := range 2 {
		exec(t, db, "UPDATE "+cfg.Layout.Database(database)+".layout SET mark = ?", time.Now().Add(-time.Minute).UnixMilli())
	}
	c := open(t, cfg)
	there, beside := bizOn(cfg.Layout, 1, 1), bizOn(cfg.Layout, 0, 1)
	stored := add(t, c, remind.New(there, "x", tocsin.In(day)))
	for says, change := range map[string]struct {
		set, help string
		inTx      bool // a statement in a caller's transaction sees it too
	}{
		"is an older copy: it ends at ": {"mark = mark - 86400000", "run `tocsin ddl restore-check`", false},
		"is held, as it is":             {"mark = mark + 86400000, state = 'held'", "run `tocsin ddl restore-check`", true},
		"is retired":                    {"state = 'retired'", "", true},
	} {
		exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET "+change.set)
		refused := func(how string, err error) {
			t.Helper()
			if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), change.help) {
				t.Errorf("%s: %s: %v", says, how, err)
			}
		}
		for began, err := time.Now(), error(nil); err == nil || !strings.Contains(err.Error(), says); {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("%s: not seen: %v", says, err)
			}
			_, err = c.Add(t.Context(), remind.New(there, "late", tocsin.In(day)))
		}
		late := len(listed(t, c, there))
		add(t, c, remind.New(beside, says, tocsin.In(day)))
		for how, when := range map[string]tocsin.When{"near": tocsin.In(0), "far": tocsin.In(day)} {
			_, err := c.Add(t.Context(), remind.New(there, "x", when))
			refused(how+", over a connection that was admitted next door", err)
		}
		added, err := c.AddMany(t.Context(), []tocsin.NewTask{remind.New(there, "x", tocsin.In(day)), remind.New(beside, says, tocsin.In(day))})
		refused("add many", err)
		refused("add many, the task", added[0].Err)
		for how, do := range txCalls(t, c, there, stored.JobID) {
			if change.inTx {
				refused(how, rolledBack(t, db, do))
			}
		}
		next := slices.DeleteFunc(listed(t, c, beside), func(i tocsin.Info) bool { return i.Payload != says })
		if rows := listed(t, c, there); added[1].Err != nil || len(next) != 2 || len(rows) != late || rows[0].JobID != stored.JobID || get(t, c, stored.JobID).JobID != stored.JobID {
			t.Errorf("%s: %+v; next door %+v; in it %+v", says, added, next, rows)
		}
		exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET state = 'active', mark = ?", time.Now().UnixMilli())
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
			if list := listed(t, c, 11); len(list) != 1 || list[0].Status != tocsin.Pending {
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

// A delay of an outbox counts on by the server's clock, as the client has read it. A reading in whole milliseconds is up to
// one behind, and the task is early by that.
func TestTheServersClockIsReadInMicroseconds(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	for range 50 {
		var text string
		if err := db.QueryRowContext(t.Context(), "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)").Scan(&text); err != nil {
			t.Fatal(err)
		}
		before := must[time.Time](t)(time.Parse("2006-01-02 15:04:05.000000", text))
		if read, err := client.MoverOf(c).ServerClock(t.Context()); err != nil || read.Before(before) {
			t.Fatalf("the clock was read as %s after it was %s: %v", read, before, err)
		}
	}
}
