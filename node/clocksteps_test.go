package node_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/quantile"
)

// There are three servers. One clock is stepped back and forth, two are slewed by 500
// ppm. No task starts before its action time by its server's clock. A row that is
// held while its clock is stepped back was due by the clock as it was before: such
// starts are counted apart.
func TestNothingIsEarlyWhileClocksAreSteppedAndSlewed(t *testing.T) {
	t.Parallel()
	play := stepPlay{rate: 100, length: 12 * time.Second, largest: 2 * time.Second}
	if minutes, err := strconv.Atoi(os.Getenv("TOCSIN_CLOCK_MINUTES")); err == nil {
		play = stepPlay{rate: 1000, length: time.Duration(minutes) * time.Minute, largest: 2 * time.Minute}
	}
	play.offset = filepath.Join(t.TempDir(), "offset")
	play.set(t, 0)
	p := play.place(t)
	h := closing(func(_ context.Context, task *tocsin.Task[order]) error {
		play.check(t, p.cfg.Layout.TableOf(task.BizID)/p.cfg.Layout.Tables, task.ActionTime)
		return nil
	})
	_, stop := run(t, p.config("orders"), h)
	var watch sync.WaitGroup
	watching, unwatch := context.WithCancel(t.Context())
	watch.Go(func() { play.watch(watching) })
	ctx, cancel := context.WithTimeout(t.Context(), play.length)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { play.step(ctx, t) })
	added := play.addAll(ctx, t, p)
	wg.Wait()
	stop()
	unwatch()
	watch.Wait()
	over := play.judge(t)
	t.Logf("%d added, %d started, %d steps; early %d, of rows held over a step back %d; latest readings p99 %v after the action time",
		added, len(play.late), len(play.backs), len(play.early)-over, over, play.p99())
	if len(play.early) > over || len(play.late) == 0 {
		t.Errorf("%d of %d started early", len(play.early)-over, len(play.late))
	}
}

// overStep is how far from a step back a start may lie and still be that of a row
// held over the step, or started by a reading of the clock as it was, which counts for
// 50 ms if later ones were slower. The time in which this process stood still does not
// count.
const overStep = heldAtMost + 50*time.Millisecond

// stepPlay holds the servers' clocks and what the test observes of them.
type stepPlay struct {
	rate    int           // tasks a second
	length  time.Duration // of adding
	largest time.Duration // step
	offset  string        // the file that libfaketime reads
	pools   []*sql.DB     // by database number

	stalls []span // in which this process stood still; watch's until it has ended

	mu    sync.Mutex
	backs []span // the steps back
	late  []time.Duration
	early []begun // those before their time
}

// begun is a start that was before its time by its server's clock.
type begun struct {
	server int
	by     time.Duration
	read   span // when the clock was read
}

// span is the time of an event, by this machine's clock.
type span struct{ from, to time.Time }

// place makes a cluster on the three servers.
func (s *stepPlay) place(t *testing.T) place {
	p := newPlace(t, closePolicy())
	_ = p.client.Close()
	p.cfg.Layout.Databases, p.cfg.Servers = 3, nil
	for i, clock := range []string{"FAKETIME_TIMESTAMP_FILE=" + s.offset, "FAKETIME=+0 x1.0005", "FAKETIME=+0 x0.9995"} {
		m := devtest.ClockOf(t, clock)
		p.cfg.Servers = append(p.cfg.Servers, tocsin.Server{Name: fmt.Sprint("db", i), DSN: m.DSN(), Databases: []int{i}})
		db := openDB(t, m.DSN())
		db.SetMaxIdleConns(8)
		s.pools = append(s.pools, db)
	}
	return p.made(t, closePolicy())
}

// set moves the stepped clock.
func (s *stepPlay) set(t *testing.T, offset time.Duration) {
	text := fmt.Sprintf("%+.3f\n", offset.Seconds())
	if err := os.WriteFile(s.offset+".new", []byte(text), 0o600); err != nil {
		t.Error(err)
	}
	if err := os.Rename(s.offset+".new", s.offset); err != nil {
		t.Error(err)
	}
}

// step moves the stepped clock there and back again, by 1 ms up to the largest step.
func (s *stepPlay) step(ctx context.Context, t *testing.T) {
	steps := []time.Duration{time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, time.Second, 10 * time.Second, 2 * time.Minute}
	steps = slices.DeleteFunc(steps, func(d time.Duration) bool { return d > s.largest })
	var at time.Duration
	for tick := time.NewTicker(2 * time.Second); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			tick.Stop()
			continue
		case <-tick.C:
		}
		s.look(t, at)
		was := at
		if at = 0; was == 0 {
			at = steps[rand.IntN(len(steps))] * time.Duration(1-2*rand.IntN(2))
		}
		s.move(t, was, at)
	}
	s.set(t, 0)
}

// move sets the stepped clock and remembers a step back, until the server has answered a
// question that was asked after it.
func (s *stepPlay) move(t *testing.T, was, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := span{from: time.Now()}
	s.set(t, at)
	_ = clockOf(t, s.pools[0]) // from then on the node can know
	if moved.to = time.Now(); at < was {
		s.backs = append(s.backs, moved)
	}
}

// look fails the test if the stepped clock differs from its setting.
func (s *stepPlay) look(t *testing.T, at time.Duration) {
	asked := time.Now()
	is := clockOf(t, s.pools[0])
	if most, least := is.Sub(asked), time.Until(is); most < at-500*time.Millisecond || least > at+500*time.Millisecond {
		t.Errorf("the clock is %v to %v ahead, it was set to %v", least, most, at)
	}
}

// check reads the clock of a task's server right after its start.
func (s *stepPlay) check(t *testing.T, server int, action time.Time) {
	read := span{from: time.Now()}
	lead := clockOf(t, s.pools[server]).Sub(action)
	read.to = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late = append(s.late, lead); lead < 0 {
		s.early = append(s.early, begun{server, -lead, read})
	}
}

// judge returns how many of the early starts were of rows that were held over a step
// back, and fails the test for each of the others.
func (s *stepPlay) judge(t *testing.T) (over int) {
	for _, one := range s.early {
		held := one.server == 0 && slices.ContainsFunc(s.backs, func(back span) bool {
			return one.read.to.After(back.from) && one.read.from.Sub(back.to)-s.stood(back.to, one.read.from) < overStep
		})
		if held {
			over++
			continue
		}
		t.Errorf("server %d: started %v before its time by the server's clock", one.server, one.by)
	}
	return over
}

// watch notes until ctx ends when this process gets no time to run.
func (s *stepPlay) watch(ctx context.Context) {
	const nap = 5 * time.Millisecond
	for last := time.Now(); ctx.Err() == nil; {
		time.Sleep(nap)
		now := time.Now()
		if now.Sub(last) > 2*nap {
			s.stalls = append(s.stalls, span{last.Add(nap), now})
		}
		last = now
	}
}

// stood is for how long of a time this process stood still.
func (s *stepPlay) stood(from, to time.Time) (sum time.Duration) {
	for _, stall := range s.stalls {
		begin, end := stall.from, stall.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(end.Sub(begin), 0)
	}
	return sum
}

// addAll adds tasks that are due within two seconds, until ctx ends.
func (s *stepPlay) addAll(ctx context.Context, t *testing.T, p place) (added int) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; {
		select {
		case <-ctx.Done():
			return added
		case <-tick.C:
		}
		tasks := make([]tocsin.NewTask, max(int(time.Since(begin).Seconds()*float64(s.rate))-added, 0))
		for i := range tasks {
			added++
			tasks[i] = orderClose.New(uint64(added), order{}, tocsin.In(rand.N(2*time.Second)))
		}
		if _, err := p.client.AddMany(ctx, tasks); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
}

func (s *stepPlay) p99() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.late)
	return quantile.Of(s.late, 0.99)
}

// clockOf asks a server for its time, to the microsecond.
func clockOf(t *testing.T, db *sql.DB) time.Time {
	var text string
	if err := db.QueryRow("SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)").Scan(&text); err != nil {
		t.Error(err)
		return time.Time{}
	}
	at, err := time.Parse("2006-01-02 15:04:05.000000", text)
	if err != nil {
		t.Error(err)
	}
	return at
}

func TestAProcessInAZoneWithDaylightSavingDeliversNothingEarly(t *testing.T) {
	t.Parallel()
	p := newPlace(t, biztype.Policy{Name: "zone.task", Number: 1, Group: "zones"})
	lines := spawn(t, child{p.cfg, p.etcd.Endpoints, "zones", "zone.task"}, "TZ=Australia/Lord_Howe")
	want := map[string]bool{}
	for bizID := range uint64(20) {
		add(t, p, tocsin.Define[string]("zone.task").New(bizID+1, "", tocsin.At(time.Now().Add(time.Second+33333*time.Microsecond))))
		want[fmt.Sprint("zone.task ", bizID+1)] = true
	}
	expectLines(t, lines, want) // an early delivery prints another line
}
