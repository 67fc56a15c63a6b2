package contest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake keeps tasks in memory. It delivers each when it is due, in a goroutine of
// its own, while it is started.
type fake struct {
	deliver func(string)
	mu      sync.Mutex
	started bool
	waiting []Task
	settled int
	work    sync.WaitGroup
	closed  bool

	skew  time.Duration // added to every due time
	lose  string        // a body that is never delivered, though it is settled
	twice string        // a body that is delivered twice
	extra string        // a body that is delivered and was never inserted
	miss  int           // settled tasks that are not counted
	eager bool          // delivers while paused
}

func (f *fake) Insert(_ context.Context, batch []Task) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, batch...)
	if f.started {
		f.release()
	}
	return nil
}

// release starts what is not far off. The caller holds mu.
func (f *fake) release() {
	for _, t := range f.waiting {
		if ahead := time.Until(t.Due) + f.skew; ahead < time.Minute {
			f.work.Go(func() { f.later(t.Body, ahead) })
		}
	}
	f.waiting = nil
}

func (f *fake) later(body string, ahead time.Duration) {
	time.Sleep(ahead)
	f.mu.Lock()
	f.settled++
	f.mu.Unlock()
	switch {
	case body == f.lose:
		return
	case body == f.twice:
		f.deliver(body)
	}
	f.deliver(body)
	if f.extra != "" {
		f.deliver(f.extra)
	}
}

func (f *fake) Start(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = true
	f.release()
	return nil
}

func (f *fake) Pause(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = f.eager
	return nil
}

func (f *fake) Quiet(context.Context) (bool, error) { f.work.Wait(); return true, nil }

func (f *fake) Settled(context.Context) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled - f.miss, nil
}

func (f *fake) Facts() Facts { return Facts{Version: "fake 1"} }
func (f *fake) Close() error { f.work.Wait(); f.closed = true; return nil }

func (f *fake) open(_ context.Context, setup Setup) (System, error) {
	f.deliver = setup.Deliver
	return f, nil
}

// play has one fake do a small contest.
func play(t *testing.T, f *fake, rates ...float64) (Result, error) {
	t.Helper()
	r, err := Play(t.Context(), []Entry{{Name: "fake", Open: f.open, Batch: 7}}, Options{
		Tasks: 50, Rates: rates, Adding: 200 * time.Millisecond, Rounds: 1, Layout: tocsin.Layout{Databases: 1, Tables: 1},
	})
	if !f.closed {
		t.Error("the system was not closed")
	}
	return r, err
}

func TestPlayMeasuresWhatWasDone(t *testing.T) {
	t.Parallel()
	r, err := play(t, &fake{twice: Body(3), skew: -2 * time.Second}, 50)
	if err != nil {
		t.Fatal(err)
	}
	m := r.Systems[0].Median
	if m.Delivered != 10+50 || m.Duplicates != 1 || m.Drain <= 0 || m.Insert <= 0 {
		t.Errorf("%+v", m)
	}
	l := m.Lateness[0]
	if l.Tasks != 10 || l.Early != 10 || l.P50 > -1900 || l.P50 < -2100 || l.Max < l.P99 {
		t.Errorf("tasks were delivered two seconds early, and lateness is %+v", l)
	}
	if f := r.Systems[0].Facts; f.Version != "fake 1" || r.Systems[0].Ratio != nil {
		t.Errorf("%+v", r.Systems[0])
	}
}

func TestPlayGivesNoFigureForWorkThatWasNotDone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    *fake
		says string
	}{
		"the store counts fewer":          {&fake{miss: 1}, "its store has 49 tasks done, and 50 were delivered"},
		"a delivery of no task":           {&fake{extra: Body(7_000_000)}, "50 deliveries of what is no task"},
		"a delivery of nonsense":          {&fake{extra: "?"}, "no task of this work"},
		"deliveries that were not to be":  {&fake{eager: true}, "delivered before deliveries were to begin"},
		"a delivery of an earlier number": {&fake{extra: Body(0)}, "no task of this work"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := play(t, c.f); err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "fake: ") {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func TestPlayWaitsForATaskThatIsLost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	f := &fake{lose: Body(60)}
	_, err := Play(ctx, []Entry{{Name: "fake", Open: f.open}}, Options{
		Tasks: 50, Adding: time.Second, Rounds: 1, Layout: tocsin.Layout{Databases: 1, Tables: 1},
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a lost task ends with %v", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := Options{Tasks: 1, Rounds: 1, Adding: time.Second, Rates: []float64{1}, Layout: tocsin.Layout{Databases: 1, Tables: 1}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for says, spoil := range map[string]func(*Options){
		"0 tasks":   func(o *Options) { o.Tasks = 0 },
		"-1 rounds": func(o *Options) { o.Rounds = -1 },
		"adding 0s": func(o *Options) { o.Adding = 0 },
		"rate -1":   func(o *Options) { o.Rates = []float64{1, -1} },
		"layout":    func(o *Options) { o.Layout.Tables = 0 },
	} {
		o := good
		spoil(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
