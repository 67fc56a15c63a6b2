package client_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

var live = tocsin.While(tocsin.Pending, tocsin.Claimed)

// unique is a task with a unique key, which no other has.
func unique(key string, when tocsin.When) tocsin.NewTask {
	return remind.New(uint64(len(key)+100), "x", when).Unique(key, live)
}

// What becomes of an add depends on the status of the task that has the key.
func TestAUniqueKeyIsTakenWhileItsTaskLives(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	type want struct{ existing, rescheduled, keeps bool }
	for name, status := range map[string]tocsin.Status{
		"pending": tocsin.Pending, "claimed": tocsin.Claimed, "done": tocsin.Done, "dead": tocsin.Dead, "cancelled": tocsin.Cancelled, "purged": 9,
	} {
		for kind, of := range map[string]struct {
			with func(tocsin.NewTask) tocsin.NewTask
			want want
		}{
			"keep": {
				func(t tocsin.NewTask) tocsin.NewTask { return t },
				want{existing: status <= tocsin.Claimed, keeps: status <= tocsin.Claimed},
			},
			"while it is not dead": {
				func(t tocsin.NewTask) tocsin.NewTask {
					return t.Unique("k"+name+"while it is not dead", tocsin.While(tocsin.Pending, tocsin.Claimed, tocsin.Done))
				},
				want{existing: status <= tocsin.Done, keeps: status <= tocsin.Done},
			},
			"debounce": {
				func(t tocsin.NewTask) tocsin.NewTask { return t.OnConflict(tocsin.Reschedule) },
				want{existing: status <= tocsin.Claimed, rescheduled: status <= tocsin.Claimed, keeps: status <= tocsin.Claimed},
			},
		} {
			for way, add := range adders {
				exec(t, db, "DELETE FROM "+c.Layout().Table(c.Layout().TableOf(uint64(len("k"+name+kind)+100))))
				first := must[[]tocsin.Added](t)(add(t.Context(), c, db, of.with(unique("k"+name+kind, tocsin.In(day)))))[0]
				if first.Existing || first.JobID == 0 {
					t.Fatalf("%s, %s, %s: first %+v", name, kind, way, first)
				}
				table := c.Layout().Table(first.JobID.Table())
				switch status {
				case 9:
					exec(t, db, "DELETE FROM "+table)
				case tocsin.Cancelled:
					must[tocsin.Change](t)(c.Cancel(t.Context(), tocsin.ByID(first.JobID)))
				default:
					exec(t, db, "UPDATE "+table+" SET status = ?, attempts = 2", uint8(status))
				}
				second := must[[]tocsin.Added](t)(add(t.Context(), c, db, of.with(unique("k"+name+kind, tocsin.In(2*day)))))[0]
				got := want{second.Existing, second.Rescheduled, second.JobID == first.JobID}
				if got != of.want || !second.Existing && second.Status != tocsin.Pending || second.Existing && second.Status != status && !second.Rescheduled {
					t.Errorf("%s, %s, %s: %+v", name, kind, way, second)
				}
				last := get(t, c, second.JobID)
				if last.DedupKey != "k"+name+kind || second.Rescheduled != (last.Version == 1) || second.Rescheduled && (last.Attempts != 0 || last.DueTime.Sub(last.Created) < 47*time.Hour) {
					t.Errorf("%s, %s, %s: %+v", name, kind, way, last)
				}
				if n := count(t, db, "SELECT COUNT(*) FROM "+table+" WHERE dedup_key IS NOT NULL"); n != 1 {
					t.Errorf("%s, %s, %s: %d tasks have the key", name, kind, way, n)
				}
			}
		}
	}
}

// TestADebounceMeetsAClaimedTaskOfAStrictType, which keeps its delivery and gives its key to the new task.
func TestADebounceMeetsAClaimedTaskOfAStrictType(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	strict(t, c, db, 8)
	for way, add := range adders {
		task := unique("key "+way, tocsin.In(day)).OnConflict(tocsin.Reschedule)
		first := must[[]tocsin.Added](t)(add(t.Context(), c, db, task))[0]
		exec(t, db, "UPDATE "+c.Layout().Table(first.JobID.Table())+" SET status = 1 WHERE job_id = ?", uint64(first.JobID))
		second := must[[]tocsin.Added](t)(add(t.Context(), c, db, task))[0]
		if second.Existing || second.Rescheduled || second.JobID == first.JobID || get(t, c, second.JobID).DedupKey != "key "+way {
			t.Errorf("%s: %+v", way, second)
		}
		if left := get(t, c, first.JobID); left.Status != tocsin.Claimed || left.Version != 0 || left.DedupKey != "" {
			t.Errorf("%s: %+v", way, left)
		}
	}
}

// Whatever the interleaving, a key has one live task, and every add got that one.
func TestManyAddsOfOneUniqueKeyAtOnce(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	clients := []*tocsin.Client{open(t, cfg), open(t, cfg)}
	db := session(t, devtest.DSN(t), "")
	for name, task := range map[string]tocsin.NewTask{
		"keep": unique("keep", tocsin.In(day)), "debounce": unique("debounce", tocsin.In(day)).OnConflict(tocsin.Reschedule),
	} {
		for round := range 5 {
			const adders = 12
			added := make([]tocsin.Added, adders)
			var group sync.WaitGroup
			for i := range adders {
				group.Go(func() { added[i] = addWithin(t, clients[i%2], db, i, task) })
			}
			group.Wait()
			created, moved := 0, 0
			for _, a := range added {
				if a.JobID != added[0].JobID {
					t.Errorf("%s: %+v and %+v", name, a, added[0])
				}
				if !a.Existing {
					created++
				}
				if a.Rescheduled {
					moved++
				}
			}
			info := get(t, clients[0], added[0].JobID)
			if created != 1 || moved != int(info.Version) || (moved == adders-1) != (name == "debounce") {
				t.Errorf("%s: %d stored, %d rescheduled, version %d", name, created, moved, info.Version)
			}
			status := []string{"status = 2", "status = 4", "status = 2, dedup_key = NULL"}[round%3] // the next round takes the key over
			exec(t, db, "UPDATE "+info.Table+" SET "+status+" WHERE job_id = ?", uint64(info.JobID))
		}
	}
}

// addWithin adds by Add, or in a transaction that is repeated after a deadlock.
func addWithin(t *testing.T, c *tocsin.Client, db *sql.DB, i int, task tocsin.NewTask) (added tocsin.Added) {
	var err error
	if i%3 == 0 {
		added, err = c.Add(t.Context(), task)
	} else {
		for range 50 {
			var all []tocsin.Added
			if all, err = adders["add_tx"](t.Context(), c, db, task); err == nil {
				return all[0]
			}
			if !strings.Contains(err.Error(), "1213") && !strings.Contains(err.Error(), "1020") {
				break
			}
		}
	}
	if err != nil {
		t.Error(err)
	}
	return added
}

// A transaction that has not committed holds up others of its key, and counts only if it commits.
func TestAnAddWaitsForAnotherOfItsUniqueKey(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	for name, end := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
		tx := must[*sql.Tx](t)(db.BeginTx(t.Context(), nil))
		first := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, unique(name, tocsin.In(day))))
		second := make(chan tocsin.Added, 1)
		go func() { second <- addWithin(t, c, db, 0, unique(name, tocsin.In(day)).OnConflict(tocsin.Reschedule)) }()
		lockWait(t, db, "tocsin add")
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		got := <-second
		if (got.JobID == first.JobID) != (name == "commit") || got.Rescheduled != (name == "commit") {
			t.Errorf("%s: %+v, after %+v", name, got, first)
		}
	}
}

// lockWait waits until a statement of the comment waits for a lock. The server renews
// what it says of transactions only if nobody asked for 100 ms.
func lockWait(t *testing.T, db *sql.DB, comment string) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); count(t, db, "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE ?", "%"+comment+"%") == 0; time.Sleep(150 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("no statement waits for a lock")
		}
	}
}

func TestTheBellRingsForWhatADebounceMoves(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	task := unique("bell", tocsin.In(day)).OnConflict(tocsin.Reschedule)
	first := add(t, c, task)
	near := add(t, c, unique("bell", tocsin.In(0)).OnConflict(tocsin.Reschedule))
	if near.JobID != first.JobID || !near.Rescheduled || bells(t, c, db, first.JobID) != 1 {
		t.Errorf("%+v, %d bells", near, bells(t, c, db, first.JobID))
	}
	if fresh := add(t, c, unique("fresh", tocsin.In(0))); bells(t, c, db, fresh.JobID) != 1 {
		t.Errorf("%+v rang %d bells", fresh, bells(t, c, db, fresh.JobID))
	}
}

func TestAnOutboxTakesNoUniqueKey(t *testing.T) {
	t.Parallel()
	c := open(t, withOutbox(t, cluster(t)))
	x := remind.New(7, "x", tocsin.In(day))
	for _, tasks := range [][]tocsin.NewTask{{x.Unique("k", live)}, {x, x.Unique("k", live)}} {
		_, err := c.AddManyTx(t.Context(), begin(t, session(t, devtest.DSN(t), "")), tasks)
		if !errors.Is(err, tocsin.ErrOtherServer) || !strings.Contains(err.Error(), "unique key") {
			t.Errorf("%d tasks: %v", len(tasks), err)
		}
	}
}

func TestAUniqueKeyOfAnotherBusinessKeyIsACollision(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	task := remind.NewKey("ord_1", "x", tocsin.In(day)).Unique("k", live)
	first := add(t, c, task)
	if again := add(t, c, task); again.JobID != first.JobID || !again.Existing {
		t.Errorf("%+v", again)
	}
	exec(t, db, "UPDATE "+c.Layout().Table(first.JobID.Table())+" SET biz_key = 'evil', status = 2")
	for way, add := range adders {
		if _, err := add(t.Context(), c, db, task.OnConflict(tocsin.Reschedule)); !errors.Is(err, tocsin.ErrKeyCollision) {
			t.Errorf("%s: %v", way, err)
		}
	}
	if info := get(t, c, first.JobID); info.DedupKey != "k" || info.Version != 0 {
		t.Errorf("the other task is %+v", info)
	}
}

func TestAUniqueAddWhoseAnswerIsLostIsStoredOnce(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"/* tocsin add */", "/* tocsin holder */", "COMMIT"} {
		for _, before := range []bool{true, false} {
			for _, conflict := range []tocsin.Conflict{tocsin.Keep, tocsin.Reschedule} {
				t.Run(fmt.Sprint(statement, before, conflict), func(t *testing.T) {
					t.Parallel()
					c, p := throughProxy(t)
					p.BreakAt(statement, before, 1)
					added := add(t, c, remind.New(11, "x", tocsin.In(day)).Unique("k", live).OnConflict(conflict))
					one(t, c, p, added, 1)
				})
			}
		}
	}
}

// The last event of a key in a call decides, and the first one's task is stored.
func TestUniqueKeysOfOneCallKeepTheirOrder(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	const keys, events = 8, 6
	var tasks []tocsin.NewTask
	for event := range events {
		for key := range keys {
			tasks = append(tasks, remind.New(uint64(key+1), "x", tocsin.In(time.Duration(events-event)*day)).Unique("k", live).OnConflict(tocsin.Reschedule))
		}
	}
	added := must[[]tocsin.Added](t)(c.AddMany(t.Context(), tasks))
	for i, a := range added {
		if first := added[i%keys]; a.JobID != first.JobID || a.Existing != (i >= keys) || a.Rescheduled != (i >= keys) {
			t.Errorf("event %d of key %d: %+v, first %+v", i/keys, i%keys, a, first)
		}
	}
	for _, a := range added[:keys] {
		if info := get(t, c, a.JobID); info.DueTime.Sub(info.Created) > day+time.Hour || info.Version != events-1 {
			t.Errorf("due %s after it was added, version %d", info.DueTime.Sub(info.Created), info.Version)
		}
	}
}

// A server that dies during the call is waited for by the tasks under way alone, not by each in turn.
func TestUniqueKeysOfOneCallGiveUpAServerThatIsGone(t *testing.T) {
	t.Parallel()
	c, p := throughProxy(t)
	p.BreakAt("/* tocsin add */", true, 1000)
	p.DownAtBreak()
	var tasks []tocsin.NewTask
	for i := range 20 {
		tasks = append(tasks, remind.New(uint64(i+1), "x", tocsin.In(day)).Unique("k", live))
	}
	added, err := c.AddMany(t.Context(), tasks)
	if err == nil {
		t.Fatal("no error")
	}
	tried := 0
	for _, a := range added {
		switch {
		case a.Err == nil:
		case !strings.HasPrefix(a.Err.Error(), "server "):
			tried++
		case errors.Is(a.Err, tocsin.ErrUnknownOutcome), !errors.Is(a.Err, tocsin.ErrUnreachable), a.JobID != 0:
			t.Errorf("%+v", a)
		}
	}
	if tried == 0 || tried > 4 { // four at once
		t.Errorf("%d of %d tasks were tried at a server that is gone", tried, len(tasks))
	}
}

// Another client's task may have the very id that the new one would have: it is that client's all the same.
func TestAUniqueKeyOfATaskWithTheSameIDIsTaken(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	first, second := open(t, cfg), open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	at := time.Now().Add(time.Hour)
	for way, add := range adders {
		at = at.Add(time.Second)
		client.MoverOf(first).IDs.Start(at)
		client.MoverOf(second).IDs.Start(at)
		there := must[tocsin.Added](t)(first.Add(t.Context(), unique(way, tocsin.In(2*day))))
		got := must[[]tocsin.Added](t)(add(t.Context(), second, db, unique(way, tocsin.In(day)).OnConflict(tocsin.Reschedule)))[0]
		if got.JobID != there.JobID || !got.Existing || !got.Rescheduled {
			t.Errorf("%s: %+v, after %+v", way, got, there)
		}
		if info := get(t, first, there.JobID); info.Version != 1 || info.DueTime.Sub(info.Created) > day+time.Hour {
			t.Errorf("%s: %+v", way, info)
		}
	}
}

func TestTheServerComputesTheSameBizIDOfAKey(t *testing.T) {
	t.Parallel()
	dbs := map[string]string{"utf8mb4": "", "latin1": "charset=latin1", "interpolated": "interpolateParams=true"}
	for name, params := range dbs {
		db := session(t, devtest.DSN(t), params)
		rapid.Check(t, func(rt *rapid.T) {
			key := rapid.StringN(1, -1, 64).Draw(rt, "key")
			var got uint64
			err := db.QueryRow("SELECT CONV(LEFT(SHA2(CONVERT(CAST(? AS BINARY) USING utf8mb4), 256), 16), 16, 10) & 9223372036854775807", []byte(key)).Scan(&got)
			if err != nil || got != tocsin.KeyID(key) {
				rt.Fatalf("%s: %q: %d, %v, want %d", name, key, got, err, tocsin.KeyID(key))
			}
		})
	}
	if id := tocsin.KeyID("ord_01J8Z3"); id != 8749688562897706837 {
		t.Errorf("docs/sql.md has another biz_id: %d", id)
	}
}

func TestChangesOfAKeyAndOfItsNumberAreApart(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	id := tocsin.KeyID("ord_1")
	ofKey, ofNumber := add(t, c, remind.NewKey("ord_1", "k", tocsin.In(day))), add(t, c, remind.New(id, "n", tocsin.In(day)))
	list := func(infos []tocsin.Info, err error) (ids []tocsin.JobID) {
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			ids = append(ids, i.JobID)
		}
		return ids
	}
	if got := list(c.ListKey(t.Context(), "ord_1")); !slices.Equal(got, []tocsin.JobID{ofKey.JobID}) {
		t.Errorf("of the key: %v", got)
	}
	if got := list(c.List(t.Context(), id)); !slices.Equal(got, []tocsin.JobID{ofNumber.JobID}) {
		t.Errorf("of the number: %v", got)
	}
	db := session(t, devtest.DSN(t), "")
	for name, ref := range map[tocsin.JobID]tocsin.Ref{ofKey.JobID: remind.OfKey("ord_1"), ofNumber.JobID: remind.Of(id)} {
		tx := begin(t, db)
		far := must[tocsin.Change](t)(c.RescheduleTx(t.Context(), tx, ref, tocsin.In(2*day)))
		commit(t, tx)
		moved := must[tocsin.Change](t)(c.Reschedule(t.Context(), ref, tocsin.In(0)))
		if moved != (tocsin.Change{Changed: 1}) || far != moved || get(t, c, name).Version != 2 || bells(t, c, db, name) != 1 {
			t.Errorf("%+v, %+v, %+v", moved, far, get(t, c, name))
		}
	}
	if done := must[tocsin.Change](t)(c.Cancel(t.Context(), remind.OfKey("ord_1"))); done != (tocsin.Change{Changed: 1, InDelivery: 1}) {
		t.Errorf("%+v", done)
	}
	tx := begin(t, db)
	if done := must[tocsin.Change](t)(c.CancelTx(t.Context(), tx, remind.Of(id))); done != (tocsin.Change{Changed: 1, InDelivery: 1}) {
		t.Errorf("%+v", done)
	}
	for _, key := range []string{"", strings.Repeat("k", 65), "\xff"} {
		_, list := c.ListKey(t.Context(), key)
		_, cancel := c.Cancel(t.Context(), remind.OfKey(key))
		_, reschedule := c.RescheduleTx(t.Context(), tx, remind.OfKey(key), tocsin.In(0))
		for _, err := range []error{list, cancel, reschedule} {
			if !errors.Is(err, tocsin.ErrInvalid) {
				t.Errorf("key %q: %v", key, err)
			}
		}
	}
}

// A collision is made by hand: the row of another key under this key's biz_id.
func TestADedupKeyOfAnotherBusinessKeyIsACollision(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	for name, other := range map[string]string{"another key": "evil", "a number": ""} {
		key := "ord_" + name
		first := add(t, c, remind.NewKey(key, "x", tocsin.In(day)).Dedup("d"))
		exec(t, db, "UPDATE "+c.Layout().Table(first.JobID.Table())+" SET biz_key = ? WHERE job_id = ?", []byte(other), uint64(first.JobID))
		task := remind.NewKey(key, "mine", tocsin.In(day)).Dedup("d")
		for way, add := range adders {
			added, err := add(t.Context(), c, db, task, remind.NewKey(key, "alone", tocsin.In(day)))
			if !errors.Is(err, tocsin.ErrKeyCollision) || !strings.Contains(err.Error(), `key "`+key+`"`) || !strings.Contains(err.Error(), first.JobID.String()) {
				t.Errorf("%s, %s: %v", name, way, err)
			}
			if way == "add_many" && (added[0].JobID != 0 || !errors.Is(added[0].Err, tocsin.ErrKeyCollision) || added[1].Err != nil) {
				t.Errorf("%s: %+v", name, added)
			}
		}
		if n := count(t, db, "SELECT COUNT(*) FROM "+c.Layout().Table(first.JobID.Table())+" WHERE attribute = 'mine'"); n != 0 {
			t.Errorf("%s: %d tasks are stored all the same", name, n)
		}
		if info := get(t, c, first.JobID); info.BizKey != other || info.Payload != "x" {
			t.Errorf("%s: the other task is %+v", name, info)
		}
		again := add(t, c, remind.NewKey(key, "fine", tocsin.In(day)).Dedup("other"))
		if same := add(t, c, remind.NewKey(key, "fine", tocsin.In(day)).Dedup("other")); !same.Existing || same.JobID != again.JobID {
			t.Errorf("%s: %+v", name, same)
		}
	}
}
