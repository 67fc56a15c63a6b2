package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/why"
)

// awaySite has a biz type whose receiver is down, and a function that starts the receiver.
func awaySite(t *testing.T) (s *site, c *callbacks, back func()) {
	t.Helper()
	s, c = callbackSite(t)
	c.Close()
	return s, c, func() {
		l, err := net.Listen("tcp", c.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		again := httptest.NewUnstartedServer(c)
		_ = again.Listener.Close()
		again.Listener = l
		again.Start()
		t.Cleanup(again.Close)
	}
}

// metric reads one value from the page of a node.
func (s *site) metric(page, name string) float64 {
	s.t.Helper()
	answer, err := http.Get("http://" + page + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return value
}

// lane reads what a node says of the biz type.
func (s *site) lane(page string) (l dispatcher.LaneReport) {
	s.t.Helper()
	r, err := s.report(page)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range r.Lanes {
		if l.BizType == "coupon.remind" {
			return l
		}
	}
	return l
}

const notReached = `tocsin_dispatcher_not_reached_total{biz_type="coupon.remind"}`

// While an endpoint is down its tasks wait, use no attempt, and are tried one at a time; once it is back, all come once.
func TestTasksWaitWithoutAnAttemptWhileTheirEndpointIsDown(t *testing.T) {
	t.Parallel()
	const tasks = 2000
	s, c, back := awaySite(t)
	s.fill(tasks, 0)
	page := devtest.FreeAddress()
	began := time.Now()
	s.serve("owner", "--listen", page)
	s.ownedBy(map[string]int{"owner": 8})
	s.waitFor("the node finds that it can't reach it", func() bool { return s.lane(page).State == dispatcher.Away })
	id := s.nodes()[0].ID

	last := s.adding("coupon.remind", tasks+1, "0s")
	s.until(last, why.TargetAway, nil, "node "+id+" can't reach the target of coupon.remind since 20", "connection refused", "it tries one task", "and the others wait, without an attempt")
	s.run("task", "why", last.String()).says(t, "\ntarget_away: node "+id)
	s.run("top", "--once", "--status", page).says(t, "away")
	s.run("biz", "show", "coupon.remind").says(t, "# "+id+": away, ", " tasks wait, since 20", ", next try 20", "connection refused")
	s.waitFor("the fourth probe has failed", func() bool {
		l := s.lane(page)
		return l.State == dispatcher.Away && l.NextTry.Sub(l.AwaySince) > 14*time.Second
	})
	tried := s.metric(page, notReached)
	if most := float64(20 + slots + 6); tried < 20 || tried > most {
		t.Errorf("%v deliveries were tried, want 20 to %v", tried, most)
	}
	if state := s.metric(page, `tocsin_dispatcher_lane_state{biz_type="coupon.remind"}`); state != 4 {
		t.Errorf("the state of the lane is %v", state)
	}
	if n := s.counted("status = 0 AND attempts + crashes = 0"); n != tasks+1 {
		t.Errorf("%d of %d tasks wait without an attempt", n, tasks+1)
	}
	down := time.Since(began)
	back()
	returned := time.Now()
	s.waitFor("all tasks are done", func() bool { return s.notDone() == 0 })
	t.Logf("down for %s: %v deliveries tried; back: all done after %s", down.Round(time.Second), s.metric(page, notReached), time.Since(returned).Round(time.Millisecond))
	if seen, again, _ := c.counts(); seen != tasks+1 || again != 0 {
		t.Errorf("%d of %d tasks came, %d of them more than once", seen, tasks+1, again)
	}
	if n := s.counted("attempts + crashes > 0"); n != 0 {
		t.Errorf("%d tasks have an attempt", n)
	}
	if l := s.lane(page); l.State != dispatcher.Open || !l.AwaySince.IsZero() {
		t.Errorf("afterwards: %+v", l)
	}
}

// A sweep ends soon, leaves the tasks as they were, and says why.
func TestASweepLeavesTasksWhoseEndpointIsDown(t *testing.T) {
	t.Parallel()
	for name, tasks := range map[string]int{"few": 5, "many": 6000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c, back := awaySite(t)
			s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn())))
			s.overdue("coupon.remind", tasks)
			r := s.run("sweep", "--once", "--timeout", "5m", "--json")
			got := decodeText[sweptJSON](t, r.stdout)
			if left := fmt.Sprintf("tocsin: overdue tasks are left: coupon.remind (target away): %d\n", tasks); r.code != exitFailed ||
				!strings.HasSuffix(r.stderr, left) || !strings.Contains(r.stderr, "connection refused") {
				t.Errorf("exit code %d, stderr:\n%s", r.code, r.stderr)
			}
			if got.Overdue != tasks || got.Left["coupon.remind (target away)"] != tasks || got.Delivered+got.Unread+got.CutOff != 0 || got.TimedOut {
				t.Errorf("%s", r.stdout)
			}
			if n := s.counted("status = 0 AND attempts + crashes = 0 AND action_time < UTC_TIMESTAMP() - INTERVAL 9 MINUTE"); n != tasks {
				t.Errorf("%d of %d tasks wait as they were", n, tasks)
			}
			back()
			s.run("sweep", "--once", "--timeout", "0s").endedWith(t, fmt.Sprintf("%d delivered", tasks))
			if seen, again, _ := c.counts(); seen != tasks || again != 0 {
				t.Errorf("%d of %d tasks came, %d of them more than once", seen, tasks, again)
			}
		})
	}
}
