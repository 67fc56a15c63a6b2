package relaytest

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/outbox"
)

// Site makes shops whose outboxes are on one kind of server, and relays them.
type Site struct {
	Shop  func(tb testing.TB) *Shop
	Relay func(ctx context.Context, s *Shop, by Relaying)            // as the active relay or a standby, until ctx ends
	Turn  func(ctx context.Context, s *Shop, by Relaying, to *Moody) // without the lock, until ctx ends
	Empty func(s *Shop)                                              // empties the outbox, whose ids begin anew
	Kill  func(s *Shop)                                              // ends the session of the active relay
}

// Relaying is how a relay works.
type Relaying struct {
	Whole  time.Duration
	GapAge time.Duration // 0: that of a relay
	Log    *slog.Logger
}

// active is what a relay logs when it has become the active one.
const active = "outbox is relayed by this process"

// looks is how often the relays of Conform look at all ids.
const looks = 200 * time.Millisecond

// Conform is the test of relays that is the same for outboxes on all kinds of servers.
func Conform(t *testing.T, on Site) {
	for name, test := range map[string]func(*testing.T, Site, *Shop){
		"what commits is moved, and what rolls back is not":                        commits,
		"the order of one biz_id is kept":                                          order,
		"a gap is never taken for empty":                                           gap,
		"an emptied outbox may give ids again":                                     emptied,
		"a row that can't be moved is set aside and holds up its biz_id alone":     aside,
		"the next relay takes over":                                                next,
		"a relay whose session ends is followed by another":                        killed,
		"a delete spares a row with the id of another":                             deletes,
		"each row is moved once and in order, whatever happens to rows and relays": random,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, on, on.Shop(t))
		})
	}
}

// relay runs a relay until the test ends, or stop is called.
func (on Site) relay(s *Shop, by Relaying) (stop func()) {
	s.TB.Helper()
	by.Whole = looks
	if by.Log == nil {
		by.Log = slog.New(slog.NewTextHandler(s.TB.Output(), nil))
	}
	return s.Run(func(ctx context.Context) { on.Relay(ctx, s, by) })
}

func commits(t *testing.T, on Site, s *Shop) {
	on.relay(s, Relaying{})
	tx := s.Begin()
	if err := s.AddTx(tx, 1, "gone", tocsin.In(Day)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.Add(1, "kept", tocsin.In(Day))
	s.Want(1, "kept pending")
	s.Rows(0)
}

func order(t *testing.T, on Site, s *Shop) {
	const orders = 40
	for order := uint64(1); order <= orders; order++ { // before a relay runs: whole pages of it
		s.Add(order, "a", tocsin.In(Day))
		s.Cancel(order)
		s.Add(order, "b", tocsin.In(Day))
		s.Reschedule(order, tocsin.In(2*Day))
	}
	on.relay(s, Relaying{})
	s.Rows(0)
	for order := uint64(1); order <= orders; order++ {
		if got := s.Tasks(order); got != "a cancelled, b pending" {
			t.Errorf("order %d: %s", order, got)
		}
		infos, err := s.Client.List(t.Context(), order)
		if err != nil || infos[0].Version != 0 || infos[1].Version != 1 || time.Until(infos[1].DueTime) < Day+time.Hour {
			t.Errorf("order %d: %+v, %v", order, infos, err)
		}
	}
}

func gap(t *testing.T, on Site, s *Shop) {
	on.relay(s, Relaying{GapAge: time.Millisecond}) // gaps are closed as early as may be
	open := s.Begin()
	if err := s.AddTx(open, 1, "late", tocsin.In(Day)); err != nil {
		t.Fatal(err)
	}
	for order := uint64(2); order < 20; order++ {
		s.Add(order, "x", tocsin.In(Day))
		s.Want(order, "x pending")
	}
	s.Rows(0) // the deletes did not wait for the row that is open
	_ = loop.Wait(t.Context(), 3*looks)
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	s.Want(1, "late pending")
	s.Rows(0)
}

func emptied(_ *testing.T, on Site, s *Shop) {
	on.relay(s, Relaying{})
	for order := uint64(1); order <= 5; order++ {
		s.Add(order, "x", tocsin.In(Day))
	}
	s.Rows(0)
	on.Empty(s)
	for order := uint64(1); order <= 3; order++ { // ids 1 to 3 once more
		s.Add(order, "y", tocsin.In(Day))
	}
	for order := uint64(1); order <= 3; order++ {
		s.Want(order, "x pending, y pending")
	}
	s.Rows(0)
}

func aside(t *testing.T, on Site, s *Shop) {
	on.relay(s, Relaying{})
	for _, values := range []string{"('no.such', 1, 1000, 'x')", "('no.such', 2, 1000, 'x')"} {
		s.Exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, attribute) VALUES " + values)
	}
	s.Add(1, "behind", tocsin.In(Day))
	s.Add(2, "behind", tocsin.In(Day))
	s.Add(3, "other", tocsin.In(Day))
	s.Want(3, "other pending")
	from := s.Outbox()
	var stuck []outbox.Row
	tried := func(n, attempts int) {
		t.Helper()
		s.Await("rows to be set aside", func() (all bool) {
			var err error
			if stuck, err = from.List(t.Context(), 0, 10, true); err != nil {
				t.Fatal(err)
			}
			all = len(stuck) == n
			for _, row := range stuck {
				all = all && row.Attempts == attempts && strings.HasPrefix(row.LastError, `unknown biz type "no.such"`)
			}
			return all
		})
	}
	tried(2, 1)
	if stuck[0].BizID != 1 || stuck[1].BizID != 2 {
		t.Fatalf("%+v", stuck)
	}
	s.Rows(4)
	if n, err := from.Drop(t.Context(), []uint64{stuck[0].ID, math.MaxUint64}, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.Want(1, "behind pending")
	retry := func() {
		t.Helper()
		if n, err := from.Retry(t.Context(), nil, true); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	retry()
	tried(1, 2)
	s.Apply(biztype.Policy{Name: "no.such", Number: 8})
	retry()
	s.Want(2, "x pending, behind pending")
	s.Rows(0)
}

func next(t *testing.T, on Site, s *Shop) {
	var first, second devtest.Log
	stop := on.relay(s, Relaying{Log: first.Logger()})
	first.Await(t, active)
	on.relay(s, Relaying{Log: second.Logger()})
	s.Add(1, "x", tocsin.In(Day))
	s.Want(1, "x pending")
	if lines := second.Lines(active); len(lines) != 0 {
		t.Error("both are active")
	}
	stop()
	s.Add(2, "y", tocsin.In(Day))
	s.Want(2, "y pending")
}

// A relay whose session is gone loses the lock at once, and may get it again.
func killed(t *testing.T, on Site, s *Shop) {
	var log devtest.Log
	on.relay(s, Relaying{Log: log.Logger()})
	log.Await(t, active)
	on.relay(s, Relaying{Log: log.Logger()})
	on.Kill(s)
	s.Add(1, "x", tocsin.In(Day))
	s.Want(1, "x pending")
	if n := len(log.Lines(active)); n != 2 {
		t.Errorf("%d turns, want 2", n)
	}
}

// An outbox was emptied while a row was being moved, and its id was given again.
func deletes(t *testing.T, on Site, s *Shop) {
	s.Add(1, "old", tocsin.In(Day))
	session := s.Session()
	all := []outbox.Range{{First: 0, Last: math.MaxUint64}}
	old, err := session.Read(t.Context(), all, 10, nil)
	if err != nil || len(old) != 1 {
		t.Fatal(old, err)
	}
	on.Empty(s)
	s.Add(1, "new", tocsin.In(Day))
	s.Add(2, "later", tocsin.In(Day))
	rows, err := session.Read(t.Context(), all, 10, nil)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	const form = "2006-01-02 15:04:05.000000" // of the ledger
	later := rows[1].Key
	if later.Created, err = time.Parse(form, later.Created.Format(form)); err != nil {
		t.Fatal(err)
	}
	there, err := session.Present(t.Context(), []outbox.Key{old[0].Key, later})
	if err != nil || there[old[0].Key] || !there[later] || later != rows[1].Key {
		t.Error(there, err)
	}
	if err := session.SetAside(t.Context(), old[0].Key, "x"); err != nil {
		t.Fatal(err)
	}
	if err := session.Delete(t.Context(), []outbox.Key{old[0].Key, rows[1].Key}); err != nil {
		t.Fatal(err)
	}
	if left, err := session.Read(t.Context(), all, 10, nil); err != nil || len(left) != 1 || left[0].Payload != "new" || left[0].LastError != "" {
		t.Errorf("left %+v, %v", left, err)
	}
}
