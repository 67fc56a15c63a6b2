package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// fakeServers are two servers with two databases each.
type fakeServers struct {
	mu    sync.Mutex
	found Survey // of server 0
	err   error
	hangs bool
}

func (*fakeServers) Servers() []string            { return []string{"db1", "db2"} }
func (*fakeServers) DatabasesOf(server int) []int { return []int{2 * server, 2*server + 1} }
func (*fakeServers) Layout() tocsin.Layout        { return tocsin.Layout{Databases: 4, Tables: 2} }

// Waiting is not asked of a fake: what hangs is said by Survey.
func (*fakeServers) Waiting(int) time.Duration { return 0 }

func (f *fakeServers) Survey(ctx context.Context, server int) (Survey, error) {
	f.mu.Lock()
	found, err, hangs := f.found, f.err, f.hangs
	f.mu.Unlock()
	switch {
	case server > 0:
		return Survey{}, nil
	case hangs:
		<-ctx.Done()
		return Survey{}, ctx.Err()
	}
	return found, err
}

// is sets what server 0 answers.
func (f *fakeServers) is(found Survey, err error, hangs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found, f.err, f.hangs = found, err, hangs
}

// watched is a Health that runs in a bubble.
type watched struct {
	*fakeServers
	*Health
	log  devtest.Log
	read int // lines of it

	mu      sync.Mutex
	reports []Databases
}

// told returns the states reported so far.
func (w *watched) told() []Databases {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reports)
}

func watch(t *testing.T, first Survey, err error) *watched {
	w := &watched{fakeServers: &fakeServers{found: first, err: err}}
	w.Health = NewHealth(HealthConfig{
		Servers: w.fakeServers, Logger: w.log.Logger(),
		Changed: func(s Databases) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reports = append(w.reports, s)
		},
	})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	t.Cleanup(func() { end(); <-ended })
	synctest.Wait()
	return w
}

// after lets time pass, and returns the new lines' levels and messages.
func (w *watched) after(t *testing.T, d time.Duration) (lines []string) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	for _, line := range w.log.Lines()[w.read:] {
		lines = append(lines, fmt.Sprintf("%s %s", line["level"], line["message"]))
	}
	w.read += len(lines)
	return lines
}

func wantLines(t *testing.T, got []string, parts ...string) {
	t.Helper()
	ok := len(got) == len(parts)
	for i := range min(len(got), len(parts)) {
		ok = ok && strings.Contains(got[i], parts[i])
	}
	if !ok {
		t.Errorf("logged %q, want %q", got, parts)
	}
}

var errForeign = errors.New(`cluster of the config is "a", that of toc_1 on db1 is "b"`)

func TestAWrongDatabaseIsToldAtOnceAndOnceAMinuteAndAgainWhenItIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, Survey{}, nil)
		wantLines(t, w.after(t, time.Minute))
		if len(w.told()) != 0 || len(w.State().Sick()) != 0 {
			t.Errorf("all is well, but %v is reported, and known is %v", w.told(), w.State())
		}

		w.is(Survey{Unusable: map[int]error{1: errForeign}}, nil, false)
		wantLines(t, w.after(t, lookEvery), "error databases can't be used")
		if len(w.told()) != 1 || !slices.Equal(w.State().Unusable(), []int{1}) || !slices.Equal(w.State().Wrong(), []int{1}) {
			t.Errorf("reported %v, known %v", w.told(), w.State())
		}
		want := Database{Number: 1, Name: "toc_1", Server: "db1", Is: Wrong, Why: errForeign.Error()}
		if sick := w.State().Sick(); !slices.Equal(sick, []Database{want}) {
			t.Errorf("sick %+v, want %+v", sick, want)
		}
		for _, d := range w.State() {
			if got := testutil.ToFloat64(w.Health.metrics.usable.WithLabelValues(d.Server, d.Name)); (got == 1) != (d.Number != 1) {
				t.Errorf("exported %v of %s", got, d.Name)
			}
		}
		wantLines(t, w.after(t, 3*time.Minute), "can't be used", "can't be used", "can't be used")

		w.is(Survey{}, nil, false)
		wantLines(t, w.after(t, lookEvery), "info databases can be used again")
		if len(w.told()) != 2 || len(w.State().Unusable()) != 0 {
			t.Errorf("reported %v, known %v", w.told(), w.State())
		}
	})
}

func TestAnotherReasonIsToldAtOnceAndAReasonThatComesAndGoesIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errGone := errors.New("toc_1 on db1 has no layout row")
		w := watch(t, Survey{Unusable: map[int]error{1: errForeign}}, nil)
		wantLines(t, w.after(t, 0), "can't be used")
		w.is(Survey{}, nil, false)
		wantLines(t, w.after(t, lookEvery), "can be used again")
		w.is(Survey{Unusable: map[int]error{1: errGone}}, nil, false)
		wantLines(t, w.after(t, lookEvery), "can't be used")
		for range 5 {
			w.is(Survey{}, nil, false)
			w.after(t, lookEvery)
			w.is(Survey{Unusable: map[int]error{1: errForeign}}, nil, false)
			wantLines(t, w.after(t, lookEvery))
		}
	})
}

func TestAServerIsUnreachableWhenTwoLooksFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, Survey{}, nil)
		w.is(Survey{}, nil, true) // it hangs
		wantLines(t, w.after(t, lookEvery+lookTimeout), "warn server does not answer")
		if len(w.told()) != 0 {
			t.Errorf("reported %v after one look", w.told())
		}
		wantLines(t, w.after(t, lookEvery+lookTimeout), "error databases can't be used")
		if !slices.Equal(w.State().Unusable(), []int{0, 1}) || len(w.State().Wrong()) != 0 {
			t.Errorf("known %v, want 0 and 1 unreachable", w.State())
		}
		if why := w.State()[0].Why; why != "server db1 does not answer within 4s" {
			t.Errorf("why: %s", why)
		}
		w.is(Survey{}, nil, false)
		wantLines(t, w.after(t, lookEvery+lookTimeout), "info server answers again", "info databases can be used again")
		w.is(Survey{}, fmt.Errorf("read the clock: %w", io.EOF), false)
		w.after(t, lookEvery)
		w.is(Survey{}, nil, false)
		w.after(t, lookEvery)
		if len(w.told()) != 2 {
			t.Errorf("reported %v: one look that fails is no loss", w.told())
		}
	})
}

func TestAServerThatNeverAnsweredIsUnreachableAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, Survey{}, io.EOF)
		wantLines(t, w.after(t, 0), "server does not answer", "databases can't be used")
		if !slices.Equal(w.State().Unusable(), []int{0, 1}) {
			t.Errorf("known %v", w.State())
		}
	})
}

func TestAServerThatCanNotBeAskedIsToldInItsWordsWithItsAddresses(t *testing.T) {
	readOnly := fmt.Errorf("read the clock: %w", driver.ErrBadConn) // what becomes of 1290
	at := func(why string, writes bool) Survey {
		return Survey{Addresses: []mysql.Sighting{{Address: "a:1", Used: true, Writes: writes, Why: why}}}
	}
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, Survey{Addresses: []mysql.Sighting{{Address: "a:1", Why: "is read-only"}}}, readOnly)
		wantLines(t, w.after(t, 2*lookEvery), "warn server takes no writes", "databases can't be used")
		w.is(at("takes writes, in use", true), nil, false)
		wantLines(t, w.after(t, lookEvery), "server answers again", "this address of the server takes writes and is used", "can be used again")
	})
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, at("takes writes, in use", true), nil)
		w.after(t, 0)
		w.is(at("no answer within 2s", false), readOnly, false)
		wantLines(t, w.after(t, lookEvery), "warn server takes no writes")
		if got := w.Health.Servers()[0].Addresses[0]; got.Writes || got.Why != "no answer within 2s" {
			t.Errorf("as of its last answer: %+v", got)
		}
	})
}

func TestADatabaseThatLacksSomethingIsUsedAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, Survey{Flawed: map[int]error{0: errors.New("no owner")}, ReadOnly: "read_only is on"}, nil)
		wantLines(t, w.after(t, 0), "warn databases are used, but")
		sick := w.State().Sick()
		if len(w.State().Unusable()) != 0 || len(sick) != 2 || !strings.Contains(sick[0].Why, "no owner") || !strings.Contains(sick[1].Why, "read-only") {
			t.Errorf("sick %+v", sick)
		}
	})
}

func TestClocksSayWhatChanges(t *testing.T) {
	ahead, slow := Offset{Ahead: 2 * time.Minute}, Offset{Ahead: 1500 * time.Millisecond, RoundTrip: time.Second}
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, Survey{Offset: ahead}, nil)
		wantLines(t, w.after(t, time.Minute), "far from this machine's")
		w.is(Survey{Offset: slow}, nil, false) // the round trip may explain the offset
		wantLines(t, w.after(t, time.Minute), "near this machine's again")
		w.is(Survey{Offset: Offset{Ahead: -2 * time.Minute}}, nil, false)
		wantLines(t, w.after(t, lookEvery), "far from this machine's")
		if got := testutil.ToFloat64(w.Health.metrics.offset.WithLabelValues("db1")); got != -120 {
			t.Errorf("an offset of %v is exported, want -120", got)
		}
	})
}

func TestAHangBeginsAndEndsOnce(t *testing.T) {
	t.Parallel()
	const hangs, over = "server hangs: a statement has no answer", "server hangs no more"
	for name, c := range map[string]struct {
		waiting []time.Duration // one for each look
		says    []string
	}{
		"a statement that waits for a lock is no hang": {[]time.Duration{time.Second, 0, 1100 * time.Millisecond, 0}, nil},
		"a hang":                           {[]time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, []string{hangs}},
		"a hang that ends":                 {[]time.Duration{2 * time.Second, 3 * time.Second, 0, 0, 0, 0}, []string{hangs, over}},
		"the next statement hangs as well": {[]time.Duration{29 * time.Second, 0, time.Second, 2 * time.Second}, []string{hangs}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log devtest.Log
			h := NewHealth(HealthConfig{Servers: &fakeServers{}, Logger: log.Logger()})
			now, is := time.Now(), hang{}
			for _, waiting := range c.waiting {
				is = h.lookForHang(0, is, waiting, now)
				now = now.Add(hangOver / 3)
			}
			var says []string
			for _, line := range log.Lines() {
				says = append(says, fmt.Sprint(line["message"]))
			}
			if !slices.Equal(says, c.says) {
				t.Errorf("logged %v, want %q", log.Lines(), c.says)
			}
		})
	}
}
