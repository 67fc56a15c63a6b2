package biztype_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
)

// withAlarm is good with an alarm: line 5 is its key.
const withAlarm = good + "    alarm:\n"

// ops is a biz type that delivers alarms, as it follows a type that has one.
const ops = "  - name: ops.alarm\n    number: 9\n    group: ops\n"

func TestEachMistakeInAnAlarmHasItsLineAndMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"no target":           {withAlarm + "      on: [dead]\n", `biz.yaml:6: biz type order.close: the alarm needs the name of the biz type that delivers it: to`},
		"to itself":           {withAlarm + "      to: order.close\n", `biz.yaml:6: biz type order.close: its alarm is to itself: another biz type must deliver it`},
		"a chain":             {withAlarm + "      to: ops.alarm\n" + ops + "    alarm:\n      to: chat\n", `biz.yaml:6: biz type order.close: its alarm is to ops.alarm, which has an alarm too: a biz type that delivers alarms has none`},
		"a cycle":             {withAlarm + "      to: ops.alarm\n" + ops + "    alarm:\n      to: order.close\n", `biz.yaml:6: biz type order.close: its alarm is to ops.alarm, which has an alarm too: a biz type that delivers alarms has none`},
		"too often":           {withAlarm + "      to: ops.alarm\n      at_most_every: 59s\n", `biz.yaml:7: biz type order.close: alarm.at_most_every 59s: use 1m0s to 24h0m0s`},
		"too seldom":          {withAlarm + "      to: ops.alarm\n      at_most_every: 25h\n", `biz.yaml:7: biz type order.close: alarm.at_most_every 25h0m0s: use 1m0s to 24h0m0s`},
		"no duration":         {withAlarm + "      to: ops.alarm\n      at_most_every: often\n", `biz.yaml:7: "often" is not a duration such as 30s, 10m or 24h`},
		"unknown kind":        {withAlarm + "      to: ops.alarm\n      on: [dead, late]\n", `biz.yaml:7: biz type order.close: alarm.on "late": use dead or missed`},
		"a kind twice":        {withAlarm + "      to: ops.alarm\n      on: [dead, dead]\n", `biz.yaml:7: biz type order.close: alarm.on has "dead" twice`},
		"unknown key":         {withAlarm + "      to: ops.alarm\n      url: http://host/\n", `biz.yaml:7: unknown key "url": use to, on, at_most_every`},
		"alarms not kept":     {withAlarm + "      to: ops.alarm\n" + ops + "    retention: 1h\n", `biz.yaml:6: biz type order.close: its alarm is to ops.alarm, whose retention is 1h0m0s: use at least 48h0m0s`},
		"a name for an alarm": {good + "    alarm: ops.alarm\n", ""},
	} {
		_, err := biztype.Parse([]byte(c.text), "biz.yaml")
		if err == nil || c.want != "" && err.Error() != c.want || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got  %v\nwant %s", name, err, c.want)
		}
	}
}

// Two files may make together what neither of them has.
func TestAlarmsAreCheckedAgainstWhatIsStored(t *testing.T) {
	t.Parallel()
	close := biztype.Policy{Name: "order.close", Number: 1, Group: "orders", Alarm: &biztype.Alarm{To: "ops.alarm"}}
	alarm := biztype.Policy{Name: "ops.alarm", Number: 9, Group: "ops"}
	with := func(p biztype.Policy, change func(*biztype.Policy)) biztype.Policy { change(&p); return p }
	cfg := cluster(t)
	refused := func(name, want string, policies ...biztype.Policy) {
		t.Helper()
		if _, err := biztype.Apply(t.Context(), cfg, policies); err == nil || err.Error() != want {
			t.Errorf("%s: got  %v\nwant %s", name, err, want)
		}
	}
	refused("no such biz type", `biz type order.close: its alarm is to "ops.alarm", and there is no such biz type: apply it in the same file or before`, close)
	apply(t, cfg, close, alarm)
	refused("a cycle", `biz type ops.alarm: its alarm is to order.close, which has an alarm too: a biz type that delivers alarms has none`,
		with(alarm, func(p *biztype.Policy) { p.Alarm = &biztype.Alarm{To: "order.close"} }))
	apply(t, cfg, remind)
	refused("its target gets an alarm", `biz type order.close: its alarm is to ops.alarm, which has an alarm too: a biz type that delivers alarms has none`,
		with(alarm, func(p *biztype.Policy) { p.Alarm = &biztype.Alarm{To: "coupon.remind"} }))
	refused("its target gets another retention", `biz type order.close: its alarm is to ops.alarm, whose retention is 47h0m0s: use at least 48h0m0s`,
		with(alarm, func(p *biztype.Policy) { p.Retention = biztype.Duration(47 * time.Hour) }))
	refused("it is the target of a new one", `biz type coupon.remind: its alarm is to order.close, which has an alarm too: a biz type that delivers alarms has none`,
		with(remind, func(p *biztype.Policy) { p.Alarm = &biztype.Alarm{To: "order.close"} }))
	apply(t, cfg, with(remind, func(p *biztype.Policy) { p.Alarm = &biztype.Alarm{To: "ops.alarm", On: []string{"missed"}} }))
	stored := load(t, cfg)
	if len(stored) != 3 || stored[0].Alarm == nil || stored[0].Alarm.To != "ops.alarm" || !stored[0].AlarmOn("missed") || stored[1].AlarmOn("dead") || stored[2].AlarmOn("dead") {
		t.Errorf("stored %+v", stored)
	}
	if full := stored[0].WithDefaults(); full.Alarm.AtMostEvery.D() != 5*time.Minute || stored[0].Alarm.AtMostEvery != 0 {
		t.Errorf("with defaults %+v, stored %+v", full.Alarm, stored[0].Alarm)
	}
}
