package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/webhook"
)

// From the policy to the callback, and back to the tasks by what it says.
func TestADeadTaskRaisesAnAlarmWhoseCommandsHelp(t *testing.T) {
	t.Parallel()
	got := make(chan webhook.Alarm, 10)
	var mended atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Type string
			Data struct{ Attribute string }
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		switch {
		case body.Type == "ops.alarm":
			var alarm webhook.Alarm
			if err := json.Unmarshal([]byte(body.Data.Attribute), &alarm); err != nil {
				t.Error(err)
			}
			got <- alarm
		case !mended.Load():
			http.Error(w, "no coupons", http.StatusGone)
		}
	}))
	t.Cleanup(receiver.Close)
	s := bareSite(t)
	s.applyDDL()
	policies := fmt.Sprintf(`biz_types:
  - name: coupon.remind
    number: 2
    webhook: {url: %[1]s, allow: [127.0.0.0/8]}
    alarm: {to: ops.alarm, on: [dead], at_most_every: 1m}
  - name: ops.alarm
    number: 3
    webhook: {url: %[1]s, allow: [127.0.0.0/8]}
`, receiver.URL)
	s.write("bad.yaml", policies+"    alarm: {to: coupon.remind}\n")
	s.run("biz", "apply", "bad.yaml").refused(t, exitFailed, "bad.yaml:5: biz type coupon.remind: its alarm is to ops.alarm, which has an alarm too: a biz type that delivers alarms has none")
	s.write("biz.yaml", policies)
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("biz", "show", "coupon.remind").says(t, "alarm:", "to: ops.alarm", "at_most_every: 1m0s")
	s.serve("node")
	id := s.adding("coupon.remind", 7, "0s")
	var alarm webhook.Alarm
	select {
	case alarm = <-got:
	case <-time.After(upWithin):
		t.Fatal("waited too long for the alarm")
	}
	if alarm.Kind != "dead" || alarm.BizType != "coupon.remind" || alarm.Count != 1 || !slices.Equal(alarm.JobIDs, []tocsin.JobID{id}) || !strings.Contains(alarm.LastError, "410 Gone: no coupons") {
		t.Errorf("got %+v", alarm)
	}
	s.run("task", "list", "--biz-id", "2").says(t, "ops.alarm")
	mended.Store(true)
	for i, want := range []string{id.String(), "1 dead tasks redriven"} {
		s.run(strings.Fields(alarm.Do[i])[1:]...).says(t, want)
	}
	s.waitFor("the task is done", func() bool { return s.notDone() == 0 })
}
