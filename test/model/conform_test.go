package model

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// realCrashes is the bound of the store where the model has maxCrashes.
const realCrashes = 5

// server is a real one, with what makes each write for real.
type server struct {
	tb     testing.TB
	db     *sql.DB
	layout tocsin.Layout
	store  *store.Store
	client *tocsin.Client
	now    int64 // its clock at the start, Unix ms
	rows   int
	strict bool // the biz type is
}

func newServer(t *testing.T, strict bool) *server {
	t.Helper()
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 1, Tables: 1, Prefix: devtest.Prefix(t)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
	}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: "model"}); err != nil {
		t.Fatal(err)
	}
	s := &server{tb: t, layout: cfg.Layout, strict: strict}
	var err error
	if s.db, err = sql.Open("mysql", devtest.DSN(t)); err != nil {
		t.Fatal(err)
	}
	if s.store, err = store.Open(cfg); err != nil {
		t.Fatal(err)
	}
	if s.client, err = tocsin.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []func() error{s.client.Close, s.store.Close, s.db.Close} {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
	})
	_, err = s.db.Exec("INSERT INTO "+s.layout.Database(0)+".biz_type VALUES (1, 'a', 'g', ?, 1, UTC_TIMESTAMP(3))", fmt.Sprintf(`{"strict":%t}`, strict))
	if err != nil {
		t.Fatal(err)
	}
	s.now = s.clock()
	return s
}

// timeForm is a DATETIME(3) as text.
const timeForm = "2006-01-02 15:04:05.000"

func (s *server) clock() int64 {
	s.tb.Helper()
	var now string
	if err := s.db.QueryRow("SELECT CAST(UTC_TIMESTAMP(3) AS CHAR)").Scan(&now); err != nil {
		s.tb.Fatal(err)
	}
	return s.milli(now)
}

func (s *server) milli(text string) int64 {
	s.tb.Helper()
	at, err := time.Parse(timeForm, text)
	if err != nil {
		s.tb.Fatal(err)
	}
	return at.UnixMilli()
}

// real is a row as it stands in the table.
type real struct {
	id       tocsin.JobID
	status   status
	action   int64
	attempts int
	crashes  int
	version  uint32
}

// version1 and attempts1 are those of every row that a test makes.
const version1, attempts1 = 1, 1

// add stores a row of a status whose action_time is so long after now.
func (s *server) add(st status, in time.Duration, crashes int) real {
	s.tb.Helper()
	s.rows++
	r := real{tocsin.JobID(s.rows) << 22, st, s.now + in.Milliseconds(), attempts1, crashes, version1}
	at := time.UnixMilli(r.action).UTC().Format(timeForm)
	_, err := s.db.Exec("INSERT INTO "+s.layout.Table(0)+` (job_id, gmt_create, gmt_modified, biz_id, biz_type, status,
		action_time, due_time, attempts, crashes, version, claimed_by, attribute)
		VALUES (?, ?, ?, 7, 1, ?, ?, ?, ?, ?, ?, IF(?, 'me', ''), '')`,
		r.id, at, at, r.status, at, at, r.attempts, r.crashes, r.version, st == claimed)
	if err != nil {
		s.tb.Fatal(err)
	}
	return r
}

// get reads a row; one that is gone is purged.
func (s *server) get(id tocsin.JobID) real {
	s.tb.Helper()
	r := real{id: id}
	var at string
	err := s.db.QueryRow("SELECT status, CAST(action_time AS CHAR), attempts, crashes, version FROM "+s.layout.Table(0)+" WHERE job_id = ?", id).
		Scan(&r.status, &at, &r.attempts, &r.crashes, &r.version)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return real{id: id, status: purged}
	case err != nil:
		s.tb.Fatal(err)
	}
	r.action = s.milli(at)
	return r
}

// offer is one situation: a row, and a statement that knows it right or wrong.
type offer struct {
	status status
	action time.Duration // from now
	ticks  int8          // the same for the model
	p      params
}

// offers are all situations: each status, due and not, known as it is and not, held and not.
func offers() []offer {
	var all []offer
	for i := range 5 * 64 {
		bit := func(n int) bool { return i/5>>n&1 == 1 }
		o := offer{status: status(i % 5), action: -10 * time.Second, ticks: -recoverLate}
		if bit(0) {
			o.action, o.ticks = time.Minute, 1
		}
		o.p = params{version: version1, attempts: attempts1, same: bit(1), held: bit(2)}
		if bit(3) {
			o.p.version++
		}
		if bit(4) {
			o.p.attempts++
		}
		if bit(5) {
			o.p.by++
		}
		all = append(all, o)
	}
	return all
}

func (o offer) String() string {
	return fmt.Sprintf("%s row at %s, known with version %d, attempts %d, action_time right %v, held %v, by %s",
		o.status, o.action, o.p.version, o.p.attempts, o.p.same, o.p.held, o.by())
}

// by is the statement's claimer; a claimed row belongs to the first.
func (o offer) by() string { return [...]string{"me", "you"}[o.p.by] }

// known is the action_time that the statement is given.
func (o offer) known(r real) int64 {
	if o.p.same {
		return r.action
	}
	return r.action - 1
}

// model is the row in the model.
func (o offer) model(crashes uint8) row {
	r := row{status: o.status, action: o.ticks, attempts: attempts1, version: version1, crashes: crashes}
	if o.status == claimed {
		r.claimant = 1
	}
	return r
}

// conform compares one write of the model with the real one, on every offer. Made reports an error of its own, and
// whether the write said that it hit; the row must tell the same.
func conform(t *testing.T, w Write, made func(ctx context.Context, s *server, r real, o offer) (bool, error)) {
	t.Parallel()
	conformTo(t, newServer(t, false), w, made)
}

// conformTwice does it for a biz type that is not strict, and for one that is.
func conformTwice(t *testing.T, w Write, made func(ctx context.Context, s *server, r real, o offer) (bool, error)) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict %t", strict), func(t *testing.T) { conformTo(t, newServer(t, strict), w, made) })
	}
}

func conformTo(t *testing.T, s *server, w Write, made func(ctx context.Context, s *server, r real, o offer) (bool, error)) {
	rules, hits := designed(), 0
	for _, o := range offers() {
		o.p.strict = s.strict
		before := s.add(o.status, o.action, 0)
		m := o.model(0)
		want := rules.allow(w, &m, &o.p)
		said, err := made(t.Context(), s, before, o)
		if err != nil {
			t.Fatalf("%s on %s: %v", w, o, err)
		}
		if after := s.get(before.id); w != Load && (after != before) != want {
			t.Errorf("%s on %s: changed %v, by the model %v", w, o, after != before, want)
		}
		if said != want {
			t.Errorf("%s on %s: says %v, by the model %v", w, o, said, want)
		}
		if want {
			hits++
		}
	}
	if hits == 0 {
		t.Error("the model allows it nowhere")
	}
}

func TestLoadConforms(t *testing.T) {
	conform(t, Load, func(ctx context.Context, s *server, r real, _ offer) (bool, error) {
		loaded, err := s.store.Load(ctx, 0, []tocsin.JobID{r.id})
		return len(loaded.Rows) == 1, err
	})
}

// unlessBusy lets the error pass by which a strict biz type refuses to change what is claimed.
func (s *server) unlessBusy(err error) error {
	if s.strict && errors.Is(err, tocsin.ErrInDelivery) {
		return nil
	}
	return err
}

func TestCancelConforms(t *testing.T) {
	conformTwice(t, Cancel, func(ctx context.Context, s *server, r real, _ offer) (bool, error) {
		change, err := s.client.Cancel(ctx, tocsin.ByID(r.id))
		return change.Changed == 1, s.unlessBusy(err)
	})
}

func TestRescheduleConforms(t *testing.T) {
	conformTwice(t, Reschedule, func(ctx context.Context, s *server, r real, _ offer) (bool, error) {
		change, err := s.client.Reschedule(ctx, tocsin.ByID(r.id), tocsin.In(time.Hour))
		return change.Changed == 1, s.unlessBusy(err)
	})
}

func TestClaimConforms(t *testing.T) {
	conform(t, Claim, func(ctx context.Context, s *server, r real, o offer) (bool, error) {
		rows, err := s.store.Claim(ctx, store.Claim{
			Rows: []duequeue.Entry{{JobID: r.id, Type: 1, Due: o.known(r)}}, By: "me", Hold: time.Minute,
		})
		return len(rows) == 1, err
	})
}

// TestReadBackConforms asks for each row's claim with the right claimer and deadline, and with wrong ones.
func TestReadBackConforms(t *testing.T) {
	t.Parallel()
	s := newServer(t, false)
	rules, hits := designed(), 0
	for _, o := range offers() {
		r, m := s.add(o.status, o.action, 0), o.model(0)
		doubt := &store.InDoubt{By: o.by(), Deadline: o.known(r), IDs: []tocsin.JobID{r.id}}
		rows, err := s.store.ReadBack(t.Context(), doubt)
		if err != nil {
			t.Fatal(err)
		}
		want := rules.allow(ReadBack, &m, &o.p)
		if (len(rows) == 1) != want {
			t.Errorf("read back on %s: %d rows, by the model %v", o, len(rows), want)
		}
		if want {
			hits++
		}
	}
	if hits == 0 {
		t.Error("the model allows it nowhere")
	}
}

// settle makes an outcome real.
func settle(verb tocsin.Verb) func(context.Context, *server, real, offer) (bool, error) {
	return func(ctx context.Context, s *server, r real, o offer) (bool, error) {
		fates, err := s.store.Settle(ctx, 0, []store.Outcome{{
			JobID: r.id, Verb: verb, Version: uint32(o.p.version), Attempts: int(o.p.attempts), Claimed: o.p.held, By: o.by(),
			Action: o.known(r), Next: s.now + time.Hour.Milliseconds(), Reason: "no route",
		}})
		return err == nil && fates[0] == store.Stored, err
	}
}

func TestCompleteConforms(t *testing.T) { conform(t, Complete, settle(tocsin.Completed)) }
func TestRetryConforms(t *testing.T)    { conform(t, Retry, settle(tocsin.Retried)) }
func TestSnoozeConforms(t *testing.T)   { conform(t, Snooze, settle(tocsin.Snoozed)) }
func TestBuryConforms(t *testing.T)     { conform(t, Bury, settle(tocsin.Buried)) }

// TestSkipConformsToBury since both end a row for good under one condition.
func TestSkipConformsToBury(t *testing.T) { conform(t, Bury, settle(tocsin.Skipped)) }

func TestCompleteTxConforms(t *testing.T) {
	conform(t, Complete, func(ctx context.Context, s *server, r real, o offer) (bool, error) {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return false, err
		}
		refused := tocsin.CompleteTx(ctx, tx, tocsin.Info{JobID: r.id, Version: uint32(o.p.version), Table: s.layout.Table(0)})
		return refused == nil, tx.Commit()
	})
}

func TestBuryByHandConforms(t *testing.T) {
	conformTwice(t, BuryByHand, func(ctx context.Context, s *server, r real, _ offer) (bool, error) {
		return s.store.Bury(ctx, r.id, "by hand")
	})
}

func TestRedriveConforms(t *testing.T) {
	conform(t, Redrive, func(ctx context.Context, s *server, r real, _ offer) (bool, error) {
		return s.store.Redrive(ctx, r.id, false)
	})
}

func TestRedriveSameKeyConforms(t *testing.T) {
	conform(t, RedriveSameKey, func(ctx context.Context, s *server, r real, _ offer) (bool, error) {
		return s.store.Redrive(ctx, r.id, true)
	})
}

func TestPurgeConforms(t *testing.T) {
	conform(t, Purge, func(ctx context.Context, s *server, r real, o offer) (bool, error) {
		gone := 0
		for _, st := range []tocsin.Status{tocsin.Done, tocsin.Cancelled, tocsin.Dead} {
			n, err := s.store.Purge(ctx, 0, st, s.now-time.Second.Milliseconds(), []duequeue.Entry{{JobID: r.id, Type: 1, Due: r.action}})
			if err != nil {
				return false, err
			}
			gone += n[1]
		}
		return gone == 1, nil
	})
}

// TestRecoverConforms recovers all rows at once, as the store does: each status, before and after the deadline and the
// 5 s, with every number of crashes.
func TestRecoverConforms(t *testing.T) {
	t.Parallel()
	s := newServer(t, false)
	for {
		s.now = s.clock()
		all := s.everyCrash()
		if _, err := s.store.Recover(t.Context(), 0, []int{0}, 500, nil); err != nil {
			t.Fatal(err)
		}
		if s.clock()-s.now < 3000 {
			s.recovered(all)
			return
		}
		// Rows of 2 s ago may have become rows of 5 s ago before they were looked at: once more, with new ones.
	}
}

// expected is a row before a recovery, and what the model says of it.
type expected struct {
	offer
	before real
	want   row
}

// everyCrash adds the rows of TestRecoverConforms.
func (s *server) everyCrash() (all []expected) {
	s.tb.Helper()
	rules := designed()
	ages := map[time.Duration]int8{-15 * time.Second: -recoverLate, -2 * time.Second: 0, time.Minute: 1}
	for st := pending; st <= dead; st++ {
		for action, ticks := range ages {
			for crashes := realCrashes - maxCrashes; crashes < realCrashes; crashes++ {
				o := offer{status: st, action: action, ticks: ticks}
				want := o.model(uint8(crashes - (realCrashes - maxCrashes)))
				for _, w := range []Write{RecoverBury, RecoverBack} {
					if rules.allow(w, &want, &o.p) {
						table[w].set(&want, &o.p)
					}
				}
				all = append(all, expected{o, s.add(st, action, crashes), want})
			}
		}
	}
	return all
}

func (s *server) recovered(all []expected) {
	s.tb.Helper()
	for _, e := range all {
		got := s.get(e.before.id)
		if got.status != e.want.status || got.crashes != int(e.want.crashes)+realCrashes-maxCrashes || got.attempts != e.before.attempts {
			s.tb.Errorf("recover on %s, crashes %d: %+v, by the model %s", e.offer, e.before.crashes, got, &e.want)
		}
	}
}
