package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// slowSite has callbacks that answer when answer is called, or the test ends. begun
// tells when one has begun.
func slowSite(t *testing.T) (s *site, begun <-chan struct{}, answer func()) {
	t.Helper()
	began, end := make(chan struct{}, 100), make(chan struct{})
	answer = sync.OnceFunc(func() { close(end) })
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(answer)
	s = bareSite(t)
	s.applyDDL()
	s.write("biz.yaml", fmt.Sprintf(`biz_types:
  - name: coupon.remind
    number: 2
    timeout: 9m
    webhook:
      url: %s
      allow: [127.0.0.0/8]
`, slow.URL))
	s.run("biz", "apply", "biz.yaml").ok(t)
	return s, began, answer
}

// inHand is how many deliveries a node has when it is stopped, over all its tables.
const inHand = 16

// stopInDelivery stops a node that has deliveries in hand, and says when.
func stopInDelivery(s *site, begun <-chan struct{}, more ...string) (n *serving, at time.Time) {
	s.t.Helper()
	n = s.serve("leaver", more...)
	s.ownedBy(map[string]int{"leaver": 8})
	s.fill(inHand, time.Millisecond)
	s.waitFor("all deliveries have begun", func() bool { return len(begun) == inHand })
	for range inHand {
		<-begun
	}
	s.serve("heir")
	s.ownedBy(map[string]int{"leaver": 4, "heir": 4})
	at = time.Now()
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	return n, at
}

func TestAStopReleasesTheTablesAtOnceAndSettlesALongCallback(t *testing.T) {
	t.Parallel()
	s, begun, answer := slowSite(t)
	s.write("patient.yaml", s.yaml(s.layout, s.dsn())+"node:\n  drain_timeout: 5m\n")
	n, at := stopInDelivery(s, begun, "--config", "patient.yaml")
	s.ownedBy(map[string]int{"heir": 8})
	released := time.Since(at)
	answer()
	if err := n.Wait(); err != nil {
		t.Errorf("exit after SIGTERM: %v", err)
	}
	ended := time.Since(at)
	t.Logf("all tables had another owner after %.2f s, the process ended after %.1f s", released.Seconds(), ended.Seconds())
	if released > time.Minute || ended > 4*time.Minute || s.notDone() != 0 || len(begun) != 0 {
		t.Errorf("%d tasks not done, %d second deliveries", s.notDone(), len(begun))
	}
	for _, part := range []string{`"in_delivery":16`, "all tables are given up", `"left_in_delivery":0`} {
		if !strings.Contains(n.log.String(), part) {
			t.Errorf("the log lacks %s", part)
		}
	}
}

func TestAStopCutsOffWhatTakesLongerThanTheDrainTimeout(t *testing.T) {
	t.Parallel()
	s, begun, _ := slowSite(t)
	s.write("hasty.yaml", s.yaml(s.layout, s.dsn())+"node:\n  drain_timeout: 2s\n")
	n, at := stopInDelivery(s, begun, "--config", "hasty.yaml")
	if err := n.Wait(); err != nil {
		t.Errorf("exit after SIGTERM: %v", err)
	}
	if ended := time.Since(at); ended > time.Minute {
		t.Errorf("it took %s to end", ended)
	}
	if line := "the drain time-out is over: deliveries in hand are cut off"; strings.Count(n.log.String(), line) != 1 {
		t.Errorf("the log lacks %q", line)
	}
	select {
	case <-begun:
	case <-time.After(runWithin):
		t.Error("what was cut off is not delivered again")
	}
}

func TestADrainTimeoutOutOfBoundsIsRefused(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.write("bad.yaml", s.yaml(s.layout, s.dsn())+"node:\n  drain_timeout: 2h\n")
	s.run("serve", "--config", "bad.yaml").refused(t, exitFailed, "node.drain_timeout 2h0m0s: use 1s to 1h0m0s")
}
