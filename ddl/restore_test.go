package ddl

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

const day = int64(24 * time.Hour / time.Millisecond)

// revival is a cluster of two databases, whose second one is an older copy.
type revival struct {
	t     *testing.T
	cfg   tocsin.Config
	db    *sql.DB
	ends  int64 // mark of the copy
	known int64 // last known of it
	rows  int
}

func newRevival(t *testing.T) *revival {
	t.Helper()
	r := &revival{t: t, cfg: config(t, 2, 3)}
	applied(t, r.cfg, Options{})
	r.db = must(sql.Open("mysql", r.cfg.Servers[0].DSN))
	t.Cleanup(func() { _ = r.db.Close() })
	r.known = time.Now().UnixMilli() - day
	r.ends = r.known - day
	r.exec("UPDATE {0}.layout SET mark = ?", time.Now().UnixMilli())
	r.exec("UPDATE {1}.layout SET mark = ?", r.ends)
	r.exec("INSERT INTO {0}.mark SELECT 1, identity, ?, UTC_TIMESTAMP(3) FROM {0}.layout", r.known)
	for _, db := range []string{"{0}", "{1}"} {
		r.exec("INSERT INTO " + db + ".biz_type VALUES (1, 'order.close', 'g', '{}', 1, UTC_TIMESTAMP(3)), (2, 'coupon.remind', 'g', '{}', 1, UTC_TIMESTAMP(3))")
	}
	return r
}

func (r *revival) exec(query string, args ...any) {
	r.t.Helper()
	query = strings.NewReplacer("{0}", r.cfg.Layout.Database(0), "{1}", r.cfg.Layout.Database(1)).Replace(query)
	if _, err := r.db.Exec(query, args...); err != nil {
		r.t.Fatalf("%.200s: %v", query, err)
	}
}

// add puts n tasks into one table of the copy. after is how long after the last known time of the copy they are due.
func (r *revival) add(n, table int, status tocsin.Status, bizType int, after time.Duration) {
	r.t.Helper()
	due := time.UnixMilli(r.known).UTC().Add(after).Format(timeForm)
	var rows []string
	for range n {
		r.rows++
		rows = append(rows, fmt.Sprintf("(%d, '%s', '%s', %d, %d, %d, '%s', '%s', 'once', '')", r.rows, due, due, r.rows, bizType, status, due, due))
	}
	for part := range slices.Chunk(rows, 500) {
		r.exec(fmt.Sprintf(`INSERT INTO {1}.%s (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, dedup_key, attribute) VALUES %s`,
			r.cfg.Layout.TableName(table), strings.Join(part, ", ")))
	}
}

// statuses counts the tasks of a biz type in the copy, "pending 3, dead 4".
func (r *revival) statuses(bizType int, condition string) map[tocsin.Status]int {
	r.t.Helper()
	found := map[tocsin.Status]int{}
	for table := range r.cfg.Layout.Tables {
		rows := must(r.db.Query("SELECT status, COUNT(*) FROM "+r.cfg.Layout.Database(1)+"."+r.cfg.Layout.TableName(table)+
			" WHERE biz_type = ? AND "+condition+" GROUP BY status", bizType))
		for rows.Next() {
			var status tocsin.Status
			var n int
			if err := rows.Scan(&status, &n); err != nil {
				r.t.Fatal(err)
			}
			found[status] += n
		}
		if err := rows.Err(); err != nil {
			r.t.Fatal(err)
		}
	}
	return found
}

// row reads the state and mark of a database.
func (r *revival) row(database int) (state string, mark int64) {
	r.t.Helper()
	if err := r.db.QueryRow("SELECT state, mark FROM "+r.cfg.Layout.Database(database)+".layout").Scan(&state, &mark); err != nil {
		r.t.Fatal(err)
	}
	return state, mark
}

// check judges one database.
func (r *revival) check(database int, opt RestoreOptions) Restored {
	r.t.Helper()
	opt.Databases = []string{r.cfg.Layout.Database(database)}
	found, err := CheckRestored(r.t.Context(), r.cfg, opt)
	if err != nil || len(found) != 1 {
		r.t.Fatalf("%+v, %v", found, err)
	}
	return found[0]
}

func (r *revival) accept(opt RestoreOptions) error {
	opt.Databases = []string{r.cfg.Layout.Database(1)}
	_, err := AcceptRestored(r.t.Context(), r.cfg, opt)
	return err
}

func TestARestoreIsCountedSettledAndAccepted(t *testing.T) {
	t.Parallel()
	r := newRevival(t)
	r.add(1200, 0, tocsin.Pending, 1, -time.Hour) // more than one batch
	r.add(2, 1, tocsin.Claimed, 1, -time.Minute)
	r.add(1, 1, tocsin.Claimed, 1, 12*time.Hour) // in delivery when the copy was made
	r.add(4, 2, tocsin.Pending, 2, -time.Minute)
	r.add(1, 2, tocsin.Pending, 2, markLag/2)   // in use for a while after the last mark
	r.add(7, 0, tocsin.Pending, 1, time.Minute) // due since
	r.add(2, 1, tocsin.Pending, 2, time.Hour)
	r.add(4, 2, tocsin.Pending, 1, 48*time.Hour) // not due yet
	r.add(6, 0, tocsin.Dead, 2, -time.Hour)
	r.add(8, 1, tocsin.Done, 2, -time.Hour)
	r.exec("UPDATE {1}."+r.cfg.Layout.TableName(0)+" SET last_error = CONCAT('no route ', REPEAT('n', 240)) WHERE status = ?", tocsin.Dead)

	was := r.check(1, RestoreOptions{Cancelled: []string{"order.close"}, Dead: []string{AllTypes}})
	want := []RestoredType{
		{Type: "order.close", Settled: 1203, Due: 7, Later: 4, Cancelled: 1203},
		{Type: "coupon.remind", Settled: 5, Due: 2, Dead: 6, Killed: 5},
	}
	if !was.Older || was.State != layoutrow.Active || was.Ends.UnixMilli() != r.ends || was.Known.UnixMilli() != r.known || !was.Until.Equal(was.Known.Add(markLag)) ||
		was.Knows != r.cfg.Layout.Database(0)+" on server db1" || was.Added != 0 || !slices.Equal(was.Types, want) {
		t.Errorf("got %+v, want the types %+v", was, want)
	}
	if state, mark := r.row(1); state != layoutrow.Active || mark != r.ends {
		t.Errorf("the check wrote state %s, mark %d", state, mark)
	}

	opt := RestoreOptions{Cancelled: []string{"order.close"}, Dead: []string{AllTypes}, Parallel: 1}
	r.interrupted(opt)
	if err := r.accept(opt); err != nil {
		t.Fatal(err)
	}
	if state, mark := r.row(1); state != layoutrow.Active || mark < time.Now().UnixMilli()-60_000 {
		t.Errorf("state %s, mark %d", state, mark)
	}
	for bizType, want := range map[int]string{
		1: fmt.Sprint(map[tocsin.Status]int{tocsin.Pending: 11, tocsin.Cancelled: 1203}),
		2: fmt.Sprint(map[tocsin.Status]int{tocsin.Pending: 2, tocsin.Done: 8, tocsin.Dead: 11}),
	} {
		if got := fmt.Sprint(r.statuses(bizType, "TRUE")); got != want {
			t.Errorf("type %d: %s, want %s", bizType, got, want)
		}
	}
	if got := r.statuses(1, "dedup_key IS NULL AND last_error LIKE 'the database was restored from a copy of %'"); got[tocsin.Cancelled] != 1203 {
		t.Errorf("cancelled with reason, without dedup_key: %v", got)
	}
	if got := r.statuses(2, "dedup_key = 'once' AND last_error LIKE 'the database was restored from a copy of %, so probably settled since'"); got[tocsin.Dead] != 5 {
		t.Errorf("dead with reason and dedup_key: %v", got)
	}
	if got := r.statuses(2, "CHAR_LENGTH(last_error) = 255 AND last_error LIKE 'the database was restored from a copy of %; dead in it, perhaps redriven since: no route nnn%' AND version = 1"); got[tocsin.Dead] != 6 {
		t.Errorf("dead in the copy, with its error behind the mark: %v", got)
	}
	if err := r.accept(opt); err == nil || !strings.Contains(err.Error(), "there is nothing to accept") {
		t.Errorf("once more: %v", err)
	}
}

// interrupted accepts both databases while a transaction holds a table of the copy, which fails half-way.
func (r *revival) interrupted(opt RestoreOptions) {
	r.t.Helper()
	tx := must(r.db.Begin())
	defer func() { _ = tx.Rollback() }()
	must(tx.Exec("SELECT * FROM " + r.cfg.Layout.Database(1) + "." + r.cfg.Layout.TableName(2) + " FOR UPDATE"))
	first := r.cfg.Layout.Database(0)
	if err := HoldDatabases(r.t.Context(), r.cfg, []string{first}); err != nil {
		r.t.Fatal(err)
	}
	if accepted, err := AcceptRestored(r.t.Context(), r.cfg, opt); err == nil || len(accepted) != 1 || accepted[0].Database != first || accepted[0].Waits() {
		r.t.Fatalf("%+v, %v: want the first database in use, and an error of the second", accepted, err)
	}
	if state, mark := r.row(1); state != layoutrow.Held || mark != r.ends {
		r.t.Errorf("half-way: state %s, mark %d, want held and the mark of the copy", state, mark)
	}
}

func TestTheBorderOfARestoreCanBeMoved(t *testing.T) {
	t.Parallel()
	r := newRevival(t)
	r.add(3, 0, tocsin.Pending, 1, -time.Hour)
	r.add(4, 0, tocsin.Pending, 1, time.Hour)
	until := time.UnixMilli(r.known).In(time.FixedZone("", 7200)).Add(-2 * time.Hour)
	if got := r.check(1, RestoreOptions{Until: until}); got.Types[0].Settled != 0 || got.Types[0].Due != 7 {
		t.Errorf("an earlier one: %+v", got.Types)
	}
	if got := r.check(1, RestoreOptions{Until: until.Add(4 * time.Hour)}); got.Types[0].Settled != 7 || got.Types[0].Due != 0 {
		t.Errorf("a later one: %+v", got.Types)
	}
	if err := r.accept(RestoreOptions{Until: time.Now().Add(time.Hour), Dead: []string{AllTypes}}); err == nil || !strings.Contains(err.Error(), "is in the future") {
		t.Errorf("a future one: %v", err)
	}
	kept := map[int]int64{1: r.known + day/2, 0: 1}
	if got := r.check(1, RestoreOptions{Kept: kept}); got.Knows != "etcd" || got.Known.UnixMilli() != kept[1] || got.Types[0].Settled != 7 {
		t.Errorf("etcd knows better: %+v", got)
	}
	r.exec("UPDATE {1}.layout SET schema_version = 1, works_with = 1")
	if err := r.accept(RestoreOptions{}); err == nil || !strings.Contains(err.Error(), "has schema version 1, this program works with 2 and 3: first upgrade it") {
		t.Errorf("of an older schema version: %v", err)
	}
}

// Marks stay ahead of the time for as long as a server's clock was ahead.
func TestTasksThatAreNotDueAreNeverSettledByAMarkThatIsAhead(t *testing.T) {
	t.Parallel()
	r := newRevival(t)
	r.add(3, 0, tocsin.Pending, 1, -time.Hour)
	r.add(4, 0, tocsin.Pending, 1, 36*time.Hour) // in half a day
	ahead := RestoreOptions{Kept: map[int]int64{1: r.known + 3*day}, Cancelled: []string{AllTypes}}
	if got := r.check(1, ahead); got.Types[0].Cancelled != 3 || got.Types[0].Later != 4 {
		t.Errorf("the check counts %+v until %s", got.Types, got.Until)
	}
	if err := r.accept(ahead); err != nil {
		t.Fatal(err)
	}
	if got := r.statuses(1, "TRUE"); got[tocsin.Cancelled] != 3 || got[tocsin.Pending] != 4 {
		t.Errorf("%v after it was accepted, want 3 cancelled and 4 pending", got)
	}
}

func TestWhatACopyLacksIsEstimated(t *testing.T) {
	t.Parallel()
	r := newRevival(t)
	for i := range 30 { // in each of three tables; 20 of them were added after the copy was made
		id := firstJobID(time.UnixMilli(r.ends).Add(time.Duration(i-10) * time.Minute))
		for table := range 3 {
			r.exec(fmt.Sprintf(`INSERT INTO {0}.%s (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
				VALUES (%d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 1, 1, 2, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '')`, r.cfg.Layout.TableName(table), id))
		}
	}
	afterwards := firstJobID(time.UnixMilli(r.known).Add(time.Minute)) // it was held by then: it lacks none of these
	r.exec(fmt.Sprintf(`INSERT INTO {0}.%s (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
		VALUES (%d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 1, 1, 2, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '')`, r.cfg.Layout.TableName(0), afterwards))
	r.exec("UPDATE {0}.biz_type SET revision = revision + 1 WHERE number = 2")
	var done, total int
	all, err := CheckRestored(t.Context(), r.cfg, RestoreOptions{Progress: func(d, of int) { done, total = d, of }})
	if err != nil || len(all) != 2 || done != 3 || total != 3 {
		t.Errorf("%d databases, %v; %d of %d tables read, want the 3 of the copy", len(all), err, done, total)
	}
	if got := r.check(1, RestoreOptions{}); got.Added != 60 || !slices.Equal(got.Stale, []string{"coupon.remind"}) {
		t.Errorf("got %+v", got)
	}
	if id := firstJobID(time.UnixMilli(r.known)); id.Time().UnixMilli() != r.known || (id-1).Time().UnixMilli() >= r.known {
		t.Errorf("first job_id %d of %d", id, r.known)
	}
}

func TestAHeldDatabaseTellsTheOthersWhen(t *testing.T) {
	t.Parallel()
	r := newRevival(t)
	first := []string{r.cfg.Layout.Database(0)}
	before := time.Now().UnixMilli() - 1000
	if err := HoldDatabases(t.Context(), r.cfg, first); err != nil {
		t.Fatal(err)
	}
	half := r.cfg
	half.Servers = []tocsin.Server{{Name: "db1", DSN: r.cfg.Servers[0].DSN, Databases: []int{0}}, {Name: "db2", DSN: "root@tcp(127.0.0.1:1)/", Databases: []int{1}}}
	if err := HoldDatabases(t.Context(), half, first); err == nil || !strings.HasPrefix(err.Error(), "held, but not all") || !strings.Contains(err.Error(), "server db2: ") {
		t.Errorf("with a server that does not answer: %v", err)
	}
	state, mark := r.row(0)
	got := r.check(0, RestoreOptions{})
	if state != layoutrow.Held || mark < before || got.Older || !got.Waits() || got.Known.UnixMilli() != mark || got.Knows != r.cfg.Layout.Database(1)+" on server db1" {
		t.Errorf("state %s, mark %d, %+v", state, mark, got)
	}
	if err := HoldDatabases(t.Context(), r.cfg, []string{r.cfg.Layout.Database(1)}); err != nil {
		t.Fatal(err)
	}
	if state, mark := r.row(1); state != layoutrow.Held || mark != r.ends {
		t.Errorf("of an older copy: state %s, mark %d, want the mark of the copy", state, mark)
	}
	verified(t, r.cfg, "run `tocsin ddl restore-check`", "run `tocsin ddl restore-check`")
	r.exec("UPDATE {0}.layout SET state = 'retired'")
	if err := HoldDatabases(t.Context(), r.cfg, first); err == nil || !strings.Contains(err.Error(), "only a database in use can be held") {
		t.Errorf("of a retired one: %v", err)
	}
	for name, opt := range map[string]RestoreOptions{
		"has no database toc_9":   {Databases: []string{"toc_9"}},
		`unknown biz type "none"`: {Dead: []string{"none"}},
	} {
		if _, err := CheckRestored(t.Context(), r.cfg, opt); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
}

// Nodes would refuse a copy with the ownership or the grace of sweeps of its time, and to change these all of them must stop.
func TestACopyGetsTheOwnershipAndTheGraceOfTheOthers(t *testing.T) {
	t.Parallel()
	r := newRevival(t)
	r.exec("UPDATE {0}.layout SET ownership = 'rows', sweep_grace_ms = 90000")
	if err := r.accept(RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	verified(t, r.cfg)
}

// By a wrong config, a part of the tables would be settled and the whole database put into use.
func TestOnlyDatabasesOfTheConfigAreHeldAndAccepted(t *testing.T) {
	t.Parallel()
	r := newRevival(t)
	r.add(3, 0, tocsin.Pending, 1, -time.Hour)
	for want, change := range map[string]func(*tocsin.Config){
		"layout of the config is 2x2, that of ": func(c *tocsin.Config) { c.Layout.Tables = 2 },
		`cluster is "another", but `:            func(c *tocsin.Config) { c.Cluster = "another" },
	} {
		wrong := r.cfg
		change(&wrong)
		opt := RestoreOptions{Databases: []string{r.cfg.Layout.Database(1)}, Dead: []string{AllTypes}}
		_, accepted := AcceptRestored(t.Context(), wrong, opt)
		_, checked := CheckRestored(t.Context(), wrong, opt)
		for step, err := range map[string]error{"accept": accepted, "check": checked, "hold": HoldDatabases(t.Context(), wrong, opt.Databases)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", step, err, want)
			}
		}
	}
	if state, mark := r.row(1); state != layoutrow.Active || mark != r.ends || r.statuses(1, "TRUE")[tocsin.Pending] != 3 {
		t.Errorf("state %s, mark %d, tasks %v, want all as it was", state, mark, r.statuses(1, "TRUE"))
	}
}

// A server that does not answer may know a later time.
func TestNothingIsAcceptedByTheMarksOfSomeServersOnly(t *testing.T) {
	t.Parallel()
	r := newRevival(t)
	r.add(3, 0, tocsin.Pending, 1, -time.Hour)
	r.exec("UPDATE {1}.layout SET state = 'held'")
	whole := r.cfg.Servers
	r.cfg.Servers = []tocsin.Server{{Name: "db1", DSN: whole[0].DSN, Databases: []int{1}}, {Name: "db2", DSN: "root@tcp(127.0.0.1:1)/", Databases: []int{0}}}
	if err := r.accept(RestoreOptions{Dead: []string{AllTypes}}); err == nil || !strings.Contains(err.Error(), "a server that can't be read may know a later time") || !strings.Contains(err.Error(), "server db2: ") {
		t.Errorf("without the marks of a server: %v", err)
	}
	if state, mark := r.row(1); state != layoutrow.Held || mark != r.ends || r.statuses(1, "TRUE")[tocsin.Pending] != 3 {
		t.Errorf("state %s, mark %d, tasks %v, want all as it was", state, mark, r.statuses(1, "TRUE"))
	}
	if err := r.accept(RestoreOptions{Dead: []string{AllTypes}, Until: time.UnixMilli(r.known)}); err == nil || strings.Contains(err.Error(), "later time") {
		t.Errorf("with a border: %v, want the server's error", err)
	}
	if state, _ := r.row(1); state != layoutrow.Active || r.statuses(1, "TRUE")[tocsin.Dead] != 3 {
		t.Errorf("with a border: state %s, tasks %v", state, r.statuses(1, "TRUE"))
	}
}

// The copy's schedules had made runs until it was made. Those that would follow until the last time known were made too, and
// are lost with the rest; an operator who lets tasks of that time count as settled does not want them again.
func TestSchedulesOfACopyDoNotRepeatWhatCountsAsSettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opt    RestoreOptions
		behind []time.Duration // of made_until after the last time known: of order.close, with jitter, of coupon.remind, inactive
	}{
		"nothing counts as settled": {RestoreOptions{}, []time.Duration{-24 * time.Hour, -24 * time.Hour, -24 * time.Hour, -24 * time.Hour}},
		"one biz type does":         {RestoreOptions{Dead: []string{"order.close"}}, []time.Duration{markLag, markLag - time.Minute, -24 * time.Hour, -24 * time.Hour}},
		"all do":                    {RestoreOptions{Cancelled: []string{AllTypes}}, []time.Duration{markLag, markLag - time.Minute, markLag, -24 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRevival(t)
			r.add(3, 0, tocsin.Pending, 1, -time.Hour)
			made := time.UnixMilli(r.ends).UTC().Format(timeForm)
			for i, values := range []string{"1, 0, 'active'", "1, 60000, 'active'", "2, 0, 'active'", "1, 0, 'inactive'"} {
				r.exec(fmt.Sprintf(`INSERT INTO {1}.schedule (schedule_id, gmt_create, gmt_modified, name, table_no, biz_id, cron, zone,
    start_within_ms, missed, missed_most, overlap, revision, anchor, made_until, attribute, biz_type, jitter_ms, state)
VALUES (%d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 's%d', 3, 7, '0 4 * * *', 'UTC', 1000, 'once', 100, 'allow', 1,
    '%s', '%s', '', %s)`, i+1, i, made, made, values))
			}
			if err := r.accept(c.opt); err != nil {
				t.Fatal(err)
			}
			for i, behind := range c.behind {
				var got time.Time
				if err := r.db.QueryRow("SELECT CAST(made_until AS CHAR) FROM "+r.cfg.Layout.Database(1)+".schedule WHERE schedule_id = ?", i+1).Scan(textTime{&got}); err != nil {
					t.Fatal(err)
				}
				if want := time.UnixMilli(r.known).UTC().Add(behind); !got.Equal(want) {
					t.Errorf("schedule %d is made until %s, want %s", i, got, want)
				}
			}
		})
	}
}

// textTime scans a DATETIME(3) as text.
type textTime struct{ into *time.Time }

func (s textTime) Scan(v any) (err error) {
	*s.into, err = time.Parse(timeForm, string(v.([]byte)))
	return err
}
