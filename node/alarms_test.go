package node_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/webhook"
)

var opsAlarm = tocsin.Define[webhook.Alarm]("ops.alarm")

// alarmed are a biz type that has an alarm, and the one that delivers it.
func alarmed(alarm biztype.Policy) []biztype.Policy {
	p := closePolicy()
	p.Attempts, p.Concurrency, p.Timeout, p.Alarm = 1, 200, biztype.Duration(30*time.Second), &biztype.Alarm{To: "ops.alarm"}
	alarm.Name, alarm.Number = "ops.alarm", 9
	return []biztype.Policy{p, alarm}
}

// onDuty serves a receiver of alarms.
func onDuty(t *testing.T) (url string, got chan webhook.Alarm) {
	t.Helper()
	got = make(chan webhook.Alarm, 100)
	r, err := webhook.New(webhook.Config{Unsigned: true}, func(_ context.Context, task webhook.Task) error {
		alarm, err := webhook.AlarmOf(task)
		got <- alarm
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return s.URL, got
}

// alarms returns the tasks that are alarms about order.close.
func (p place) alarms(t *testing.T) []tocsin.Info {
	t.Helper()
	infos, err := p.client.List(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(infos, func(i tocsin.Info) bool { return i.BizType != "ops.alarm" })
}

// Who settles a task as dead and is killed before the alarm is added has told nobody.
func TestTheAlarmOfAProcessThatWasKilledComesLater(t *testing.T) {
	t.Parallel()
	url, got := onDuty(t)
	p := newPlace(t, alarmed(biztype.Policy{Webhook: &biztype.Webhook{URL: url, Allow: []string{"127.0.0.0/8"}}})...)
	text, err := json.Marshal(child{p.cfg, p.etcd.Endpoints, "orders", "order.close"})
	if err != nil {
		t.Fatal(err)
	}
	killed := exec.Command(os.Args[0])
	killed.Env = append(killed.Environ(), childEnv+"="+string(text), childBuries+"=1")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	id := add(t, p, orderClose.New(42, order{}, tocsin.In(0)))
	await(t, p, id, "the task to be dead", withStatus(tocsin.Dead))
	_ = killed.Process.Kill()
	_ = killed.Wait() // it was killed
	if all := p.alarms(t); len(all) != 0 {
		t.Fatalf("it has added the alarm before: %+v", all)
	}
	run(t, p.config("orders"), closing(closes))
	run(t, p.config(""), nil)
	if alarm := receive(t, got, "the alarm"); alarm.Count != 1 || !slices.Equal(alarm.JobIDs, []tocsin.JobID{id}) || alarm.AtLeast {
		t.Errorf("got %+v", alarm)
	}
}

// Two sweeps: the first buries a task itself, the second finds one that a crash has buried.
func TestASweepRaisesAlarms(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(broken.Close)
	policies := alarmed(biztype.Policy{Group: "ops"})
	policies[0].Group, policies[0].Webhook = "", &biztype.Webhook{URL: broken.URL, Allow: []string{"127.0.0.0/8"}}
	p := newPlace(t, policies...)
	sweep := func() {
		t.Helper()
		s := newSweeper(t, p.sweepConfig(), nil)
		if _, err := s.DryRun(t.Context()); err != nil {
			t.Fatal(err)
		}
		if result, err := s.Sweep(t.Context()); err != nil || result.Upkeep["alarms_raised"] != 1 || result.Upkeep["alarms_failed"] != 0 {
			t.Fatalf("%v, %v", result.Upkeep, err)
		}
	}
	id := add(t, p, orderClose.New(42, order{}, tocsin.In(0)))
	sweep()
	first := p.alarms(t)
	if info := await(t, p, id, "the task to be dead", withStatus(tocsin.Dead)); len(first) != 1 || first[0].BizID != 1 {
		t.Fatalf("%+v: alarms %+v", info, first)
	}
	db := openDB(t, devtest.DSN(t))
	execute(t, db, "UPDATE "+first[0].Table+" SET gmt_create = gmt_create - INTERVAL 5 MINUTE WHERE job_id = ?", first[0].JobID)
	crashed := add(t, p, orderClose.New(43, order{}, tocsin.In(time.Hour)))
	execute(t, db, "UPDATE "+p.cfg.Layout.Table(crashed.Table())+" SET status = 1, crashes = 4, claimed_by = 'gone', action_time = UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE WHERE job_id = ?", crashed)
	sweep()
	all := p.alarms(t)
	if len(all) != 2 {
		t.Fatalf("%d alarms: %+v", len(all), all)
	}
	alarm, err := opsAlarm.Decode(all[1])
	if err != nil || alarm.Payload.Count != 1 || alarm.Payload.LastError != "crashed 5 times, last on gone" {
		t.Errorf("%+v, %v", alarm.Payload, err)
	}
}
