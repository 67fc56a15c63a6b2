package biztype_test

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/biztype"
)

// good is a file that the bad ones below differ from in one place.
const good = `biz_types:
  - name: order.close
    number: 1
    group: orders
`

// TestAPolicyWithItsDefaultsIsTaken: people write what `tocsin biz show` prints into a file.
func TestAPolicyWithItsDefaultsIsTaken(t *testing.T) {
	t.Parallel()
	for _, more := range []string{
		"", "    ladder: [1s, 10s]\n", "    backoff: {base: 2h}\n", "    alarm: {to: ops.alarm}\n", "    history: true\n    per_key: 1\n    strict: true\n",
		"    webhook: {url: \"http://a/\"}\n    fallback: {webhook: {url: \"http://b/\"}}\n", "    rate: 0.5\n    priority: low\n    paused: true\n",
	} {
		first, err := biztype.Parse([]byte(good+more), "biz.yaml")
		if err != nil {
			t.Fatal(err)
		}
		full := first[0].WithDefaults()
		text, err := yaml.Marshal(map[string][]biztype.Policy{"biz_types": {full}})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := biztype.Parse(text, "biz.yaml"); err != nil || !reflect.DeepEqual(again[0], full) {
			t.Errorf("%s%v\n%+v\n%+v", text, err, again, full)
		}
	}
}

func TestEachMistakeInTheFileHasItsLineAndMessage(t *testing.T) {
	t.Parallel()
	hook := "biz_types:\n  - name: a\n    number: 1\n    webhook:\n"
	to := "biz_types:\n  - name: a\n    number: 1\n    sink:\n"
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":           {good + "    tmeout: 3s\n", `biz.yaml:5: unknown key "tmeout": use name, number, group, webhook, sink, pull, fallback, timeout, attempts, backoff, ladder, concurrency, rate, priority, per_key, strict, paused, history, retention, alarm`},
		"no duration":           {good + "    timeout: 3 s\n", `biz.yaml:5: "3 s" is not a duration such as 30s, 10m or 24h`},
		"a list as duration":    {good + "    timeout: [3s]\n", `biz.yaml:5: a duration such as 30s, 10m or 24h belongs here`},
		"no types":              {"biz_types: []\n", `biz.yaml:1: no biz types`},
		"bad name":              {"biz_types:\n  - name: Order\n    number: 1\n    group: g\n", `biz.yaml:2: biz type Order: name "Order": use lower-case letters, digits, '.', '_' and '-', a letter or digit first, at most 64`},
		"a name of two lines":   {"biz_types:\n  - name: \"a\\nb\"\n    number: 1\n    group: g\n", `biz.yaml:2: biz type "a\nb": name "a\nb": use lower-case letters, digits, '.', '_' and '-', a letter or digit first, at most 64`},
		"no number":             {"biz_types:\n  - name: a\n    group: g\n", `biz.yaml:2: biz type a: needs a number, at least 1 and never used before`},
		"number twice":          {good + "  - name: b\n    number: 1\n    group: g\n", `biz.yaml:6: biz type b: number 1 is that of order.close too`},
		"name twice":            {good + "  - name: order.close\n    number: 2\n    group: g\n", `biz.yaml:5: biz type order.close: the name stands twice`},
		"pull and timeout":      {"biz_types:\n  - name: a\n    number: 1\n    pull: {}\n    timeout: 5s\n", `biz.yaml:5: biz type a: has both pull and timeout: leave timeout out, as workers ask for the tasks`},
		"pull and concurrency":  {"biz_types:\n  - name: a\n    number: 1\n    pull: {}\n    concurrency: 5\n", `biz.yaml:5: biz type a: has both pull and concurrency: leave concurrency out, as workers ask for the tasks`},
		"long lease":            {"biz_types:\n  - name: a\n    number: 1\n    pull: {lease: 2m}\n", `biz.yaml:4: biz type a: pull.lease 2m0s: use 5s to 1m0s`},
		"no target":             {"biz_types:\n  - name: a\n    number: 1\n", `biz.yaml:2: biz type a: needs a webhook, a sink or pull, or the group of the nodes that have its Go handler`},
		"handler in callback":   {"biz_types:\n  - name: a\n    number: 1\n    group: callback\n", `biz.yaml:4: biz type a: group "callback" has no Go handlers: give the type a webhook, a sink, pull or another group`},
		"bad group":             {"biz_types:\n  - name: a\n    number: 1\n    group: My Group\n", `biz.yaml:4: biz type a: group "My Group": use letters, digits, '.', '_' and '-', a letter or digit first, at most 64`},
		"timeout too long":      {good + "    timeout: 2h\n", `biz.yaml:5: biz type order.close: timeout 2h0m0s: use 1ms to 1h0m0s`},
		"negative timeout":      {good + "    timeout: -1s\n", `biz.yaml:5: biz type order.close: timeout -1s: use 1ms to 1h0m0s`},
		"too many attempts":     {good + "    attempts: 1001\n", `biz.yaml:5: biz type order.close: 1001 attempts: use 1 to 1000`},
		"negative concurrency":  {good + "    concurrency: -1\n", `biz.yaml:5: biz type order.close: concurrency -1: use 1 to 10000`},
		"rate not a number":     {good + "    rate: .nan\n", `biz.yaml:5: biz type order.close: rate NaN: use 0 (no limit) to 1000000 a second`},
		"ladder and backoff":    {good + "    ladder: [1s]\n    backoff:\n      base: 1s\n", `biz.yaml:5: biz type order.close: has both a ladder and a backoff: use one`},
		"step of zero":          {good + "    ladder: [1s, 0s]\n", `biz.yaml:5: biz type order.close: a step of the ladder is 0s`},
		"backoff upside down":   {good + "    backoff:\n      base: 2m\n      max: 1m\n", `biz.yaml:7: biz type order.close: backoff.max 1m0s is below backoff.base 2m0s`},
		"no url":                {hook + "      secrets: [A]\n", `biz.yaml:5: biz type a: the webhook needs a url`},
		"other scheme":          {hook + "      url: ftp://host/\n", `biz.yaml:5: biz type a: the url is not of the form http://host/path or https://host/path`},
		"a history of words":    {good + "    history: much\n", `biz.yaml:5: "much" is not true or false`},
		"password in the url":   {hook + "      url: https://me:pw@host/\n", `biz.yaml:5: biz type a: the url holds a user name or password: deliveries are signed instead, see secrets`},
		"three secrets":         {hook + "      url: https://host/\n      secrets: [A, B, C]\n", `biz.yaml:6: biz type a: 3 secrets: at most 2, the one in use and one for rotation`},
		"the secret itself":     {hook + "      url: https://host/\n      secrets: [whsec_MfKQ9r8]\n", `biz.yaml:6: biz type a: a secret is given by the name of its environment variable, never by its value`},
		"an address as network": {hook + "      url: https://host/\n      allow: [10.0.0.1]\n", `biz.yaml:6: biz type a: "10.0.0.1" is not a network such as 10.0.0.0/8`},
		"a large batch":         {hook + "      url: https://host/\n      batch: 1001\n", `biz.yaml:6: biz type a: batch 1001: use 1 to 1000, or 0 for a request for each task`},
		"webhook and sink":      {hook + "      url: https://host/\n    sink: {name: k}\n", `biz.yaml:6: biz type a: has both a webhook and a sink: use one, or make the other its fallback`},
		"sink without a name":   {to + "      topic: t\n", `biz.yaml:5: biz type a: the sink needs the name of one in the config of the nodes`},
		"topic with a space":    {to + "      name: k\n      topic: my orders\n", `biz.yaml:6: biz type a: topic "my orders": use letters, digits, . _ - and the placeholders {biz_type} and {header.NAME}`},
		"unknown placeholder":   {to + "      name: k\n      topic: orders.{biz_id}\n", `biz.yaml:6: biz type a: topic "orders.{biz_id}": use letters, digits, . _ - and the placeholders {biz_type} and {header.NAME}`},
		"key of no header":      {to + "      name: k\n      key: header.\n", `biz.yaml:6: biz type a: key "header.": use biz_key, job_id, header.NAME or none`},
		"another format":        {to + "      name: k\n      format: avro\n", `biz.yaml:6: biz type a: format "avro": use webhook, or leave it out for CloudEvents`},
		"fallback of a handler": {good + "    fallback:\n      sink: {name: k}\n", `biz.yaml:6: biz type order.close: a fallback is for a webhook or a sink, and this biz type has a Go handler`},
		"fallback to nothing":   {to + "      name: k\n    fallback:\n      after: 10s\n", `biz.yaml:7: biz type a: the fallback needs a webhook or a sink, and not both`},
		"fallback too soon":     {to + "      name: k\n    fallback:\n      after: 1ms\n      sink: {name: l}\n", `biz.yaml:7: biz type a: fallback.after 1ms: use 1s to 1h0m0s`},
		"fallback without url":  {to + "      name: k\n    fallback:\n      webhook: {batch: 2}\n", `biz.yaml:7: biz type a: the webhook needs a url`},
		"another priority":      {good + "    priority: urgent\n", `biz.yaml:5: biz type order.close: priority "urgent": use high, normal or low`},
		"turns of 1001":         {good + "    strict: true\n    per_key: 1001\n", `biz.yaml:6: biz type order.close: per_key 1001: use 1 to 1000, or 0 for no limit`},
		"turns without claims":  {good + "    per_key: 1\n", `biz.yaml:5: biz type order.close: per_key needs strict: true, as a cancel would let the next task begin beside the one in delivery`},
		"a negative batch":      {hook + "      url: https://host/\n      batch: -1\n", `biz.yaml:6: biz type a: batch -1: use 1 to 1000, or 0 for a request for each task`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := biztype.Parse([]byte(c.text), "biz.yaml")
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// A host that ends in a number is an IP address, by the URL standard of WHATWG; not all that it takes can be dialled.
func TestAURLThatCanNotBeDialledIsRefused(t *testing.T) {
	t.Parallel()
	const address, port = "the url's host %s is no IP address: it has four numbers of 0 to 255, without leading zeros", "the url's port is %s: use 1 to 65535"
	for host, want := range map[string]string{
		"127.0.0.1:99999": fmt.Sprintf(port, "99999"), "host:0": fmt.Sprintf(port, "0"), "host:65536": fmt.Sprintf(port, "65536"), "[::1]:00": fmt.Sprintf(port, "00"),
		"256.1.1.1": fmt.Sprintf(address, "256.1.1.1"), "010.1.1.1:80": fmt.Sprintf(address, "010.1.1.1"), "127.1.": fmt.Sprintf(address, "127.1."), "a.0x7F": fmt.Sprintf(address, "a.0x7F"),
		"1.2.3.4.5": fmt.Sprintf(address, "1.2.3.4.5"), "2130706433": fmt.Sprintf(address, "2130706433"), "1.2.3.0x": fmt.Sprintf(address, "1.2.3.0x"),
		"[1::2::3]": "the url is not of the form http://host/path or https://host/path",
		"host:1":    "", "host:65535": "", "host:": "", "127.0.0.1": "", "[::1]:8080": "", "1.2.3.example": "", "0x7f.example.": "", "x0": "", "9.9.9.9:443": "",
	} {
		err := biztype.Validate([]biztype.Policy{{Name: "a", Number: 1, Webhook: &biztype.Webhook{URL: "http://" + host + "/x"}}})
		if want != "" {
			want = "biz type a: " + want
		}
		if fmt.Sprint(err) != cmp.Or(want, "<nil>") {
			t.Errorf("%s: got %v, want %s", host, err, want)
		}
	}
}

func TestAWebhookMayBelongToAnyGroup(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"", "callback", "orders"} {
		p := biztype.Policy{Name: "a", Number: 1, Group: group, Webhook: &biztype.Webhook{URL: "https://host/"}}
		if err := biztype.Validate([]biztype.Policy{p}); err != nil {
			t.Errorf("group %q: %v", group, err)
		}
	}
}

func TestSeveralMistakesAreAllTold(t *testing.T) {
	t.Parallel()
	_, err := biztype.Parse([]byte(good+"    attempts: -1\n    timeout: -1s\n"), "biz.yaml")
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("want two lines, got: %v", err)
	}
	err = biztype.Validate([]biztype.Policy{{Name: "a", Number: 1, Group: "g", Attempts: -1}, {Number: 7, Group: "g"}})
	if err == nil || !strings.HasPrefix(err.Error(), "biz type a: -1 attempts") || !strings.Contains(err.Error(), "\nbiz type #7: name") {
		t.Errorf("Validate: %v", err)
	}
}

func TestTheLadderGivesItsStepsAndThenItsLastOne(t *testing.T) {
	t.Parallel()
	p := biztype.Policy{Ladder: []biztype.Duration{1e9, 5e9, 60e9}}
	for n, want := range map[int]time.Duration{0: 1e9, 1: 1e9, 2: 5e9, 3: 60e9, 4: 60e9, 1000: 60e9} {
		if got := p.Wait(n, func() float64 { return 0.5 }); got != want {
			t.Errorf("after %d failed: %s, want %s", n, got, want)
		}
	}
}

func TestBackoffIsInTheUpperHalfOfTheDoubledBaseUpToMax(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(1, int64(30*24*time.Hour)).Draw(t, "base")
		limit := rapid.Int64Range(base, int64(30*24*time.Hour)).Draw(t, "max")
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		r := rapid.Float64Range(0, 0.999999).Draw(t, "rnd")
		p := biztype.Policy{Backoff: biztype.Backoff{Base: biztype.Duration(base), Max: biztype.Duration(limit)}}
		got := int64(p.Wait(n, func() float64 { return r }))
		full := limit
		if n-1 < 62 && base <= limit>>(n-1) {
			full = base << (n - 1)
		}
		if got < full/2 || got > full {
			t.Fatalf("after %d failed: %d, want %d to %d", n, got, full/2, full)
		}
	})
}

func TestDefaultsFillOnlyWhatIsZero(t *testing.T) {
	t.Parallel()
	p := biztype.Policy{Name: "a", Number: 1, Webhook: &biztype.Webhook{URL: "http://a/"}, Backoff: biztype.Backoff{Base: biztype.Duration(2 * time.Hour)}}.WithDefaults()
	if p.Group != "callback" || p.Timeout.D() != 30*time.Second || p.Attempts != 16 || p.Concurrency != 64 || p.Retention.D() != 720*time.Hour {
		t.Errorf("got %+v", p)
	}
	if p.Backoff.Max.D() != 2*time.Hour {
		t.Errorf("backoff.max %s, want its base where that is above the default", p.Backoff.Max)
	}
	if again := p.WithDefaults(); again.Timeout != p.Timeout || again.Backoff != p.Backoff {
		t.Error("not idempotent")
	}
}

func FuzzParseNeverPanicsAndWhatItTakesIsValid(f *testing.F) {
	f.Add(good)
	f.Add("biz_types:\n  - name: a\n    webhook: {url: 'http://a/'}\n    number: 0x10\n    ladder: [1s, 2s]\n")
	f.Fuzz(func(t *testing.T, text string) {
		policies, err := biztype.Parse([]byte(text), "f.yaml")
		if err == nil && biztype.Validate(policies) != nil {
			t.Errorf("took what is not valid: %v", biztype.Validate(policies))
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("message without its file: %v", err)
		}
	})
}

func TestTheGraceIsNeverLessThanTwiceTheTimeoutUnlessAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, asked, want time.Duration
	}{
		"the default holds for quick types":       {10 * time.Second, biztype.DefaultSweepGrace, biztype.DefaultSweepGrace},
		"a slow type has twice its time-out":      {45 * time.Second, biztype.DefaultSweepGrace, 90 * time.Second},
		"the default time-out is 30 s":            {0, biztype.DefaultSweepGrace, biztype.DefaultSweepGrace},
		"a longer grace holds":                    {45 * time.Second, time.Hour, time.Hour},
		"less than the default is taken as it is": {45 * time.Second, time.Second, time.Second},
		"none at all means due, not before":       {45 * time.Second, -time.Second, 0},
		"a slow type may outlast a longer grace":  {10 * time.Minute, 5 * time.Minute, 20 * time.Minute},
		"exactly the default counts as no wish":   {31 * time.Second, biztype.DefaultSweepGrace, 62 * time.Second},
		"just below the default counts as a wish": {31 * time.Second, biztype.DefaultSweepGrace - 1, biztype.DefaultSweepGrace - 1},
	} {
		if got := biztype.SweptAfter(biztype.Policy{Name: "t", Timeout: biztype.Duration(c.timeout)}, c.asked); got != c.want {
			t.Errorf("%s: grace %s, want %s", name, got, c.want)
		}
	}
}

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
