package tocsin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestAddManyStoresAllOverAllTables(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	const n = 5000
	tasks := make([]tocsin.NewTask, n)
	for i := range tasks {
		when := tocsin.In(day)
		if i%2 == 0 {
			when = tocsin.In(time.Second)
		}
		tasks[i] = remind.New(uint64(i+1), fmt.Sprint("payload ", i), when).Dedup(fmt.Sprint(i % 7))
	}
	added := must[[]tocsin.Added](t)(c.AddMany(t.Context(), tasks))
	rows, rings := 0, 0
	for table := range cfg.Layout.Total() {
		here := count(t, db, "SELECT COUNT(*) FROM "+cfg.Layout.Table(table))
		if rows += here; here == 0 {
			t.Errorf("%s is empty", cfg.Layout.Table(table))
		}
	}
	for d := range cfg.Layout.Databases {
		name := cfg.Layout.Database(d)
		rings += count(t, db, "SELECT COUNT(*) FROM "+name+".doorbell")
		for table := d * cfg.Layout.Tables; table < (d+1)*cfg.Layout.Tables; table++ {
			rings -= count(t, db, "SELECT COUNT(*) FROM "+name+".doorbell AS b JOIN "+cfg.Layout.Table(table)+
				" AS t ON t.job_id = b.job_id AND t.biz_type = b.biz_type AND t.action_time = b.action_time WHERE b.table_no = ?", table)
		}
	}
	if rows != n || rings != 0 {
		t.Errorf("%d rows; %d rings do not fit one", rows, rings)
	}
	for _, i := range []int{0, 1, n / 2, n - 1} {
		if got := get(t, c, added[i].JobID); got.BizID != uint64(i+1) || got.Payload != fmt.Sprint("payload ", i) || added[i].Existing {
			t.Errorf("task %d: %+v, %+v", i, added[i], got)
		}
	}
}

func TestAddManyTellsExistingFromNew(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	first := add(t, c, remind.New(1, "x", tocsin.In(day)).Dedup("a"))
	gone := add(t, c, remind.New(1, "x", tocsin.In(day)).Dedup("b"))
	must[tocsin.Change](t)(c.Cancel(t.Context(), tocsin.ByID(gone.JobID)))
	added := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{
		remind.New(1, "y", tocsin.In(day)).Dedup("a"),
		remind.New(1, "y", tocsin.In(day)).Dedup("b"),
		remind.New(1, "y", tocsin.In(day)),
		remind.New(1, "z", tocsin.In(day)).Dedup("b"),
		remind.New(1, "y", tocsin.In(day)).Dedup("c"),
	}))
	want := []bool{true, false, false, true, false}
	for i, a := range added {
		if a.Existing != want[i] {
			t.Errorf("task %d: %+v", i, a)
		}
	}
	if added[0].JobID != first.JobID || added[3].JobID != added[1].JobID {
		t.Errorf("got %+v", added)
	}
	again := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{remind.New(1, "z", tocsin.In(0)).Dedup("c")}))
	if !again[0].Existing || again[0].JobID != added[4].JobID {
		t.Errorf("once more: %+v", again)
	}
	if list := must[[]tocsin.Info](t)(c.List(t.Context(), 1)); len(list) != 5 {
		t.Errorf("%d are stored", len(list))
	}
}

// Of tasks added together only the new ones ring: for an id that was never stored a
// node would look in vain.
func TestAddManyRingsForNewTasksAlone(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	tasks := make([]tocsin.NewTask, 60)
	for i := range tasks {
		tasks[i] = remind.New(uint64(i+1), "x", tocsin.In(time.Second)).Dedup("once")
	}
	for i, a := range must[[]tocsin.Added](t)(c.AddMany(t.Context(), tasks[:40])) {
		if a.Existing || bells(t, c, db, a.JobID) != 1 {
			t.Errorf("task %d: %+v, %d rings", i, a, bells(t, c, db, a.JobID))
		}
	}
	added := must[[]tocsin.Added](t)(c.AddMany(t.Context(), append(tasks, remind.New(70, "x", tocsin.In(time.Second)))))
	rings := 0
	for d := range cfg.Layout.Databases {
		rings += count(t, db, "SELECT COUNT(*) FROM "+cfg.Layout.Database(d)+".doorbell")
	}
	for i, a := range added {
		if a.Existing != (i < 40) || bells(t, c, db, a.JobID) != 1 {
			t.Errorf("task %d: %+v, %d rings", i, a, bells(t, c, db, a.JobID))
		}
	}
	if rings != len(added) {
		t.Errorf("%d rings for %d tasks", rings, len(added))
	}
}

func TestATakenIDIsFollowedByTheNext(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	tx := begin(t, session(t, devtest.DSN(t), ""))
	at := time.Now().Add(time.Hour)
	next := func() tocsin.NewTask {
		c.NextIDAt(at)
		return remind.New(1, "x", tocsin.In(day))
	}
	ids := []tocsin.JobID{add(t, c, next()).JobID, add(t, c, next()).JobID}
	ids = append(ids, must[tocsin.Added](t)(c.AddTx(t.Context(), tx, next())).JobID)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	ids = append(ids, add(t, c, next().Dedup("k")).JobID)
	other := remind.New(1, "another", tocsin.In(day))
	c.NextIDAt(at)
	for _, a := range must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{other, other, other})) {
		ids = append(ids, a.JobID)
	}
	seen := map[tocsin.JobID]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	if list := must[[]tocsin.Info](t)(c.List(t.Context(), 1)); len(seen) != len(ids) || len(list) != len(ids) {
		t.Errorf("%d ids, %d rows, of %d tasks", len(seen), len(list), len(ids))
	}
}

// Another process's task may have the very id and content that a new one would have. The new one is stored all the same,
// beside rows that ring or have a key, and beside rows of other tables.
func TestAnIdenticalTaskOfAnotherProcessIsAnotherTask(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	first, second := open(t, cfg), open(t, cfg)
	at := time.Now().Add(time.Hour)
	id := uint64(1)
	for name, beside := range map[string][]tocsin.NewTask{
		"alone":                 nil,
		"with a key":            {remind.New(1, "x", tocsin.In(day)).Dedup("far")},
		"with a key, and rings": {remind.New(1, "x", tocsin.In(time.Second)).Dedup("near")},
		"of other tables":       {remind.New(1000, "x", tocsin.In(day)), remind.New(1001, "x", tocsin.In(day)), remind.New(1002, "x", tocsin.In(day))},
	} {
		for _, ahead := range []time.Duration{time.Second, day} {
			id++
			at = at.Add(time.Minute)
			same := remind.New(id, "x", tocsin.In(ahead))
			first.NextIDAt(at)
			second.NextIDAt(at)
			there := must[[]tocsin.Added](t)(first.AddMany(t.Context(), []tocsin.NewTask{same, same}))
			got := must[[]tocsin.Added](t)(second.AddMany(t.Context(), append([]tocsin.NewTask{same, same}, beside...)))
			ids := map[tocsin.JobID]bool{}
			for _, a := range append(there, got[:2]...) {
				ids[a.JobID] = true
			}
			if list := must[[]tocsin.Info](t)(first.List(t.Context(), id)); len(list) != 4 || len(ids) != 4 {
				t.Errorf("%s, in %s: %d rows, %d ids, of 4 tasks", name, ahead, len(list), len(ids))
			}
		}
	}
}

func TestAddManyKeepsGoodTasksFromBadOnes(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	added, err := c.AddMany(t.Context(), []tocsin.NewTask{
		remind.New(1, "x", tocsin.In(day)),
		remind.New(0, "x", tocsin.In(day)),
		remind.New(1, "y", tocsin.In(day)),
		tocsin.Define[int]("no.such").New(1, 1, tocsin.In(day)),
	})
	if !errors.Is(err, tocsin.ErrInvalid) || !strings.HasPrefix(err.Error(), "2 of 4 tasks are not stored: 2 refused (biz type \"coupon.remind\": biz_id is 0)") {
		t.Errorf("got %v", err)
	}
	for i, want := range []error{nil, tocsin.ErrInvalid, nil, tocsin.ErrUnknownBizType} {
		if !errors.Is(added[i].Err, want) || (added[i].JobID == 0) != (want != nil) {
			t.Errorf("task %d: %+v", i, added[i])
		}
	}
	if list := must[[]tocsin.Info](t)(c.List(t.Context(), 1)); len(list) != 2 {
		t.Errorf("%d are stored", len(list))
	}
}

func TestAddManyLeavesOutTheCulpritsAlone(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	missing := 1
	exec(t, session(t, devtest.DSN(t), ""), "DROP TABLE "+cfg.Layout.Table(missing))
	tasks := make([]tocsin.NewTask, 300)
	for i := range tasks {
		tasks[i] = remind.New(uint64(i+1), "x", tocsin.In(0))
	}
	added, err := c.AddMany(t.Context(), tasks)
	if err == nil || !strings.Contains(err.Error(), "on server db1 (add task to "+cfg.Layout.Table(missing)+" on db1: ") {
		t.Errorf("got %v", err)
	}
	for i, a := range added {
		if bad := cfg.Layout.TableOf(uint64(i+1)) == missing; bad != (a.Err != nil) || bad != (a.JobID == 0) {
			t.Errorf("biz_id %d: %+v", i+1, a)
		}
	}
}

func TestAddManyStoresAroundALockedTable(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	own := session(t, devtest.DSN(t), "")
	holder := must[*sql.Conn](t)(own.Conn(t.Context()))
	defer holder.Close()
	locked := func(query string) {
		if _, err := holder.ExecContext(t.Context(), query); err != nil {
			t.Error(err)
		}
	}
	locked("LOCK TABLES " + cfg.Layout.Table(1) + " WRITE")
	tasks, others := make([]tocsin.NewTask, 200), 0
	for i := range tasks {
		tasks[i] = remind.New(uint64(i+1), "x", tocsin.In(0))
		if cfg.Layout.TableOf(uint64(i+1)) != 1 {
			others++
		}
	}
	done := make(chan error)
	go func() {
		_, err := c.AddMany(t.Context(), tasks)
		done <- err
	}()
	free := []string{cfg.Layout.Table(0), cfg.Layout.Table(2), cfg.Layout.Table(3)}
	for stored := 0; stored < others; time.Sleep(10 * time.Millisecond) {
		stored = 0
		for _, table := range free {
			stored += count(t, own, "SELECT COUNT(*) FROM "+table)
		}
		select {
		case err := <-done:
			t.Fatalf("ended with the table locked and %d of %d stored elsewhere: %v", stored, others, err)
		default:
		}
	}
	locked("UNLOCK TABLES")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAddManySaysWhatIsStoredWhenOneServerIsDown(t *testing.T) {
	t.Parallel()
	second := secondServer(t)
	cfg := cluster(t,
		tocsin.Server{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}},
		tocsin.Server{Name: "db2", DSN: second.DSN(), Databases: []int{1}})
	c := open(t, cfg)
	tasks := make([]tocsin.NewTask, 3000)
	lost := 0
	for i := range tasks {
		tasks[i] = remind.New(uint64(i+1), "x", tocsin.In(day))
		if cfg.Layout.DatabaseOf(cfg.Layout.TableOf(uint64(i+1))) == 1 {
			lost++
		}
	}
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	added, err := c.AddMany(t.Context(), tasks)
	if !errors.Is(err, tocsin.ErrUnreachable) || !strings.HasPrefix(err.Error(), fmt.Sprintf("%d of 3000 tasks are not stored: %d on server db2 (", lost, lost)) {
		t.Errorf("got %v", err)
	}
	for i, a := range added {
		down := cfg.Layout.DatabaseOf(cfg.Layout.TableOf(uint64(i+1))) == 1
		if down != (a.Err != nil) || errors.Is(a.Err, tocsin.ErrUnknownOutcome) {
			t.Fatalf("biz_id %d: %+v", i+1, a)
		}
		if list := 0; !down && i%100 == 0 {
			if list = len(must[[]tocsin.Info](t)(c.List(t.Context(), uint64(i+1)))); list != 1 {
				t.Errorf("biz_id %d: %d rows", i+1, list)
			}
		}
	}
	t.Logf("told after %s", time.Since(began))
}

func TestAddManySplitsByBytes(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	tasks := make([]tocsin.NewTask, 400) // some 26 MB when escaped
	for i := range tasks {
		tasks[i] = remind.New(uint64(i+1), strings.Repeat("🔔", tocsin.MaxPayload), tocsin.In(day))
	}
	for i, a := range must[[]tocsin.Added](t)(c.AddMany(t.Context(), tasks)) {
		if a.Err != nil || a.JobID == 0 {
			t.Fatalf("task %d: %+v", i, a)
		}
	}
}

func TestAddManyInCountsByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	added := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{
		remind.New(5, "x", tocsin.In(time.Hour)),
		remind.New(5, "x", tocsin.At(time.Unix(1, 0))),
	}))
	later, past := get(t, c, added[0].JobID), get(t, c, added[1].JobID)
	if late := later.ActionTime.Sub(later.Created.Add(time.Hour)).Abs(); late > 10*time.Second || !later.DueTime.Equal(later.ActionTime) {
		t.Errorf("in an hour: %s off, %+v", late, later)
	}
	if late := past.ActionTime.Sub(past.Created).Abs(); late > 10*time.Second || past.DueTime.Unix() != 1 {
		t.Errorf("past: %s off, %+v", late, past)
	}
}

// throughProxy is a client that reaches its server through a proxy.
func throughProxy(t *testing.T) (*tocsin.Client, *devtest.Proxy) {
	t.Helper()
	cfg := cluster(t)
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	return open(t, cfg), p
}

func TestALostConnectionNeverStoresATaskTwice(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]struct {
		before bool
		times  int
	}{
		"the acknowledgement is lost":       {false, 1},
		"the acknowledgement is lost twice": {false, 2},
		"the statement is lost":             {true, 1},
	} {
		for kind, task := range map[string]tocsin.NewTask{
			"near":              remind.New(11, "x", tocsin.In(0)),
			"far":               remind.New(11, "x", tocsin.In(day)),
			"with a key":        remind.New(11, "x", tocsin.In(day)).Dedup("k"),
			"near, with a key":  remind.New(11, "x", tocsin.In(0)).Dedup("k"),
			"with headers":      remind.New(11, "x", tocsin.In(0)).Header("a", "b"),
			"an empty one":      remind.New(11, "", tocsin.In(day)),
			"one not of ASCII ": remind.New(11, "ü", tocsin.In(day)),
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				c, p := throughProxy(t)
				p.BreakAt("/* tocsin add */", broken.before, broken.times)
				added := add(t, c, task)
				one(t, c, p, added, broken.times)
			})
			t.Run(name+"/"+kind+"/many", func(t *testing.T) {
				t.Parallel()
				c, p := throughProxy(t)
				p.BreakAt("/* tocsin add many */", broken.before, broken.times)
				added := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{task}))
				one(t, c, p, added[0], broken.times)
			})
		}
	}
}

// one demands that there is one task, the one that was added.
func one(t *testing.T, c *tocsin.Client, p *devtest.Proxy, added tocsin.Added, broken int) {
	t.Helper()
	list := must[[]tocsin.Info](t)(c.List(t.Context(), 11))
	if p.Breaks() != broken {
		t.Errorf("%d connections broke, not %d", p.Breaks(), broken)
	}
	if added.Existing || len(list) != 1 || list[0].JobID != added.JobID {
		t.Errorf("added %+v, there are %d", added, len(list))
	}
}

func TestWhatCannotBeAskedAgainIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{"Add": "/* tocsin add */", "AddMany": "/* tocsin add many */"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := throughProxy(t)
			p.BreakAt(statement, false, 1)
			p.DownAtBreak()
			id, err := addOne(p.EndAfterBreak(t, time.Second), c, name)
			if !errors.Is(err, tocsin.ErrUnknownOutcome) || id == 0 || !strings.Contains(err.Error(), id.String()) {
				t.Fatalf("job_id %s, %v", id, err)
			}
			p.SetDown(false)
			if got := get(t, c, id); got.BizID != 11 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// addOne adds a task by either way and gives the job_id that is said to be in doubt.
func addOne(ctx context.Context, c *tocsin.Client, how string) (tocsin.JobID, error) {
	task := remind.New(11, "x", tocsin.In(0))
	if how == "Add" {
		a, err := c.Add(ctx, task)
		return a.JobID, err
	}
	all, err := c.AddMany(ctx, []tocsin.NewTask{task})
	return all[0].JobID, err
}

func TestAServerThatGoesDownStoresNothing(t *testing.T) {
	t.Parallel()
	c, p := throughProxy(t)
	p.SetDown(true)
	p.BreakAt("tocsin", true, 1) // the pooled connection breaks too
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := c.List(ctx, 11)
	if err == nil {
		t.Fatal("the server is not down")
	}
	if _, err := c.Add(ctx, remind.New(11, "x", tocsin.In(0))); err == nil || errors.Is(err, tocsin.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	p.SetDown(false)
	if list := must[[]tocsin.Info](t)(c.List(t.Context(), 11)); len(list) != 0 {
		t.Errorf("%d are stored", len(list))
	}
}

func TestAChangeWhoseCommitIsLostIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	c, p := throughProxy(t)
	id := add(t, c, remind.New(11, "x", tocsin.In(day))).JobID
	p.BreakAt("COMMIT", false, 1)
	if ch, err := c.Cancel(t.Context(), tocsin.ByID(id)); !errors.Is(err, tocsin.ErrUnknownOutcome) {
		t.Errorf("got %+v, %v", ch, err)
	}
	if ch := must[tocsin.Change](t)(c.Cancel(t.Context(), tocsin.ByID(id))); ch.Final != 1 {
		t.Errorf("once more: %+v", ch)
	}
}

func TestAChangeBeforeWhoseCommitTheConnectionBreaksIsRepeated(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"BEGIN", "/* tocsin status */", "/* tocsin reschedule */", "/* tocsin ring */"} {
		t.Run(fmt.Sprintf("at %q", at), func(t *testing.T) {
			t.Parallel()
			c, p := throughProxy(t)
			id := add(t, c, remind.New(11, "x", tocsin.In(day))).JobID
			p.BreakAt(at, false, 1)
			ch := must[tocsin.Change](t)(c.Reschedule(t.Context(), tocsin.ByID(id), tocsin.In(0)))
			if got := get(t, c, id); ch.Changed != 1 || got.Version != 1 || p.Breaks() != 1 {
				t.Errorf("%+v, version %d, %d breaks", ch, got.Version, p.Breaks())
			}
		})
	}
}
