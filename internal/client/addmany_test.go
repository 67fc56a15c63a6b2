package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestAddManyStoresAllOverAllTables(t *testing.T) {
	t.Parallel()
	c, db := start(t)
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
	for table := range c.Layout().Total() {
		here := count(t, db, "SELECT COUNT(*) FROM "+c.Layout().Table(table))
		if rows += here; here == 0 {
			t.Errorf("%s is empty", c.Layout().Table(table))
		}
	}
	for d := range c.Layout().Databases {
		name := c.Layout().Database(d)
		rings += count(t, db, "SELECT COUNT(*) FROM "+name+".doorbell")
		for table := d * c.Layout().Tables; table < (d+1)*c.Layout().Tables; table++ {
			rings -= count(t, db, "SELECT COUNT(*) FROM "+name+".doorbell AS b JOIN "+c.Layout().Table(table)+
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
	if list := listed(t, c, 1); len(list) != 5 {
		t.Errorf("%d are stored", len(list))
	}
}

// Of tasks added together only the new ones ring: for an id that was never stored a
// node would look in vain.
func TestAddManyRingsForNewTasksAlone(t *testing.T) {
	t.Parallel()
	c, db := start(t)
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
	for d := range c.Layout().Databases {
		rings += count(t, db, "SELECT COUNT(*) FROM "+c.Layout().Database(d)+".doorbell")
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
		client.MoverOf(c).IDs.Start(at)
		return remind.New(1, "x", tocsin.In(day))
	}
	ids := []tocsin.JobID{add(t, c, next()).JobID, add(t, c, next()).JobID}
	ids = append(ids, must[tocsin.Added](t)(c.AddTx(t.Context(), tx, next())).JobID)
	commit(t, tx)
	ids = append(ids, add(t, c, next().Dedup("k")).JobID)
	other := remind.New(1, "another", tocsin.In(day))
	client.MoverOf(c).IDs.Start(at)
	for _, a := range must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{other, other, other})) {
		ids = append(ids, a.JobID)
	}
	seen := map[tocsin.JobID]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	if list := listed(t, c, 1); len(seen) != len(ids) || len(list) != len(ids) {
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
			client.MoverOf(first).IDs.Start(at)
			client.MoverOf(second).IDs.Start(at)
			there := must[[]tocsin.Added](t)(first.AddMany(t.Context(), []tocsin.NewTask{same, same}))
			got := must[[]tocsin.Added](t)(second.AddMany(t.Context(), append([]tocsin.NewTask{same, same}, beside...)))
			ids := map[tocsin.JobID]bool{}
			for _, a := range append(there, got[:2]...) {
				ids[a.JobID] = true
			}
			if list := listed(t, first, id); len(list) != 4 || len(ids) != 4 {
				t.Errorf("%s, in %s: %d rows, %d ids, of 4 tasks", name, ahead, len(list), len(ids))
			}
		}
	}
}

func TestAddManyLeavesOutTheCulpritsAlone(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	missing := 1
	exec(t, session(t, devtest.DSN(t), ""), "DROP TABLE "+c.Layout().Table(missing))
	tasks := make([]tocsin.NewTask, 300)
	for i := range tasks {
		tasks[i] = remind.New(uint64(i+1), "x", tocsin.In(0))
	}
	added, err := c.AddMany(t.Context(), tasks)
	if err == nil || !strings.Contains(err.Error(), "on server db1 (add task to "+c.Layout().Table(missing)+" on db1: ") {
		t.Errorf("got %v", err)
	}
	for i, a := range added {
		if bad := c.Layout().TableOf(uint64(i+1)) == missing; bad != (a.Err != nil) || bad != (a.JobID == 0) {
			t.Errorf("biz_id %d: %+v", i+1, a)
		}
	}
}

func TestAddManyStoresAroundALockedTable(t *testing.T) {
	t.Parallel()
	c, own := start(t)
	holder := must[*sql.Conn](t)(own.Conn(t.Context()))
	defer holder.Close()
	locked := func(query string) {
		if _, err := holder.ExecContext(t.Context(), query); err != nil {
			t.Error(err)
		}
	}
	locked("LOCK TABLES " + c.Layout().Table(1) + " WRITE")
	tasks, others := make([]tocsin.NewTask, 200), 0
	for i := range tasks {
		tasks[i] = remind.New(uint64(i+1), "x", tocsin.In(0))
		if c.Layout().TableOf(uint64(i+1)) != 1 {
			others++
		}
	}
	done := make(chan error)
	go func() {
		_, err := c.AddMany(t.Context(), tasks)
		done <- err
	}()
	free := []string{c.Layout().Table(0), c.Layout().Table(2), c.Layout().Table(3)}
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

// Another session may wait for a table of the call, and get it before AddMany has read which of the tasks with a key were there.
func TestAddManyStoresTasksOnceIfATableIsTakenMeanwhile(t *testing.T) {
	t.Parallel()
	c, p := throughProxy(t)
	own, dirty := session(t, devtest.DSN(t), ""), session(t, devtest.DSN(t), devtest.IsolationParam(t, "READ-UNCOMMITTED"))
	var tasks []tocsin.NewTask
	plain := 0
	for id := uint64(1); id <= 50; id++ {
		switch task := remind.New(id, "x", tocsin.In(day)); c.Layout().TableOf(id) {
		case 0:
			tasks = append(tasks, task.Dedup("k"))
			add(t, c, task.Dedup("k"))
		case 1:
			tasks = append(tasks, task)
			plain++
		}
	}
	stored := func() int { return count(t, dirty, "SELECT COUNT(*) FROM "+c.Layout().Table(1)) }
	held, release := p.HoldAt("/* tocsin add many */")
	done := make(chan error, 1)
	go func() {
		_, err := c.AddMany(t.Context(), tasks)
		done <- err
	}()
	<-held
	awaits := func(what string, is func() bool) {
		t.Helper()
		eventually(t, "", func() error {
			if !is() {
				return errors.New(what)
			}
			return nil
		})
	}
	awaits("the tasks are not inserted", func() bool { return stored() == plain })
	other := must[*sql.Conn](t)(own.Conn(t.Context()))
	defer other.Close()
	lock, locked := "LOCK TABLES "+c.Layout().Table(0)+" WRITE", make(chan error, 1)
	go func() {
		_, err := other.ExecContext(t.Context(), lock)
		locked <- err
	}()
	awaits("nobody has the table or waits for it", func() bool {
		return len(locked) == 1 || count(t, own, "SELECT COUNT(*) FROM information_schema.processlist WHERE info = ? AND state LIKE 'Waiting for %lock'", lock) == 1
	})
	release()
	awaits("AddMany neither ends nor stores more", func() bool { return len(done) == 1 || stored() > plain })
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	must[sql.Result](t)(other.ExecContext(t.Context(), "UNLOCK TABLES"))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := stored(); n != plain {
		t.Errorf("%d rows of %d tasks", n, plain)
	}
}

// A try of AddMany may lose its connection while its commit hangs; the next one then waits for its locks. The rows that the first has
// stored are found, and not stored again under other ids.
func TestAddManyFindsWhatALockedTryHasStored(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]error{"the server answers": nil, "the server is gone": tocsin.ErrUnreachable} {
		c, db := start(t)
		id := add(t, c, remind.New(1, "x", tocsin.In(day))).JobID
		lock := must[*sql.Tx](t)(db.BeginTx(t.Context(), nil))
		must[sql.Result](t)(lock.ExecContext(t.Context(), "UPDATE "+c.Layout().Table(id.Table())+" SET attribute = attribute WHERE job_id = ?", uint64(id)))
		task := client.Task{BizType: "coupon.remind", BizID: 1, When: client.In(day), Payload: "x"}
		got := client.MoverOf(c).StoreInDoubt(t.Context(), task, uint64(id), func() error {
			if err := lock.Rollback(); err != nil {
				t.Error(err)
			}
			return gone
		})
		if rows := listed(t, c, 1); got.JobID != uint64(id) || len(rows) != 1 || errors.Is(got.Err, tocsin.ErrUnknownOutcome) != (gone != nil) || !errors.Is(got.Err, gone) {
			t.Errorf("%s: %+v, want job_id %s; %d rows", name, got, id, len(rows))
		}
	}
}

func TestAddManySaysWhatIsStoredWhenOneServerIsDown(t *testing.T) {
	t.Parallel()
	cfg, second := onTwoServers(t)
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
		if !down && i%100 == 0 && len(listed(t, c, uint64(i+1))) != 1 {
			t.Errorf("biz_id %d is not stored once", i+1)
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

// firstStatements are those by which a task is stored, by the way to add it.
var firstStatements = map[string]string{"add": "/* tocsin add */", "add_many": "/* tocsin add many */"}

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
			for way, statement := range firstStatements {
				t.Run(name+"/"+kind+"/"+way, func(t *testing.T) {
					t.Parallel()
					c, p := throughProxy(t)
					p.BreakAt(statement, broken.before, broken.times)
					added := must[[]tocsin.Added](t)(adders[way](t.Context(), c, nil, task))
					one(t, c, p, added[0], broken.times)
				})
			}
		}
	}
}

// one demands that there is one task, the one that was added.
func one(t *testing.T, c *tocsin.Client, p *devtest.Proxy, added tocsin.Added, broken int) {
	t.Helper()
	list := listed(t, c, 11)
	if p.Breaks() != broken {
		t.Errorf("%d connections broke, not %d", p.Breaks(), broken)
	}
	if added.Existing || len(list) != 1 || list[0].JobID != added.JobID {
		t.Errorf("added %+v, there are %d", added, len(list))
	}
}

func TestWhatCannotBeAskedAgainIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for way, statement := range firstStatements {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c, p := throughProxy(t)
			p.BreakAt(statement, false, 1)
			p.DownAtBreak()
			added, err := adders[way](p.EndAfterBreak(t, time.Second), c, nil, remind.New(11, "x", tocsin.In(0)))
			id := added[0].JobID
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
	if list := listed(t, c, 11); len(list) != 0 {
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
