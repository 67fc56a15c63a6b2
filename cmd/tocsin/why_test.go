package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator"
)

// why asks where a task is.
func (s *site) why(id tocsin.JobID, more ...string) operator.Answer {
	s.t.Helper()
	r := s.run(append([]string{"task", "why", "--json", id.String()}, more...)...)
	a := decodeText[operator.Answer](s.t, r.stdout)
	if gone := a.State == operator.StateGone; r.stderr != "" || r.code == exitOK == gone {
		s.t.Errorf("exit code %d, stderr %q: %+v", r.code, r.stderr, a)
	}
	return a
}

// says wants a state and, among all sentences, each of the parts.
func says(t *testing.T, a operator.Answer, state operator.State, parts ...string) {
	t.Helper()
	all := sentences(a)
	if a.State != state {
		t.Errorf("state %s, want %s:\n%s", a.State, state, all)
	}
	for _, part := range parts {
		if !strings.Contains(all, part) {
			t.Errorf("%s: no %q in\n%s", state, part, all)
		}
	}
}

func sentences(a operator.Answer) string {
	return strings.Join(slices.Concat([]string{a.Says}, a.Also, a.Unasked), "\n")
}

// due makes a task due since some time.
func (s *site) due(id tocsin.JobID, since, more string) {
	s.t.Helper()
	s.set(id, "action_time = UTC_TIMESTAMP(3) - INTERVAL "+since+", due_time = action_time"+more)
}

// Everything that the row and its policy say by themselves, in a cluster without a node.
func TestWhySaysWhatTheRowSays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ahead := "action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, due_time = UTC_TIMESTAMP(3) - INTERVAL 1 HOUR"
	behind := "action_time = UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE, due_time = action_time"
	for name, c := range map[string]struct {
		columns string
		state   operator.State
		parts   []string
	}{
		"not due":           {"", operator.StateNotDue, []string{"not due before 20", "(in ", "group orders has no node: start one"}},
		"a failed attempt":  {ahead + ", attempts = 1, last_error = 'no stock'", operator.StateRetry, []string{`1 attempt of 3 failed, the last one with "no stock"`}},
		"put off":           {ahead + ", last_error = 'later'", operator.StateSnoozed, []string{"was due at 20", `: "later"`}},
		"claimed":           {ahead + ", status = 1, claimed_by = 'host-a-abcdefgh'", operator.StateClaimed, []string{"claimed by host-a-abcdefgh until 20"}},
		"claimed by sweep":  {ahead + ", status = 1, claimed_by = 'host-a-sweep-abcdefgh'", operator.StateClaimed, []string{"host-a-sweep-abcdefgh, a sweeper, until"}},
		"a claim ran out":   {behind + ", status = 1, claimed_by = 'host-a-abcdefgh', crashes = 2", operator.StateRunOut, []string{"by host-a-abcdefgh ran out at 20", "5s after its end", "2 claims of it ran out", "with 5 it is dead"}},
		"done":              {behind + ", status = 2", operator.StateDone, []string{"done at 20", "had been due at 20"}},
		"cancelled":         {behind + ", status = 3", operator.StateCancelled, []string{"cancelled at 20"}},
		"dead of attempts":  {behind + ", status = 4, attempts = 3, last_error = 'no stock'", operator.StateDead, []string{`after 3 failed attempts: "no stock"`, "tocsin task redrive "}},
		"dead of crashes":   {behind + ", status = 4, crashes = 5", operator.StateDead, []string{"5 claims that ran out", "no error is stored"}},
		"buried":            {behind + ", status = 4, attempts = 1, last_error = 'by hand'", operator.StateDead, []string{"1 failed attempt of 3, buried"}},
		"paused":            {behind + ", biz_type = 2", operator.StatePaused, []string{"coupon.remind is paused until `tocsin biz resume coupon.remind`", "last changed at 20"}},
		"paused, not due":   {ahead + ", biz_type = 2", operator.StateSnoozed, []string{"coupon.remind is paused"}},
		"of no policy":      {behind + ", biz_type = 99", operator.StateUnknownType, []string{"no policy names its biz type, #99"}},
		"no node, overdue":  {"action_time = UTC_TIMESTAMP(3) - INTERVAL 2 MINUTE, due_time = action_time", operator.StateNoOwner, []string{"group orders has no node", "past the grace time of 1m0s", "node.Sweep, group orders"}},
		"no node, just due": {"action_time = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND, due_time = action_time", operator.StateNoOwner, []string{"takes it from 20", "after the grace time of 1m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.add(7)
			if c.columns != "" {
				s.set(id, c.columns)
			}
			a := s.why(id)
			says(t, a, c.state, c.parts...)
			if a.Task == nil || a.Table != s.layout.Table(id.Table()) || a.Server != "db1" || len(a.Unasked) != 0 {
				t.Errorf("got %+v", a)
			}
		})
	}
}

func TestWhySaysWhetherATaskCanHaveBeenPurged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(1)
	s.exec("DELETE FROM "+s.layout.Table(id.Table())+" WHERE job_id = ?", uint64(id))
	says(t, s.why(id), operator.StateGone, "too late for a purge, as tasks are kept for 30 days")
	says(t, s.why(513), operator.StateGone, "no such task in "+s.prefix+"_0.task_0001 on db1: it was purged, or never existed", "2026-01-01")
	says(t, s.why(id+tocsin.JobID(time.Hour.Milliseconds())<<22), operator.StateGone, "never was")
	s.run("task", "why", "4194303").refused(t, exitFailed, "it names table 8191, and the layout of the config, 2x4, has none of that number")
	s.run("task", "why").refused(t, exitUsage, "want JOB_ID, got 0 arguments")
	s.run("task", "why", "1", "2").refused(t, exitUsage, "want JOB_ID, got 2 arguments")
	s.run("task", "why", "abc").refused(t, exitUsage, `job_id "abc": want a decimal number`)
	s.run("task", "why", "513", "--ask", "nowhere").refused(t, exitUsage, `--ask "nowhere": want host:port`)
	r := s.run("task", "why", "513")
	if want := "task 513  " + s.prefix + "_0.task_0001 on db1\ngone: there is no such task"; r.code != exitFailed || !strings.HasPrefix(r.stdout, want) {
		t.Errorf("exit code %d:\n%s", r.code, r.stdout)
	}
}

// A server or database that can't be asked is the answer, and what else could not be asked is named.
func TestWhySaysWhatIsWrongWithTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(1)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, as the system does for a frozen server
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	good := s.yaml(s.layout, s.dsn())
	s.write("away.yaml", s.yaml(s.layout, "toc:hunter2@tcp(127.0.0.1:1)/"))
	says(t, s.why(id, "--config", "away.yaml"), operator.StateAway, "server db1 can't be asked for "+s.layout.Table(id.Table()), "refused")
	s.write("hangs.yaml", s.yaml(s.layout, "toc:hunter2@tcp("+silent.Addr().String()+")/"))
	says(t, s.why(id, "--config", "hangs.yaml"), operator.StateHangs, "server db1 hangs")
	s.write("other.yaml", "cluster: other\n"+good[strings.Index(good, "layout:"):])
	says(t, s.why(id, "--config", "other.yaml"), operator.StateRefused, `cluster of the config is "other"`)
	s.write("noetcd.yaml", withoutEtcd(good))
	says(t, s.why(id, "--config", "noetcd.yaml"), operator.StateNotDue, "etcd, which knows the owner of the table: etcd 127.0.0.1:1")
	database := s.layout.Database(s.layout.DatabaseOf(id.Table()))
	s.exec("UPDATE " + database + ".layout SET state = 'held'")
	says(t, s.why(id), operator.StateOlderCopy, database+" on db1 is held", "tocsin ddl restore-check")
	s.exec("UPDATE " + database + ".layout SET state = 'active', mark = mark - 3600000")
	other := s.layout.Database(1 - s.layout.DatabaseOf(id.Table()))
	s.exec("UPDATE " + database + ".layout SET mark = 1")
	s.exec("INSERT INTO "+other+".mark (database_no, identity, mark, gmt_modified) SELECT ?, identity, 1800000000000, NOW() FROM "+other+".layout", s.layout.DatabaseOf(id.Table()))
	says(t, s.why(id), operator.StateOlderCopy, database+" on db1 is an older copy")
}

// hanging is a receiver whose callbacks wait until it is told to go on.
type hanging struct {
	*httptest.Server
	begun chan struct{} // has one for each callback, at most 100
	goOn  func()        // lets all callbacks end, now and later
}

func newHanging(t *testing.T) *hanging {
	t.Helper()
	release := make(chan struct{})
	h := &hanging{begun: make(chan struct{}, 100), goOn: sync.OnceFunc(func() { close(release) })}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case h.begun <- struct{}{}:
		default:
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(h.Close)
	t.Cleanup(h.goOn)
	return h
}

// waitingTypes are callbacks that wait for a slot, for their rate, for a secret, for a claim, for another task of their biz_id.
const waitingTypes = `biz_types:
  - {name: slow.hook, number: 1, timeout: 9m, concurrency: 1, webhook: {url: "%[1]s", allow: [127.0.0.0/8]}}
  - {name: rated.hook, number: 2, timeout: 9m, rate: 0.001, webhook: {url: "%[1]s", allow: [127.0.0.0/8]}}
  - {name: signed.hook, number: 3, timeout: 9m, concurrency: 1, webhook: {url: "%[1]s", allow: [127.0.0.0/8], secrets: [TOCSIN_TEST_WHY]}}
  - {name: strict.hook, number: 4, timeout: 9m, strict: true, webhook: {url: "%[1]s", allow: [127.0.0.0/8]}}
  - {name: keyed.hook, number: 5, timeout: 9m, strict: true, per_key: 1, webhook: {url: "%[1]s", allow: [127.0.0.0/8]}}
`

// waitingSite has these types, and tables that are scanned each minute.
func waitingSite(t *testing.T, s *site) *hanging {
	t.Helper()
	h := newHanging(t)
	s.applyDDL()
	s.applyBiz(fmt.Sprintf(waitingTypes, h.URL))
	return h
}

// adding adds a callback task that is due in some time, and returns its job_id.
func (s *site) adding(bizType string, bizID int, in string) tocsin.JobID {
	s.t.Helper()
	return decode[taskJSON](s.t, s.run("task", "add", "--json", "--type", bizType, "--biz-id", fmt.Sprint(bizID), "--in", in)).JobID
}

// until asks again until a task is in a state, with each part among the sentences. A task that waits for a slot, and was claimed, may
// have been given back by then: operator.StateClaimed stands for operator.StateLaneFull too if the sentences are about slots. A node that could not prove
// its lease for a while has claimed what it delivers, so what is said of a delivery, or of its outcome, may be said of a claim.
func (s *site) until(id tocsin.JobID, state operator.State, more []string, parts ...string) (a operator.Answer) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the last answer, where %s was wanted: %+v", state, a)
		}
	}()
	s.waitFor("task "+id.String()+" is "+string(state), func() bool {
		a = s.why(id, more...)
		all := sentences(a)
		slots := state == operator.StateClaimed && a.State == operator.StateLaneFull && strings.HasPrefix(parts[0], "all 1 slots")
		claimed := a.State == operator.StateClaimed && (state == operator.StateInDelivery || state == operator.StateUnsettled)
		return (slots || claimed || a.State == state) && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(all, part) })
	})
	return a
}

// locked holds the row of a task until the test calls what it returns.
func (s *site) locked(id tocsin.JobID) (unlock func()) {
	s.t.Helper()
	tx, err := s.db.BeginTx(context.Background(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.Exec("SELECT job_id FROM "+s.layout.Table(id.Table())+" WHERE job_id = ? FOR UPDATE", uint64(id)); err != nil {
		s.t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// unseen has tasks become due without a word to their owner until one is not found yet: a scan may find one before the answer.
func (s *site) unseen(owner string) {
	s.t.Helper()
	s.waitFor("the node has not found a task yet", func() bool {
		id := s.adding("rated.hook", 5, "1h")
		s.due(id, "0 SECOND", ", biz_type = 4")
		a := s.why(id)
		return a.State == operator.StateUnseen && strings.Contains(a.Says, "node "+owner+", which owns its table, has not found it yet")
	})
}

// inTurn has a task wait for another one of its biz_id.
func (s *site) inTurn(h *hanging) {
	s.t.Helper()
	first := s.adding("keyed.hook", 8, "0s")
	<-h.begun
	s.until(s.adding("keyed.hook", 8, "0s"), operator.StateTurn, nil, "it waits for job "+first.String()+" of the same biz_id")
}

// The owner's status page, which wants a token here, tells of deliveries, outcomes, lanes and rates.
func TestWhySaysWhatTheOwnerSays(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	h := waitingSite(t, s)
	open := s.yaml(s.layout, s.dsn())
	s.write("tokenless.yaml", open+"sweep: {grace: 20m}\n")
	s.write("tocsin.yaml", open+"node:\n  status: {token: token-0123456789abcdef}\nscan: {interval: 1m, look_ahead: 2m}\nsweep: {grace: 20m}\n")
	s.run("ddl", "grace", "20m").ok(t)
	page := devtest.FreeAddress()
	s.serve("owner", "--listen", page)
	s.ownedBy(map[string]int{"owner": 8})
	id := s.nodes()[0].ID

	first := s.adding("slow.hook", 1, "0s")
	<-h.begun
	a := s.until(first, operator.StateInDelivery, nil, "node "+id+" delivers it since 20", "its time-out is 9m0s")
	if a.Owner != id || a.Group != "callback" || a.State == operator.StateInDelivery && time.Since(a.Since) > 10*time.Minute {
		t.Errorf("got %+v", a)
	}
	for range 4 { // a lane that was quick loads the next few rows ahead, and claims those that are overdue
		s.adding("slow.hook", 7, "0s")
	}
	second := s.adding("slow.hook", 2, "0s")
	s.until(second, operator.StateLaneFull, nil, "all 1 slots of slow.hook in node "+id+" are in use since 20", "`tocsin sweep`, on any host, takes it from 20")
	s.due(second, "21 MINUTE", "")
	s.until(second, operator.StateLaneFull, nil, "the next run of `tocsin sweep`, on any host takes it")
	s.waitFor("the text says the same", func() bool { // unless it is claimed just then
		out := s.run("task", "why", second.String()).ok(t)
		return strings.HasPrefix(out, "task "+second.String()+"  slow.hook  biz_id 2  ") && strings.Contains(out, "\nlane_full: all 1 slots") && strings.Contains(out, "\nalso: it is overdue")
	})
	wants := "the status page of " + id + " at " + page + ": the status page wants another token"
	s.until(second, operator.StateOverdue, []string{"--config", "tokenless.yaml"}, "past the grace time of 20m0s since 20", wants)

	s.adding("rated.hook", 3, "0s")
	<-h.begun
	limited := s.adding("rated.hook", 4, "0s")
	s.until(limited, operator.StateRateLimited, nil, "its part of the rate of rated.hook, 0.001 a second over the group", "1 task waits there")
	if a = s.why(limited, "--config", "tokenless.yaml"); a.State == operator.StateClaimed { // until it is given back
		says(t, a, operator.StateClaimed, "claimed by "+id+" until 20", wants)
	} else {
		says(t, a, operator.StateDue, "nothing is known to be in its way", wants)
	}

	claiming := s.adding("strict.hook", 6, "20s") // the lock comes first
	unlock := s.locked(claiming)
	s.until(claiming, operator.StateQueued, nil, "node "+id+" has it in its queue", "0 of 64 slots of strict.hook are in use")
	unlock()
	<-h.begun
	s.until(claiming, operator.StateClaimed, nil, "claimed by "+id+" until 20", "node "+id+" delivers it since 20")

	s.inTurn(h)
	s.unseen(id)

	unlock = s.locked(first)
	h.goOn()
	s.until(first, operator.StateUnsettled, nil, "node "+id+" has delivered it, and its outcome waits since 20")
	unlock()
	s.until(first, operator.StateDone, nil)
	s.until(second, operator.StateDone, nil)
}

// A secret that the owner lacks, and then a node that has it.
func TestWhySaysWhoStandsIn(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	h := waitingSite(t, s)
	s.serve("owner", "--listen", devtest.FreeAddress())
	s.ownedBy(map[string]int{"owner": 8})
	id := s.nodes()[0].ID
	task := s.adding("signed.hook", 1, "0s")
	s.until(task, operator.StateNoSecret, nil, "node "+id+", which owns its table, can't deliver it", "TOCSIN_TEST_WHY", "no other node of group callback can")
	handled := s.adding("signed.hook", 2, "1h")
	s.exec("UPDATE {prefix}_0.biz_type SET policy = '{}', revision = revision + 9 WHERE number = 3") // a Go handler's by now
	s.exec("UPDATE {prefix}_1.biz_type SET policy = '{}', revision = revision + 9 WHERE number = 3")
	s.due(handled, "1 SECOND", "")
	s.until(handled, operator.StateNoHandler, nil, "has no handler in this program")
	s.run("biz", "apply", "biz.yaml").ok(t)

	able := command(t.Context(), s.dir, serveArgs("able", "--listen", devtest.FreeAddress())...)
	able.Env = append(able.Env, "TOCSIN_TEST_WHY=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	standIn := s.serveBy(able, "able")
	s.ownedBy(map[string]int{"owner": 4, "able": 4})
	<-h.begun
	s.waitFor("its log says that it stands in", func() bool {
		return strings.Contains(standIn.log.String(), "standing in for a node that lacks biz types")
	})
	var all []tocsin.JobID
	for bizID := range 8 {
		all = append(all, s.adding("signed.hook", bizID+10, "0s"))
	}
	s.waitFor("a task of the owner's tables waits for the other node", func() bool {
		for _, task := range all {
			if a := s.why(task); a.State == operator.StateStandIn {
				says(t, a, operator.StateStandIn, "node "+id+", which owns its table, can't deliver it", "one of able-", "stands in for it")
				return true
			}
		}
		return false
	})
}

// Without etcd the session tables tell which nodes there are; a node that has lost etcd is known by its owner row.
func TestWhyWithoutEtcd(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.write("tocsin.yaml", byRows(s.text("tocsin.yaml")))
	h := waitingSite(t, s)
	far := s.adding("slow.hook", 9, "1h")
	says(t, s.why(far), operator.StateNotDue, "group callback has no node: start one")
	s.serve("one", "--listen", devtest.FreeAddress())
	s.ownedBy(map[string]int{"one": 8})
	if a := s.why(far); a.State != operator.StateNotDue || !strings.HasPrefix(a.Owner, "one-") || len(a.Also)+len(a.Unasked) != 0 {
		t.Errorf("got %+v", a)
	}
	first := s.adding("slow.hook", 1, "0s")
	<-h.begun
	s.until(first, operator.StateClaimed, nil, "claimed by one-", "delivers it since 20")
	s.until(s.adding("slow.hook", 2, "0s"), operator.StateClaimed, nil, "all 1 slots of slow.hook in node one-") // claimed, or given back after a while
}

func TestCommandsShowANodeThatLostEtcd(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	h := waitingSite(t, s)
	way, page := cutOff(s, "lonely")
	s.ownedBy(map[string]int{"lonely": 8})
	id := s.nodes()[0].ID
	s.run("cluster", "nodes", "--ask", page).says(t, id+"  ownership", page+"  "+id+"  ownership")
	way.Cut()
	s.waitFor("it is in claim mode", func() bool { return s.mode(page) == "claim" })
	first := s.adding("slow.hook", 1, "0s")
	<-h.begun
	second := s.adding("slow.hook", 2, "0s")
	s.waitFor("it is not listed any more", func() bool { return len(s.nodes()) == 0 })
	s.run("cluster", "nodes", "--ask", page).says(t, "note: "+id+" is not registered and took 8 tables last, which nobody has now", page+"  "+id+"  claim")
	far := s.adding("slow.hook", 3, "1h")
	says(t, s.why(far), operator.StateNotDue, "group callback has no node; "+id+" took the table last, and has ended, or goes on in claim mode")
	s.waitFor("a task that is due has no owner, and the node has not found it yet", func() bool {
		s.due(far, "0 SECOND", ", biz_type = 2, status = 0")
		a := s.why(far)
		far = s.adding("slow.hook", 3, "1h")
		return a.State == operator.StateNoOwner && strings.Contains(a.Says, "group callback has no node; "+id+" took the table last")
	})
	ask := []string{"--ask", page}
	s.until(first, operator.StateClaimed, ask, "claimed by "+id, "node "+id+" delivers it since 20")
	s.until(second, operator.StateClaimed, ask, "all 1 slots of slow.hook in node "+id, "node "+id+" can't prove its lease")
	s.write("noetcd.yaml", withoutEtcd(s.yaml(s.layout, s.dsn())))
	ask = append(ask, "--config", "noetcd.yaml")
	s.until(second, operator.StateClaimed, ask, "all 1 slots of slow.hook in node "+id, "etcd, which knows the owner of the table: etcd 127.0.0.1:1")
	r := s.run(append([]string{"cluster", "nodes"}, ask...)...)
	r.refused(t, exitFailed, "etcd 127.0.0.1:1")
	if !strings.Contains(r.stdout, id+"  claim") || !strings.Contains(r.stdout, id+" is not registered") {
		t.Errorf("without etcd:\n%s", r.stdout)
	}
	groups := decode[[]operator.Group](t, s.run("cluster", "nodes", "--json", "--ask", page+",127.0.0.1:1"))
	if len(groups) != 1 || len(groups[0].Unlisted) != 1 || groups[0].Unlisted[0] != (operator.LastOwner{ID: id, Tables: 8}) || len(groups[0].Asked) != 2 ||
		groups[0].Asked[0].Report.Mode != "claim" || !strings.Contains(groups[0].Asked[1].Error, "refused") {
		t.Errorf("got %+v", groups)
	}
	s.run("cluster", "nodes", "--ask", "nowhere").refused(t, exitUsage, `--ask "nowhere": want host:port`)
	way.Mend(t)
	s.ownedBy(map[string]int{"lonely": 8})
}

// While etcd is frozen, a node that was restarted has no table and only sweeps. The address in the config leads to its page.
func TestWhyOfANodeThatWasRestartedWhileEtcdIsFrozen(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	h := waitingSite(t, s)
	etcd, page := s.ownEtcd(), devtest.FreeAddress()
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"node:\n  listen: "+page+"\nsweep: {grace: 20m}\n")
	s.run("ddl", "grace", "20m").ok(t)
	first := s.serve("again", "--listen", page)
	s.ownedBy(map[string]int{"again": 8})
	id := s.nodes()[0].ID
	if err := syscall.Kill(etcd.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(etcd.Pid(), syscall.SIGCONT) })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	task := s.adding("slow.hook", 1, "0s")
	says(t, s.why(task), operator.StateNoEtcd, "node "+id+" took it last", "it has ended or was restarted, the task waits for etcd or a sweep", "`tocsin sweep`, on any host, takes it from 20")
	s.serve("again", "--listen", page)
	s.until(task, operator.StateNoEtcd, nil, "the node at "+page+" started while etcd was away", "works as a sweeper, which takes the task from 20")
	if s.metric(page, `tocsin_node_mode{mode="sweep"}`) != 1 || s.metric(page, `tocsin_node_mode{mode="ownership"}`) != 0 {
		t.Error("its mode is not among its metrics")
	}
	s.due(task, "21 MINUTE", "")
	s.until(task, operator.StateClaimed, nil, "a sweeper")
	h.goOn()
	if err := syscall.Kill(etcd.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.waitFor("it owns tables as etcd is back", func() bool { return s.metric(page, `tocsin_node_mode{mode="ownership"}`) == 1 })
	s.until(task, operator.StateDone, nil)
	s.until(s.adding("slow.hook", 2, "0s"), operator.StateDone, nil)
	if begun, mode := len(h.begun), s.metric(page, `tocsin_node_mode{mode="sweep"}`); begun != 2 || mode != 0 {
		t.Errorf("%d callbacks of 2 tasks, and its mode sweep is %v among the metrics of an owner", begun, mode)
	}
}
