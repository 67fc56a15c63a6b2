package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/schedule"
)

// played is what a role must be able to do, and what not.
type played struct {
	site      func(*testing.T) *site // before the user comes
	act       func(*roleUser) error  // a user's work; its error holds "denied" if the server refused a part
	forbidden string                 // a statement that the server refuses; {db} is database 0
}

// plays has every role of `tocsin ddl grants`.
func plays() map[string]played {
	return map[string]played{
		"ddl":           {emptySite, (*roleUser).actDDL, "DELETE FROM {db}.task_0000"},
		"move":          {newSite, (*roleUser).actMove, "UPDATE {db}.task_0000 SET status = 2"},
		"restore":       {newSite, (*roleUser).actRestore, "DELETE FROM {db}.task_0000"},
		"biz":           {newSite, (*roleUser).actBiz, "SELECT COUNT(*) FROM {db}.task_0000"},
		"biz-delete":    {newSite, (*roleUser).actBizDelete, "UPDATE {db}.biz_type SET policy = '{}'"},
		"node":          {remindingSite, (*roleUser).actNode, "DELETE FROM {db}.task_0000"},
		"sweep":         {remindingSite, (*roleUser).actSweep, "DELETE FROM {db}.task_0000"},
		"purge":         {newSite, (*roleUser).actPurge, "UPDATE {db}.task_0000 SET status = 2"},
		"audit":         {newSite, (*roleUser).actAudit, "DELETE FROM {db}.task_0000"},
		"client-add":    {newSite, (*roleUser).actAdd, "UPDATE {db}.task_0000 SET status = 3"},
		"client-cancel": {newSite, (*roleUser).actCancel, "DELETE FROM {db}.task_0000"},
		"relay":         {newSite, (*roleUser).actRelay, "DELETE FROM {db}.task_0000"},
		"schedule":      {newSite, (*roleUser).actSchedule, "DELETE FROM {db}.task_0000"},
		"acts":          {newSite, (*roleUser).actActs, "DELETE FROM {db}.act"},
		"read-only":     {newSite, (*roleUser).actRead, "INSERT INTO {db}.doorbell (table_no, job_id, biz_type, action_time) VALUES (0, 1, 1, NOW())"},
	}
}

func emptySite(t *testing.T) *site {
	s := bareSite(t)
	for db := range s.layout.Databases { // for GRANTs on tables that `ddl apply` makes later
		s.exec("CREATE DATABASE IF NOT EXISTS " + s.layout.Database(db) + " DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	}
	return s
}

func remindingSite(t *testing.T) *site {
	s, _ := callbackSite(t)
	s.applyBiz(s.text("biz.yaml") + "    history: true\n")
	return s
}

// roleUser is a user that has what `tocsin ddl grants` prints for a role. tocsin.yaml names it.
type roleUser struct {
	*site
	name   string
	args   []string                    // of `tocsin ddl grants`
	keep   func(right, on string) bool // nil: every right is granted
	lacks  bool                        // a right is missing: the act is over when the server has refused something
	byRows bool                        // what is missing shows without etcd only
	atEnd  bool                        // what is missing shows when the node leaves
}

// newRoleUser makes the user, with its grants on the site's server.
func newRoleUser(s *site, role string, keep func(right, on string) bool, more ...string) *roleUser {
	s.t.Helper()
	u := &roleUser{site: s, name: s.prefix + "r", keep: keep, lacks: keep != nil}
	u.args = append([]string{"ddl", "grants", "--json", "--role", role, "--user", u.name}, more...)
	u.grant(s.db, "db1", "tocsin.yaml")
	s.write("tocsin.yaml", u.asUser(s.text("tocsin.yaml")))
	return u
}

// asUser puts the user's name into a config.
func (u *roleUser) asUser(text string) string { return strings.ReplaceAll(text, "root@", u.name+"@") }

var grantForm = regexp.MustCompile("^GRANT (.+) ON (.+) TO `.+`@`%`;$")

// grant runs what `tocsin ddl grants` prints for a server.
func (u *roleUser) grant(db *sql.DB, server, config string) {
	u.t.Helper()
	if _, err := db.Exec("CREATE USER IF NOT EXISTS '" + u.name + "'@'%'"); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { _, _ = db.Exec("DROP USER IF EXISTS '" + u.name + "'@'%'") })
	plans := decode[[]plannedServer](u.t, u.run(append(u.args, "--config", config)...))
	i := slices.IndexFunc(plans, func(p plannedServer) bool { return p.Server == server })
	for line := range strings.Lines(plans[i].SQL) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--") || strings.HasPrefix(line, "SET SESSION ") {
			continue
		}
		m := grantForm.FindStringSubmatch(line)
		if m == nil {
			u.t.Fatalf("not a GRANT: %s", line)
		}
		rights := strings.Split(m[1], ", ")
		if u.keep != nil {
			rights = slices.DeleteFunc(rights, func(right string) bool { return !u.keep(right, m[2]) })
		}
		if len(rights) == 0 {
			continue
		}
		if _, err := db.Exec(fmt.Sprintf("GRANT %s ON %s TO '%s'@'%%'", strings.Join(rights, ", "), m[2], u.name)); err != nil && u.keep == nil { // without CREATE, a table must be there
			u.t.Fatalf("%s: %v", line, err)
		}
	}
}

// pool opens a pool of the user, on root's DSN of a server.
func (u *roleUser) pool(dsn string) *sql.DB {
	u.t.Helper()
	db := openDB(u.t, u.asUser(dsn))
	return db
}

// runAll runs commands until one fails, and returns what that says. No command may say "denied" and yet succeed.
func (u *roleUser) runAll(commands ...string) error {
	for _, c := range commands {
		r := u.run(strings.Fields(c)...)
		if said := r.stdout + r.stderr; r.code != exitOK || strings.Contains(said, "denied") {
			return fmt.Errorf("%s: exit code %d: %s", c, r.code, said)
		}
	}
	return nil
}

// isRefused expects that the server refuses a statement for lack of a right.
func (u *roleUser) isRefused(statement string) {
	u.t.Helper()
	_, err := u.pool(u.dsn()).Exec(strings.ReplaceAll(statement, "{db}", u.layout.Database(0)))
	if err == nil || !strings.Contains(err.Error(), "denied") {
		u.t.Errorf("%s: %v, want it to be denied", statement, err)
	}
}

// changing are the roles whose work, broken off, leaves more behind than rows that emptied deletes.
var changing = []string{"ddl", "move", "restore", "biz", "node"}

// TestEachRoleDoesItsWorkWithItsGrantsAndNeedsEachOfThem has a user do a role's work, with all its grants, and then with one right after
// the other taken away: then something of the work is refused. A role that is not one of changing is tried on the same tables each time.
func TestEachRoleDoesItsWorkWithItsGrantsAndNeedsEachOfThem(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	for _, role := range ddl.Roles() {
		rights, p := rightsIn(s, role.Name), plays()[role.Name]
		changes := slices.Contains(changing, role.Name)
		t.Run(role.Name, func(t *testing.T) {
			t.Parallel()
			fresh := p.site
			if !changes {
				p.site = sameSite(p.site(t))
			}
			for _, flags := range [][]string{nil, {"--per-table"}} {
				t.Run(strings.Join(append([]string{"with its grants"}, flags...), " "), func(t *testing.T) {
					if changes {
						t.Parallel()
					}
					whole := p
					if role.Name == "biz-delete" { // which can be done once
						whole.site = fresh
					}
					whole.doesItsWork(t, role.Name, flags)
				})
			}
			for _, right := range rights {
				t.Run("without "+right.verb+" on "+right.table, func(t *testing.T) {
					if changes {
						t.Parallel()
					}
					u := newRoleUser(p.site(t), role.Name, right.isAnother, "--per-table")
					u.byRows = strings.HasPrefix(right.table, "session")
					u.atEnd = right.verb == "DELETE" || right.table == "session_about" && right.verb == "UPDATE"
					err := p.act(u)
					if err == nil || !strings.Contains(err.Error(), "denied") && !strings.Contains(err.Error(), "is missing") { // ddl verify does not see the table
						t.Errorf("got %v, want it to be denied", err)
					}
				})
			}
		})
	}
}

// sameSite makes a site for each of some tests, one after the other, of one whose tables are emptied.
func sameSite(s *site) func(*testing.T) *site {
	config := s.text("tocsin.yaml")
	return func(t *testing.T) *site {
		again := *s
		again.t = t
		again.write("tocsin.yaml", config)
		again.emptied()
		return &again
	}
}

// doesItsWork does the work of a role, and tries what it may not do.
func (p played) doesItsWork(t *testing.T, role string, flags []string) {
	s := p.site(t)
	u := newRoleUser(s, role, nil, flags...)
	if err := p.act(u); err != nil {
		t.Fatal(err)
	}
	u.isRefused(p.forbidden)
	neighbour := s.prefix + "x0" // which `prefix_0` means too, where its _ is not escaped
	s.exec("CREATE DATABASE " + neighbour)
	t.Cleanup(func() { _, _ = s.db.Exec("DROP DATABASE " + neighbour) })
	s.exec("CREATE TABLE " + neighbour + ".task_0000 (status INT)")
	u.isRefused("SELECT COUNT(*) FROM " + neighbour + ".task_0000")
	u.isRefused("INSERT INTO " + neighbour + ".task_0000 (status) VALUES (1)")
}

// emptied deletes all rows that tasks and schedules have made.
func (s *site) emptied() {
	s.t.Helper()
	for table := range s.layout.Total() {
		s.exec("DELETE FROM " + s.layout.Table(table))
	}
	for db := range s.layout.Databases {
		for _, table := range []string{"doorbell", "schedule", "run", "relayed", "act"} {
			s.exec("DELETE FROM " + s.layout.Database(db) + "." + table)
		}
	}
}

// oneRight is a right on the tables of one kind, or on all tables.
type oneRight struct {
	verb, table string
}

// kind returns the table's name without numbers.
func kind(on string) string {
	name := on[strings.LastIndex(on, ".`")+2 : len(on)-1]
	if strings.HasPrefix(strings.TrimPrefix(name, "retired_"), "task_") {
		return "task"
	}
	return strings.TrimPrefix(name, "retired_")
}

// isAnother reports whether a right remains.
func (r oneRight) isAnother(right, on string) bool {
	return right != r.verb || r.table != "all" && r.table != kind(on)
}

// rightsIn lists the rights of a role: by kind of table, but those of ddl and move, which do the same with all tables, once.
func rightsIn(s *site, role string) (all []oneRight) {
	for _, p := range decode[[]plannedServer](s.t, s.run("ddl", "grants", "--json", "--per-table", "--role", role)) {
		for line := range strings.Lines(p.SQL) {
			m := grantForm.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue
			}
			for verb := range strings.SplitSeq(m[1], ", ") {
				r := oneRight{verb: verb, table: kind(m[2])}
				if role == "ddl" || role == "move" {
					r.table = "all"
				}
				if !slices.Contains(all, r) {
					all = append(all, r)
				}
			}
		}
	}
	return all
}

func TestGrantsForAServerThatTakesNamesLiterally(t *testing.T) {
	t.Parallel()
	var args []string
	if devtest.IsMySQL(t) { // MariaDB has no such setting; there the grants mean more databases than these
		args = []string{"--partial-revokes=ON"}
	}
	s, dsn := bareSite(t), devtest.DSN(t)
	if args != nil {
		dsn = startServer(t, devserver.MariaDBConfig{Args: args}).DSN()
	}
	s.write("tocsin.yaml", s.yaml(s.layout, dsn))
	s.db = openDB(t, dsn)
	s.applyAll()
	u := newRoleUser(s, "audit", nil, "--partial-revokes")
	if err := u.actAudit(); err != nil {
		t.Error(err)
	}
	if _, err := u.pool(dsn).Exec("DELETE FROM " + s.layout.Table(0)); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("a DELETE: %v, want it to be denied", err)
	}
}

// left returns an error if a condition still counts tasks.
func (u *roleUser) left(condition string) error {
	if n := u.counted(condition); n > 0 {
		return fmt.Errorf("%d tasks are left where %s", n, condition)
	}
	return nil
}

func (u *roleUser) actDDL() error {
	if err := u.runAll("ddl apply --json"); err != nil {
		return err
	}
	// Older tables: what an upgrade adds is missing again.
	for db := range u.layout.Databases {
		name := u.layout.Database(db)
		u.exec("ALTER TABLE " + name + ".task_0001 DROP COLUMN headers")
		u.exec("UPDATE " + name + ".layout SET schema_version = 2, works_with = 2")
	}
	return u.runAll("ddl plan --migrate", "ddl apply --json", "ddl finish", "ddl verify", "ddl grace 1m", "ddl ownership rows")
}

func (u *roleUser) actMove() error {
	m := newMovingSite(u.site)
	u.write("new.yaml", u.asUser(u.text("new.yaml")))
	u.grantNothing(m.dest)
	step := func(steps ...string) error {
		for _, step := range steps {
			if err := u.runAll("ddl move " + step + " --from tocsin.yaml --config new.yaml --wait 1m"); err != nil {
				return err
			}
		}
		return nil
	}
	if err := step("check", "retire"); err != nil {
		return err
	}
	m.copy()
	u.grant(m.dest, "db2", "new.yaml")
	return step("compare", "activate", "undo")
}

// grantNothing makes the user on a further server.
func (u *roleUser) grantNothing(db *sql.DB) {
	if _, err := db.Exec("CREATE USER '" + u.name + "'@'%'"); err != nil {
		u.t.Fatal(err)
	}
}

func (u *roleUser) actBiz() error {
	u.write("more.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 4", 1)+"  - {name: order.more, number: 3, group: orders}\n")
	return u.runAll("biz apply more.yaml", "biz list", "biz show order.more", "biz pause order.close", "biz resume order.close")
}

func (u *roleUser) actBizDelete() error { return u.runAll("biz delete coupon.remind") }

// actNode serves with etcd until the callbacks are delivered, and then without it.
func (u *roleUser) actNode() error {
	if !u.lacks || !u.byRows {
		if err := u.serveAll(1); err != nil || u.lacks {
			return err
		}
	}
	for db := range u.layout.Databases {
		u.exec("UPDATE " + u.layout.Database(db) + ".layout SET ownership = 'rows'")
	}
	u.write("tocsin.yaml", strings.Replace(u.text("tocsin.yaml"), "layout:\n", "layout:\n  ownership: rows\n", 1))
	return u.serveAll(2)
}

// serveAll runs a node until all tasks of the site are done, or, if a right is missing, until something is refused.
func (u *roleUser) serveAll(turn int) error {
	u.age(0, 1)
	u.fill(8*turn, 0)
	u.hourly(fmt.Sprintf("hourly%d", turn), time.Second)
	n := u.serve(fmt.Sprintf("limited%d", turn))
	u.waitFor("the tasks are done, or something is refused", func() bool {
		refused := strings.Contains(n.log.String(), "denied")
		return refused || (!u.lacks || u.atEnd) && u.notDone() == 0
	})
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ended := n.Wait()
	if said := n.log.String(); ended != nil || strings.Contains(said, "denied") {
		return fmt.Errorf("%v: %s", ended, said)
	}
	return nil
}

// actRestore takes a database out of use, settles a task and puts it into use.
func (u *roleUser) actRestore() error {
	u.overdue("order.close", 8)
	only := "--database " + u.layout.Database(0)
	for range 2 { // the second time, the other database has the mark already
		if err := u.runAll("ddl restore-check "+only+" --hold", "ddl restore-check "+only+" --dead all --accept"); err != nil {
			return err
		}
	}
	return u.runAll("ddl restore-check")
}

// recorded returns an error if there are no runs: a sweep that may not write them only logs it.
func (u *roleUser) recorded() error {
	u.t.Helper()
	var n, all int
	for db := range u.layout.Databases {
		if err := u.db.QueryRow("SELECT COUNT(*) FROM " + u.layout.Database(db) + ".run").Scan(&n); err != nil {
			u.t.Fatal(err)
		}
		all += n
	}
	if all == 0 {
		return errors.New("no run is recorded: denied")
	}
	return nil
}

// hourly makes a schedule whose next run is due in so long, and is not made yet, as root.
func (u *roleUser) hourly(name string, in time.Duration) {
	u.t.Helper()
	s, err := schedule.Open(u.t.Context(), tocsin.Config{Layout: u.layout, Servers: []tocsin.Server{{Name: "db1", DSN: u.dsn()}}})
	if err != nil {
		u.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Create(u.t.Context(), schedule.Definition{Name: name, BizType: "coupon.remind", Cron: "@every 1h"}); err != nil {
		u.t.Fatal(err)
	}
	for db := range u.layout.Databases {
		u.exec(fmt.Sprintf(`UPDATE %s.schedule SET anchor = UTC_TIMESTAMP(3) + INTERVAL %d MICROSECOND, made_until = anchor,
			next_fire = anchor + INTERVAL 1 HOUR WHERE name = '%s'`, u.layout.Database(db), (in - time.Hour).Microseconds(), name))
	}
}

// addOne adds one task of a type, as root.
func (u *roleUser) addOne(name string) tocsin.JobID {
	u.t.Helper()
	added, err := u.client().Add(u.t.Context(), tocsin.Define[string](name).New(99, "{}", tocsin.In(time.Hour)))
	if err != nil {
		u.t.Fatal(err)
	}
	return added.JobID
}

func (u *roleUser) actPurge() error {
	u.overdue("order.close", 8)
	for table := range u.layout.Total() {
		u.exec("UPDATE " + u.layout.Table(table) + " SET status = 2, action_time = UTC_TIMESTAMP(3) - INTERVAL 31 DAY")
	}
	for db := range u.layout.Databases {
		u.exec("INSERT INTO " + u.layout.Database(db) + ".run (job_id, biz_type, version, attempt, node, started, lateness_ms, duration_ms, outcome) VALUES (1, 1, 0, 1, 'n', UTC_TIMESTAMP(3) - INTERVAL 31 DAY, 0, 0, 'completed')")
		u.exec("INSERT INTO " + u.layout.Database(db) + ".act (act_id, person, via, operation, object, outcome) VALUES (1, 'p', 'api', 'o', 'x', 'ok')")
		for range 3 { // the last one always stays
			u.exec("INSERT INTO " + u.layout.Database(db) + ".doorbell (table_no, job_id, biz_type, action_time) VALUES (0, 1, 1, UTC_TIMESTAMP(3) - INTERVAL 2 HOUR)")
		}
	}
	return errors.Join(u.runAll("purge --once"), u.left("status = 2"))
}

func (u *roleUser) actAudit() error { return u.runAll("audit", "audit --all", "audit --outbox") }

// actAdd adds in every way, near and far, and meets what it has added before.
func (u *roleUser) actAdd() error {
	if err := u.runAll("task add --type order.close --biz-id 1 --in 0s --dedup k", "task add --type order.close --biz-id 1 --in 0s --dedup k"); err != nil {
		return err
	}
	c, err := tocsin.Open(u.t.Context(), tocsin.Config{Layout: u.layout, Servers: []tocsin.Server{{Name: "db1", DSN: u.asUser(u.dsn())}}})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	typ := tocsin.Define[string]("order.close")
	for range 2 {
		if _, err := c.Add(u.t.Context(), typ.New(2, "{}", tocsin.In(time.Hour)).Dedup("k")); err != nil {
			return err
		}
	}
	tx, err := u.pool(u.dsn()).Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := c.AddTx(u.t.Context(), tx, typ.New(4, "{}", tocsin.In(0)).Dedup("k")); err != nil {
		return err
	}
	return tx.Commit()
}

// actCancel changes stored tasks in every way.
func (u *roleUser) actCancel() error {
	root := u.client()
	var ids []tocsin.JobID
	for n := range 5 {
		added, err := root.Add(u.t.Context(), tocsin.Define[string]("order.close").New(uint64(n+10), "{}", tocsin.In(time.Hour)))
		if err != nil {
			u.t.Fatal(err)
		}
		ids = append(ids, added.JobID)
	}
	u.set(ids[2], "status = 4")
	err := u.runAll("task cancel "+ids[0].String(), "task reschedule "+ids[1].String()+" --in 1s", "task redrive "+ids[2].String(), "task bury "+ids[3].String()+" --reason test",
		"task bury "+ids[1].String()+" "+ids[2].String())
	if err != nil {
		return err
	}
	info, err := root.Get(u.t.Context(), ids[4])
	if err != nil {
		return err
	}
	tx, err := u.pool(u.dsn()).Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := tocsin.CompleteTx(u.t.Context(), tx, info); err != nil {
		return err
	}
	return tx.Commit()
}

func (u *roleUser) actRead() error {
	id := u.addOne("order.close").String()
	return u.runAll("task get "+id, "task runs "+id, "task why "+id, "task list --biz-id 99", "task list --status pending", "task dead", "biz list", "biz show order.close", "schedule list", "cluster nodes", "cluster tables",
		"ddl verify", "ddl plan --migrate", "ddl restore-check", "audit", "audit --outbox", "sweep --dry-run", "purge --dry-run")
}

// actSchedule does all that is done to schedules. The second apply changes one, and so cancels runs.
func (u *roleUser) actSchedule() error {
	const beat = "schedules:\n  - {name: beat, biz_type: order.close, cron: '@every 1s', payload: "
	u.write("beat.yaml", beat+"old}\n")
	u.write("changed.yaml", beat+"new}\n")
	return u.runAll("schedule apply beat.yaml", "schedule apply changed.yaml", "schedule run-now beat", "schedule runs beat", "schedule deactivate beat",
		"schedule backfill beat --from 2026-01-01T00:00:00Z --to 2026-01-01T00:00:03Z", "schedule activate beat", "schedule next beat", "schedule list", "schedule show beat", "schedule delete beat")
}

// actRelay moves rows of every kind, meets what it has moved before, cleans up the ledger, and forgets another outbox.
func (u *roleUser) actRelay() error {
	c, err := tocsin.Open(u.t.Context(), tocsin.Config{Layout: u.layout, Servers: []tocsin.Server{{Name: "db1", DSN: u.asUser(u.dsn())}}})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	soon := time.Second
	var rows []outbox.Row
	for bizID := uint64(1); bizID <= 8; bizID++ {
		for _, op := range []string{outbox.Add, outbox.Add, outbox.Reschedule, outbox.Cancel} {
			row := outbox.Row{
				Key: outbox.Key{ID: uint64(len(rows) + 1), Created: time.Now().UTC().Truncate(time.Microsecond)},
				Op:  op, BizType: "order.close", BizID: bizID, Delay: &soon, Dedup: "k", Read: time.Now(), Answered: time.Now(),
			}
			rows = append(rows, row)
		}
	}
	for range 2 {
		for _, row := range rows {
			if got := client.MoverOf(c).Move(u.t.Context(), "outbox", []outbox.Row{row}); got[0].Err != nil {
				return got[0].Err
			}
		}
	}
	none := func(context.Context, []outbox.Key) (map[outbox.Key]bool, error) { return nil, nil }
	for _, past := range []string{"gmt_create = gmt_create - INTERVAL 1 HOUR", "gone = gone - INTERVAL 1 HOUR"} {
		for db := range u.layout.Databases {
			u.exec("UPDATE " + u.layout.Database(db) + ".relayed SET " + past)
			if err := client.MoverOf(c).Upkeep(u.t.Context(), "outbox", db, none); err != nil {
				return err
			}
		}
	}
	for db := range u.layout.Databases {
		var n int
		if err := u.db.QueryRow("SELECT COUNT(*) FROM " + u.layout.Database(db) + ".relayed").Scan(&n); err != nil || n > 0 {
			u.t.Errorf("%d rows are left in the ledger, %v", n, err)
		}
	}
	u.exec("INSERT INTO " + u.layout.Database(0) + ".relayed VALUES ('left', 1, '2026-01-02', 0, '2026-01-02', NULL)")
	return u.runAll("outbox forget", "outbox forget left")
}
