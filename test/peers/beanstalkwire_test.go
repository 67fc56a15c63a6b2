package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/test/peers/contest"
)

// connect dials a beanstalkd of the test's own.
func connect(t *testing.T) *wire {
	t.Helper()
	s, err := devserver.StartBeanstalkd(t.Context(), beanstalkSync)
	if err != nil {
		t.Fatal(err)
	}
	w, err := dial(t.Context(), s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.close()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestWireTakesWhatItPut(t *testing.T) {
	t.Parallel()
	w := connect(t)
	bodies := []string{"one", "two words", strings.Repeat("long", 5000)}
	var batch []contest.Task
	for _, body := range bodies {
		batch = append(batch, contest.Task{Body: body})
	}
	if err := w.put(append(batch, contest.Task{Body: "far", Due: time.Now().Add(time.Hour)})); err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for _, body := range append(bodies, "") { // "": the wait for one more ends without
		if err := w.ask(last); err != nil {
			t.Fatal(err)
		}
		if last != 0 {
			if err := w.deleted(); err != nil {
				t.Fatal(err)
			}
		}
		j, err := w.reserved()
		if err != nil || j.body != body || j.id == 0 != (body == "") {
			t.Fatalf("reserved %d %.20q, %v; want %.20q", j.id, j.body, err, body)
		}
		last = j.id
	}
}

func TestWireRefusesUnexpectedReplies(t *testing.T) {
	t.Parallel()
	w := connect(t)
	if err := w.askDelete(999); err != nil {
		t.Fatal(err)
	}
	if err := w.deleted(); err == nil || err.Error() != `delete: beanstalkd answers "NOT_FOUND"` {
		t.Errorf("%v", err)
	}
	if err := w.put([]contest.Task{{Body: strings.Repeat("x", 70_000)}}); err == nil || !strings.Contains(err.Error(), "JOB_TOO_BIG") {
		t.Errorf("%v", err)
	}
}

func TestDelaysAreWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int{
		-time.Second: 0, 0: 0, 6*time.Second - 3*time.Millisecond: 6, 6 * time.Second: 6,
	} {
		if got := delaySeconds(d); got != want {
			t.Errorf("%s: %d, want %d", d, got, want)
		}
	}
}

func TestSettledWantsEveryFigure(t *testing.T) {
	t.Parallel()
	stats := map[string]string{
		"total-jobs": "10", "current-jobs-ready": "1", "current-jobs-reserved": "2", "current-jobs-delayed": "3", "current-jobs-buried": "0",
	}
	if n, err := settled(stats); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	delete(stats, "current-jobs-buried")
	if _, err := settled(stats); err == nil {
		t.Error("a figure is missing, and there is no error")
	}
}
