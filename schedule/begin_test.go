package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// turns are runs of schedules on a server, which a test has begin and end.
type turns struct {
	*site
	*Runs
	base time.Time // about now: runs' times count from it
	last int
	mu   sync.Mutex
	told []MissedRun
}

func newTurns(t testing.TB) *turns {
	s := &turns{site: newSite(t)}
	s.base = s.now()
	s.Runs = NewRuns(s.tables, RunsConfig{Missed: func(m MissedRun) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, m)
	}})
	return s
}

// plan makes a schedule of each minute, of revision 3, whose fire times are whole minutes before base. It has no runs yet.
func (s *turns) plan(overlap Overlap, adapt func(*Definition)) Schedule {
	s.t.Helper()
	s.last++
	d := every(fmt.Sprintf("plan%d", s.last), "1m")
	d.Overlap, d.Missed, d.StartWithin = overlap, MissedSkip, biztype.Duration(30*time.Minute)
	if adapt != nil {
		adapt(&d)
	}
	made := s.create(d)
	s.exec(made, "DELETE FROM {task} WHERE biz_key = ?", made.Key)
	s.exec(made, "UPDATE {schedule} SET revision = 3, anchor = ? WHERE schedule_id = ?", s.base.Add(-9000*time.Minute), uint64(made.ID))
	return made
}

// is is a run of a test: for a fire time some minutes ago, pending, and of revision 3, unless it says otherwise.
type is struct {
	ago      int // minutes since its fire time; by hand: since it was made
	status   tocsin.Status
	attempts int
	crashes  int
	waited   bool // it was put off, and is due again now
	later    bool // it is due again in an hour
	given    bool // it was given back before it began
	revision uint32
	kind     ids.RunKind
	daysAgo  int // of a backfill: how many days earlier its fire time is than that of other backfills
}

// put stores a run.
func (s *turns) put(of Schedule, run is) tocsin.JobID {
	s.t.Helper()
	s.last++
	due := s.base.Add(-time.Duration(run.ago) * time.Minute)
	made, action, by := due.Add(-15*time.Minute), due, ""
	id := tocsin.JobID(due.Sub(tocsin.Epoch).Milliseconds())<<22 | tocsin.JobID(of.Table)<<9 | tocsin.JobID(s.last%512)
	key := ids.OfTime(uint64(of.ID), cmp.Or(run.revision, 3), due)
	switch run.kind {
	case ids.Backfill:
		nominal := due.Add(-time.Duration(2+run.daysAgo) * 24 * time.Hour)
		key, made, due = ids.OfBackfill(uint64(of.ID), nominal), due, nominal
		action = made
	case ids.Manual:
		key, made = ids.OfManual(uint64(of.ID), uint64(id)), due
	}
	modified := made
	if run.attempts > 0 || run.waited || run.given {
		modified = s.base
	}
	switch {
	case run.status == tocsin.Claimed:
		action, by = s.base.Add(time.Hour), "another"
	case run.waited:
		action = s.base
	case run.later:
		action = s.base.Add(time.Hour)
	}
	r := &row{Schedule: of}
	s.exec(of, `INSERT INTO {task} (job_id, gmt_create, gmt_modified, biz_id, biz_key, biz_type, status, action_time, due_time, attempts, crashes,
		claimed_by, dedup_key, attribute) VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, '')`,
		uint64(id), at(made), at(modified), r.subject(), of.Key, run.status, at(action), at(due), run.attempts, run.crashes, by, []byte(key.String()))
	return id
}

// load reads a pending run as a node does.
func (s *turns) load(id tocsin.JobID) (*Turn, *store.Row) {
	s.t.Helper()
	loaded, err := s.tables.Load(s.t.Context(), 0, []tocsin.JobID{id})
	if err != nil || len(loaded.Rows) != 1 {
		s.t.Fatalf("loaded %+v, %v", loaded, err)
	}
	found := s.Look(s.t.Context(), 0, loaded.Rows)
	if found[id] == nil {
		s.t.Fatalf("nothing is known of run %s", id)
	}
	return found[id], &loaded.Rows[0]
}

// begin has a run begin.
func (s *turns) begin(id tocsin.JobID) Began {
	s.t.Helper()
	turn, row := s.load(id)
	if !turn.Alone {
		s.t.Fatalf("run %s is not alone", id)
	}
	done, err := s.Begin(s.t.Context(), turn, row, "me", time.Minute)
	if err != nil {
		s.t.Fatal(err)
	}
	return done
}

// became says what a run is now.
func (s *turns) became(id tocsin.JobID) string {
	s.t.Helper()
	rows, err := s.tables.Look(s.t.Context(), 0, []tocsin.JobID{id})
	if err != nil || len(rows) != 1 {
		s.t.Fatal(rows, err)
	}
	if rows[0].Status == tocsin.Cancelled {
		return rows[0].LastError
	}
	return rows[0].Status.String()
}

// settle ends a claimed run.
func (s *turns) settle(id tocsin.JobID, verb tocsin.Verb) SettledRun {
	s.t.Helper()
	rows, err := s.tables.Look(s.t.Context(), 0, []tocsin.JobID{id})
	if err != nil || len(rows) != 1 {
		s.t.Fatal(rows, err)
	}
	r := rows[0]
	turn := s.Look(s.t.Context(), 0, rows)[id]
	done, err := s.Settle(s.t.Context(), turn, store.Outcome{
		JobID: id, Verb: verb, Version: r.Version, Attempts: r.Attempts, Claimed: r.Status == tocsin.Claimed, By: r.ClaimedBy, Action: r.Action, Reason: "no paper",
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return done
}

const (
	claims = "claimed"
	waits  = "waits"
	longer = "waits for others that wait"
	skips  = "skipped: "
	misses = "missed: "
	old    = "cancelled: of revision"
)

// Runs as the cases know them.
var (
	hand    = is{ago: 10, kind: ids.Manual}
	claimed = is{ago: 2, status: tocsin.Claimed}
	retried = is{ago: 2, attempts: 1, waited: true}
)

// decisions are one run that begins beside others.
var decisions = map[string]struct {
	overlap Overlap
	run     is
	beside  []is
	want    string
	others  string // what becomes of those beside; "": they stay
}{
	"skip, none open":                       {OverlapSkip, is{}, nil, claims, ""},
	"skip, settled ones":                    {OverlapSkip, is{}, []is{{ago: 1, status: tocsin.Done}, {ago: 2, status: tocsin.Dead, attempts: 9}}, claims, ""},
	"skip, one in delivery":                 {OverlapSkip, is{}, []is{claimed}, skips, ""},
	"skip, one that waits for a retry":      {OverlapSkip, is{}, []is{{ago: 2, attempts: 1, later: true}}, skips, ""},
	"skip, one that is about to begin":      {OverlapSkip, is{}, []is{{ago: 1}}, skips, ""},
	"skip, one that is missed":              {OverlapSkip, is{}, []is{{ago: 31}}, claims, ""},
	"skip, one that is late and has begun":  {OverlapSkip, is{}, []is{{ago: 31, crashes: 1}}, skips, ""},
	"skip, a later one":                     {OverlapSkip, is{ago: 1}, []is{{}}, claims, ""},
	"skip, a later one in delivery":         {OverlapSkip, is{ago: 2}, []is{{ago: 1, status: tocsin.Claimed}}, waits, ""},
	"skip, by hand in delivery":             {OverlapSkip, is{}, []is{{ago: 1, status: tocsin.Claimed, kind: ids.Manual}}, skips, ""},
	"skip, of a former revision":            {OverlapSkip, is{}, []is{{ago: 1, status: tocsin.Claimed, revision: 1}}, skips, ""},
	"skip, a retry beside one open":         {OverlapSkip, retried, []is{{ago: 3, status: tocsin.Claimed}}, waits, ""},
	"skip, a crashed one beside one open":   {OverlapSkip, is{ago: 2, crashes: 1}, []is{{ago: 3, status: tocsin.Claimed}}, waits, ""},
	"skip, a retry alone":                   {OverlapSkip, retried, []is{{ago: 1, status: tocsin.Done}}, claims, ""},
	"skip, redriven long after":             {OverlapSkip, is{ago: 29}, []is{{ago: 1, status: tocsin.Claimed}}, waits, ""},
	"late":                                  {OverlapSkip, is{ago: 31}, nil, misses, ""},
	"late, a retry":                         {OverlapSkip, is{ago: 31, attempts: 1}, nil, claims, ""},
	"late, crashed":                         {OverlapSkip, is{ago: 31, crashes: 1}, nil, claims, ""},
	"late, given back before it began":      {OverlapQueue, is{ago: 31, given: true}, nil, misses, ""},
	"late, it waited for its turn":          {OverlapQueue, is{ago: 31, waited: true}, nil, claims, ""},
	"late, by hand":                         {OverlapSkip, is{ago: 90, kind: ids.Manual}, nil, claims, ""},
	"queue, one open":                       {OverlapQueue, is{}, []is{claimed}, waits, ""},
	"queue, two open":                       {OverlapQueue, is{}, []is{claimed, {ago: 1}}, skips, ""},
	"queue, it has waited, two open":        {OverlapQueue, is{waited: true, ago: 1}, []is{claimed, {ago: 3, attempts: 1}}, waits, ""},
	"replace, all kinds":                    {OverlapReplace, is{}, []is{claimed, {ago: 1}, {ago: 3, attempts: 1, later: true}, {ago: 4, kind: ids.Manual, attempts: 1}}, claims, "replaced: by the run of "},
	"replace, by hand, it has not begun":    {OverlapReplace, is{}, []is{{ago: 4, kind: ids.Manual}}, claims, ""},
	"replace, a retry":                      {OverlapReplace, retried, []is{{ago: 3, status: tocsin.Claimed}}, waits, ""},
	"queue, three by hand wait":             {OverlapQueue, is{}, []is{{ago: 4, kind: ids.Manual}, {ago: 5, kind: ids.Manual}, {ago: 6, kind: ids.Manual}}, longer, ""},
	"replace, a later one in delivery":      {OverlapReplace, is{ago: 2}, []is{{ago: 1, status: tocsin.Claimed}, {ago: 3}}, waits, ""},
	"by hand, allow":                        {OverlapAllow, hand, []is{{ago: 11, status: tocsin.Claimed}}, claims, ""},
	"by hand, one open":                     {OverlapSkip, hand, []is{{ago: 11, status: tocsin.Claimed}}, waits, ""},
	"by hand, replaces none":                {OverlapReplace, hand, []is{{ago: 11, attempts: 1}}, waits, ""},
	"by hand, one that waits before it":     {OverlapQueue, hand, []is{{ago: 11, kind: ids.Manual}}, longer, ""},
	"by hand, a fire time after it":         {OverlapQueue, hand, []is{{ago: 9}}, claims, ""},
	"a backfill behind one by hand":         {OverlapSkip, is{ago: 9, kind: ids.Backfill}, []is{{ago: 10, kind: ids.Manual}}, longer, ""},
	"a backfill before one by hand":         {OverlapSkip, is{ago: 10, kind: ids.Backfill}, []is{{ago: 9, kind: ids.Manual}}, claims, ""},
	"former revision, alone":                {OverlapSkip, is{revision: 2}, nil, claims, ""},
	"former revision, allow":                {OverlapAllow, is{revision: 2}, []is{claimed}, claims, ""},
	"former revision, it has to wait":       {OverlapQueue, is{revision: 2}, []is{{ago: 1, revision: 1, status: tocsin.Claimed}}, waits, ""},
	"former revision, a retry":              {OverlapSkip, is{revision: 2, attempts: 1}, nil, old, ""},
	"former revision, it has waited":        {OverlapSkip, is{revision: 2, ago: 1, waited: true}, nil, claims, ""},
	"former revision, given back":           {OverlapSkip, is{revision: 2, given: true}, nil, claims, ""},
	"former revision, by hand":              {OverlapSkip, hand, nil, claims, ""},
	"beside a run of another type":          {OverlapSkip, is{}, []is{{ago: 1, status: tocsin.Claimed, crashes: 7}}, skips, ""},
	"a retry beside one by hand before it":  {OverlapSkip, retried, []is{{ago: 3, kind: ids.Manual}}, longer, ""},
	"replace, by hand in delivery after it": {OverlapReplace, is{ago: 2}, []is{{ago: 1, kind: ids.Manual, status: tocsin.Claimed}}, waits, ""},
}

func TestBegin(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	for name, c := range decisions {
		of := s.plan(c.overlap, nil)
		var ids []tocsin.JobID
		var before []string
		for _, run := range c.beside {
			id := s.put(of, run)
			if run.crashes == 7 { // an edit has changed the type of the schedule meanwhile
				s.exec(of, "UPDATE {task} SET biz_type = 2 WHERE job_id = ?", uint64(id))
			}
			ids, before = append(ids, id), append(before, s.became(id))
		}
		id := s.put(of, c.run)
		s.told = nil
		asked := s.now()
		done := s.begin(id)
		told := s.now() // a run that waits began to between the two
		got := s.became(id)
		switch {
		case done.Next > told.Add(nearMost).UnixMilli(), c.want == longer && done.Next >= asked.Add(farLeast).UnixMilli():
			got = longer
		case done.Next != 0:
			got = waits
		}
		if !strings.HasPrefix(got, c.want) || (done.Deadline != 0) != (c.want == claims) || (done.Ended != "") != strings.Contains(c.want, ":") && c.want != old {
			t.Errorf("%s: %q, want %q: %+v", name, got, c.want, done)
		}
		if (len(s.told) == 1) != (c.want == misses) {
			t.Errorf("%s: told of %+v", name, s.told)
		}
		if c.others != "" && len(done.Replaced) != len(ids) {
			t.Errorf("%s: replaced %v", name, done.Replaced)
		}
		for i := range ids {
			if got := s.became(ids[i]); got != before[i] && (c.others == "" || !strings.HasPrefix(got, c.others)) {
				t.Errorf("%s: beside it %+v became %q", name, c.beside[i], got)
			}
		}
	}
}

// TestSomeRunAlwaysBegins: a run by hand is to be retried, a run for a fire time waits for it, and then another run by hand is made, of an
// earlier day. Whatever their keys are, they don't wait for one another in a circle.
func TestSomeRunAlwaysBegins(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	of := s.plan(OverlapQueue, nil)
	ids := []tocsin.JobID{
		s.put(of, is{ago: 20, kind: ids.Backfill, attempts: 1, waited: true}),
		s.put(of, is{ago: 10}),
		s.put(of, is{ago: 5, kind: ids.Backfill, daysAgo: 1}),
	}
	for len(ids) > 0 {
		var left []tocsin.JobID
		for _, id := range ids {
			if s.begin(id).Deadline != 0 {
				s.settle(id, tocsin.Completed)
			} else {
				left = append(left, id)
			}
		}
		if len(left) == len(ids) {
			t.Fatalf("%d runs wait for one another", len(left))
		}
		ids = left
	}
}

// TestTheNextRunMayBeOfAnotherBizType: the schedule got it while a run was in delivery, whose end brings the next one forward.
func TestTheNextRunMayBeOfAnotherBizType(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	of := s.plan(OverlapQueue, nil)
	ends, next := s.put(of, claimed), s.put(of, is{ago: 1, later: true})
	s.exec(of, "UPDATE {schedule} SET biz_type = 2 WHERE schedule_id = ?", uint64(of.ID))
	s.exec(of, "UPDATE {task} SET biz_type = 2 WHERE job_id = ?", uint64(next))
	if done := s.settle(ends, tocsin.Completed); done.Forward != next || done.Type != 2 {
		t.Errorf("%+v, want run %s of type 2", done, next)
	}
}

// TestOneRunBeginsAtOnce: of all runs of a schedule that are due, and that many processes begin at the same time, one is claimed.
func TestOneRunBeginsAtOnce(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	for _, overlap := range []Overlap{OverlapSkip, OverlapQueue} {
		of := s.plan(overlap, nil)
		var runs []tocsin.JobID
		for i := range 8 {
			runs = append(runs, s.put(of, is{ago: i}), s.put(of, is{ago: i, kind: ids.Manual}))
		}
		var all sync.WaitGroup
		for _, id := range runs {
			turn, row := s.load(id)
			all.Go(func() {
				for t.Context().Err() == nil { // some more get the lock in vain, on a busy machine
					if _, err := s.Begin(t.Context(), turn, row, "me", time.Minute); err == nil {
						return
					}
				}
			})
		}
		all.Wait()
		claimed := 0
		for _, id := range runs {
			if s.became(id) == "claimed" {
				claimed++
			}
		}
		if claimed != 1 {
			t.Errorf("%s: %d are claimed", overlap, claimed)
		}
	}
}

// TestLocksOfManySchedulesAreWaitedForOnce: for a while no run waits for another one's, and those of schedules that nobody has locked begin.
func TestLocksOfManySchedulesAreWaitedForOnce(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	const locked = 3
	var plans []Schedule
	var runs []tocsin.JobID
	for i := range locked + 1 {
		plans = append(plans, s.plan(OverlapSkip, nil))
		runs = append(runs, s.put(plans[i], is{}))
	}
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, of := range plans[:locked] {
		if _, err := tx.Exec("SELECT schedule_id FROM "+s.database(of)+".schedule WHERE schedule_id = ? FOR UPDATE", uint64(of.ID)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range locked {
		turn, row := s.load(runs[i])
		began := time.Now()
		_, err := s.Begin(t.Context(), turn, row, "me", time.Minute)
		if took := time.Since(began); mysql.ClassOf(err) != mysql.Contended || (took < time.Second) != (i > 0) { // a lock wait is a second
			t.Errorf("run %d: %v after %s", i, err, took)
		}
	}
	if done := s.begin(runs[locked]); done.Deadline == 0 {
		t.Errorf("that of the other schedule: %+v", done)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if done := s.begin(runs[0]); done.Deadline == 0 {
		t.Errorf("after the lock: %+v", done)
	}
}

// TestABeginWhoseAnswerWasLostIsRepeated, and recognises its claim; another process's is none.
func TestABeginWhoseAnswerWasLostIsRepeated(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	id := s.put(s.plan(OverlapSkip, nil), is{})
	turn, row := s.load(id)
	first, err := s.Begin(t.Context(), turn, row, "me", time.Minute)
	again, err2 := s.Begin(t.Context(), turn, row, "me", time.Minute)
	other, err3 := s.Begin(t.Context(), turn, row, "another", time.Minute)
	if err != nil || err2 != nil || err3 != nil || first.Deadline == 0 || again.Deadline != first.Deadline || other.Deadline != 0 {
		t.Errorf("%+v, %+v, %+v", first, again, other)
	}
}

// TestARunIsClaimedUnderASession that exists, and keeps its time; the claim is recognised when it is repeated.
func TestARunIsClaimedUnderASession(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	session := "abcdefghjkmn"
	by := store.Token(session, 1)
	id := s.put(s.plan(OverlapSkip, nil), is{})
	turn, row := s.load(id)
	if done, err := s.Begin(t.Context(), turn, row, by, 0); err == nil || done.Deadline != 0 {
		t.Errorf("without a session: %+v, %v", done, err)
	}
	err := s.tables.OpenSession(t.Context(), store.Session{Database: 0, ID: session, Group: "g", Node: "n", Incarnation: "i", SessionState: store.SessionState{About: "{}"}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Begin(t.Context(), turn, row, by, 0)
	again, err2 := s.Begin(t.Context(), turn, row, by, 0)
	other, err3 := s.Begin(t.Context(), turn, row, store.Token(session, 2), 0)
	if err != nil || err2 != nil || err3 != nil || first.Deadline != row.Action || again.Deadline != row.Action || other.Deadline != 0 {
		t.Errorf("%+v, %+v, %+v, %v, %v, %v", first, again, other, err, err2, err3)
	}
}

// TestAQueueMovesOn when a run ends: the next one looks at once, in order, and reads few rows however many wait.
func TestAQueueMovesOn(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	of := s.plan(OverlapSkip, nil)
	from := s.base.Add(-300 * time.Minute)
	made, err := s.Backfill(t.Context(), of.Name, from, s.base, false)
	if err != nil || made.Made != 300 {
		t.Fatal(made.Made, err)
	}
	runs := s.runs(of)
	slices.SortFunc(runs, func(a, b stored) int { return a.Due.Compare(b.Due) })
	if now := s.now(); runs[0].Action.After(now) || !runs[1].Action.After(now) || !runs[299].Action.After(now) {
		t.Errorf("the first looks at %s, the second at %s", runs[0].Action, runs[1].Action)
	}
	s.exec(of, "UPDATE {task} SET action_time = UTC_TIMESTAMP(3) WHERE job_id = ?", uint64(runs[299].ID))
	turn, row := s.load(runs[299].ID)
	if err := s.maker.at(t.Context(), of.ID, func(h *here) error {
		before := s.reads(h.conn)
		b := &beginning{here: h, turn: turn, by: "me", hold: time.Minute, asked: row}
		if err := b.run(t.Context()); err != nil || b.Next == 0 {
			return fmt.Errorf("%+v, %w", b.Began, err)
		}
		if n := s.reads(h.conn) - before; n > 60 {
			t.Errorf("one of 300 that wait has read %d rows to look whether its turn has come", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for i := range 30 {
		if done := s.begin(runs[i].ID); done.Deadline == 0 {
			t.Fatalf("run %d: %+v", i, done)
		}
		if done := s.settle(runs[i].ID, tocsin.Completed); done.Fate != store.Stored || done.Forward != runs[i+1].ID {
			t.Fatalf("run %d: %+v", i, done)
		}
	}
	h := &here{}
	err = s.maker.at(t.Context(), of.ID, func(at *here) error { h = at; return nil })
	if k, _ := ids.ParseRunKey(h.row.hand); err != nil || k.Nominal().Before(runs[farEnough-1].Key.Nominal()) {
		t.Errorf("runs by hand may be open from %s on, %v", k.Nominal(), err)
	}
	if _, err := s.RunNow(t.Context(), of.Name); err != nil {
		t.Error(err)
	}
	if err := s.maker.at(t.Context(), of.ID, func(at *here) error { h = at; return nil }); err != nil || h.row.hand != byHand(uint64(of.ID)) {
		t.Errorf("the mark of runs by hand stays: %x, %v", h.row.hand, err)
	}
}

// TestFailuresAreCountedWithTheOutcome: a schedule is paused in the transaction that stores the last one, and what is of another
// revision does not count: not its failures, and not its late successes.
func TestFailuresAreCountedWithTheOutcome(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	for i, overlap := range []Overlap{OverlapSkip, OverlapAllow} {
		of := s.plan(overlap, func(d *Definition) { d.PauseAfter = 3 })
		end := func(run is, verb tocsin.Verb, state State, failures int) {
			t.Helper()
			run.status = tocsin.Claimed
			id := s.put(of, run)
			s.settle(id, verb)
			if verb == tocsin.Buried {
				s.settle(id, verb) // its answer was lost
			}
			if got := s.get(of.Name); got.State != state || got.Failures != failures {
				t.Errorf("%s, %+v %s: it is %s with %d failures, want %s with %d", overlap, run, verb, got.State, got.Failures, state, failures)
			}
		}
		s.told = nil
		inTx := s.put(of, is{ago: 21, status: tocsin.Claimed})
		rows, err := s.tables.Look(t.Context(), 0, []tocsin.JobID{inTx})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		s.exec(of, "UPDATE {task} SET status = 2, claimed_by = ? WHERE job_id = ?", client.CompletedInTx, uint64(inTx))
		for range 2 { // its handler has returned an error nevertheless, and the answer was lost once
			done, err := s.Settle(t.Context(), s.Look(t.Context(), 0, rows)[inTx], store.Outcome{
				JobID: inTx, Verb: tocsin.Buried, Version: rows[0].Version, Attempts: rows[0].Attempts, Claimed: true, By: rows[0].ClaimedBy, Action: rows[0].Action,
			})
			if got := s.get(of.Name); err != nil || done.Fate != store.InTx || got.State != Active || got.Failures != 0 {
				t.Errorf("completed by its handler: fate %v, %v, %s with %d failures", done.Fate, err, got.State, got.Failures)
			}
		}
		end(is{ago: 20}, tocsin.Buried, Active, 1)
		end(is{ago: 19}, tocsin.Completed, Active, 0)
		end(is{ago: 18}, tocsin.Buried, Active, 1)
		end(is{ago: 17}, tocsin.Buried, Active, 2)
		end(is{ago: 16, revision: 2}, tocsin.Completed, Active, 2)
		end(is{ago: 15, revision: 2}, tocsin.Buried, Active, 2)
		end(is{ago: 14, kind: ids.Manual}, tocsin.Buried, Active, 2)
		waiting := s.put(of, is{ago: -1})
		end(is{ago: 13}, tocsin.Buried, Paused, 3)
		got := s.get(of.Name)
		if got.Revision != 4 || !strings.HasPrefix(got.Reason, "paused after 3 failures in a row at ") || s.became(waiting) != "the schedule was paused" ||
			len(s.told) != 1 || s.told[0].Why != "paused after 3 failures in a row" || testutil.ToFloat64(s.Runs.metrics.paused) != float64(i+1) {
			t.Errorf("revision %d, %q, the next run %q, told %+v", got.Revision, got.Reason, s.became(waiting), s.told)
		}
	}
}

// TestRunsThatAllowOverlapsCostNoStatement if their schedule was read within a minute.
func TestRunsThatAllowOverlapsCostNoStatement(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	of := s.plan(OverlapAllow, func(d *Definition) { d.Missed, d.MissedMost = MissedAll, 3 })
	id := s.put(of, is{})
	rows := func(id tocsin.JobID) []store.Row { _, row := s.load(id); return []store.Row{*row} }
	first := rows(id)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	turn := s.Look(gone, 0, first)[id] // it can ask nobody
	if turn == nil || turn.Alone || turn.Name != of.Name || !turn.Time.Equal(first[0].DueTime) || turn.Refused(&first[0], s.base.UnixMilli()) != "" {
		t.Fatalf("%+v", turn)
	}
	for name, c := range map[string]struct {
		run  is
		want string
	}{
		"late, of the latest three": {is{ago: 32}, ""},
		"late, beyond them":         {is{ago: 33}, misses},
		"late, retried":             {is{ago: 40, attempts: 1}, ""},
	} {
		turn, row := s.load(s.put(of, c.run))
		if got := turn.Refused(row, s.base.UnixMilli()+1); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if waited := rows(s.put(of, is{ago: 3, waited: true})); s.Look(gone, 0, waited)[waited[0].JobID] != nil {
		t.Error("a run that was put off goes by what was read before")
	}
	if err := s.DeleteID(t.Context(), of.ID); err != nil {
		t.Fatal(err)
	}
	left := s.put(of, is{attempts: 1})
	if turn, row := s.load(left); turn.Refused(row, s.base.UnixMilli()) != reasonDeleted {
		t.Errorf("%+v", turn)
	}
}
