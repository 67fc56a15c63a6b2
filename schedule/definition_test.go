package schedule

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

const file = `schedules:
  - name: report.daily
    app: billing
    biz_type: report.make
    key: all-shops
    cron: 30 4 * * mon-fri
    zone: Europe/Berlin
    start: 2026-12-01T00:00:00+01:00
    end: 2027-12-01T00:00:00Z
    jitter: 5m
    payload: '{"shop": 7}'
    headers: {tenant: shop-7}
    start_within: 1h
    missed: all
    missed_most: 3
    overlap: replace
    pause_after: 5
  - {name: beat, biz_type: mail.send, biz_id: 18446744073709551615, cron: "@every 90s"}
`

func TestDefinitionsAreReadFromYAMLAndJSON(t *testing.T) {
	t.Parallel()
	all, err := Parse([]byte(file), "schedules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := Definition{
		Name: "report.daily", App: "billing", BizType: "report.make", Key: "all-shops", Cron: "30 4 * * mon-fri", Zone: "Europe/Berlin",
		Start: time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC), End: time.Date(2027, 12, 1, 0, 0, 0, 0, time.UTC),
		Jitter: biztype.Duration(5 * time.Minute), Payload: `{"shop": 7}`, Headers: map[string]string{"tenant": "shop-7"},
		StartWithin: biztype.Duration(time.Hour), Missed: MissedAll, MissedMost: 3, Overlap: OverlapReplace, PauseAfter: 5,
	}
	if got := all[0].WithDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := all[1].WithDefaults(); got.BizID != 1<<64-1 || got.Key != "" || got.Zone != "UTC" || got.StartWithin.D() != 10*time.Minute || got.Missed != MissedOnce || got.MissedMost != 100 || got.Overlap != OverlapAllow {
		t.Errorf("%+v", got)
	}
	for _, d := range all {
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again Definition
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again.WithDefaults(), d.WithDefaults()) {
			t.Errorf("%s was read as %+v, %v", text, again, err)
		}
		if differences(d, again) != nil {
			t.Errorf("%v", differences(d, again))
		}
	}
}

func TestFilesAreRefusedWithTheLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"schedules: []":                      "s.yaml:1: no schedules",
		"schedules:\n  - {name: a, corn: x}": `s.yaml:2: unknown key "corn": use name, app, biz_type, biz_id, key, cron, zone, start, end, jitter, payload, payload_version, headers, start_within, missed, missed_most, overlap, pause_after`,
		"schedules:\n  - name: a\n    biz_type: b\n    cron: 61 * * * *":                                           "s.yaml:4: schedule a: cron expression \"61 * * * *\"",
		"schedules:\n  - name: a\n    biz_type: b\n    cron: '@daily'\n    zone: Berlin":                           "s.yaml:5: schedule a: zone \"Berlin\" is unknown",
		"schedules:\n  - name: a\n    biz_type: b\n    cron: '@daily'\n    jitter: 25h":                            "s.yaml:5: schedule a: jitter 25h0m0s is not below",
		"schedules:\n  - {name: a, biz_type: b, cron: '* * * * *'}\n  - {name: a, biz_type: b, cron: '* * * * *'}": "s.yaml:3: schedule a: the name stands twice",
		"schedules:\n  - name: \"a\\nb\"\n    biz_type: b\n    cron: '* * * * *'":                                  "s.yaml:2: schedule \"a\\nb\": name \"a\\nb\": use lower-case letters",
		"schedules:\n  - biz_type: b\n    cron: '* * * * *'":                                                       "s.yaml:2: schedule without a name: name \"\": use lower-case letters",
	} {
		if _, err := Parse([]byte(text), "s.yaml"); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

func TestEachFaultIsOneLineOfItsField(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, c := range map[string]struct {
		field  string
		change func(*Definition)
	}{
		`name "A": use lower-case letters`:                  {"name", func(d *Definition) { d.Name = "A" }},
		`name "a\nb": use lower-case letters`:               {"name", func(d *Definition) { d.Name = "a\nb" }},
		`app "a b": use letters`:                            {"app", func(d *Definition) { d.App = "a b" }},
		"needs the biz_type of its runs":                    {"biz_type", func(d *Definition) { d.BizType = "" }},
		"give either biz_id or key":                         {"key", func(d *Definition) { d.BizID, d.Key = 1, "k" }},
		"biz_key has 65 bytes: at most 64":                  {"key", func(d *Definition) { d.Key = strings.Repeat("k", 65) }},
		"needs cron, such as":                               {"cron", func(d *Definition) { d.Cron = "" }},
		`cron expression "x"`:                               {"cron", func(d *Definition) { d.Cron = "x" }},
		"zone":                                              {"zone", func(d *Definition) { d.Zone = "Europe/Nowhere" }},
		"jitter 1m0s is not below the shortest interval":    {"jitter", func(d *Definition) { d.Jitter = biztype.Duration(time.Minute) }},
		"start 2026-01-01T00:00:00.000001Z is finer than a": {"start", func(d *Definition) { d.Start = time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC) }},
		"end 2026-01-01T00:00:00.000001Z is finer than a":   {"end", func(d *Definition) { d.End = time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC) }},
		"payload is not UTF-8":                              {"payload", func(d *Definition) { d.Payload = "\xff" }},
		"payload has 8193 characters: at most 8192":         {"payload", func(d *Definition) { d.Payload = strings.Repeat("ä", tocsin.MaxPayload+1) }},
		`header "a b": use letters`:                         {"headers", func(d *Definition) { d.Headers = map[string]string{"a b": ""} }},
		"start_within 1ms: use 1s to 8784h0m0s":             {"start_within", func(d *Definition) { d.StartWithin = biztype.Duration(time.Millisecond) }},
		`missed "never": use skip, once or all`:             {"missed", func(d *Definition) { d.Missed = "never" }},
		"missed_most 501: use 1 to 500":                     {"missed_most", func(d *Definition) { d.MissedMost = 501 }},
		`overlap "x": use allow, skip, queue or replace`:    {"overlap", func(d *Definition) { d.Overlap = "x" }},
		"pause_after -1: use 0 (never) to 1000000":          {"pause_after", func(d *Definition) { d.PauseAfter = -1 }},
		"cron expression \"0 0 30 2 *\" has no fire time":   {"cron", func(d *Definition) { d.Cron = "0 0 30 2 *" }},
		"after the year 9999":                               {"start", func(d *Definition) { d.Start = at.AddDate(7990, 0, 0) }},
		"is not before end":                                 {"end", func(d *Definition) { d.Start, d.End = at, at }},
	} {
		d := every("report", "1m")
		c.change(&d)
		if found := d.Faults(); len(found) != 1 || found[0].Field != c.field {
			t.Errorf("%s: %+v, want one of %s", want, found, c.field)
		}
		err := d.Validate()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "schedule ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, want)
		}
		if _, err := d.Next(time.Now(), 1); err == nil {
			t.Errorf("%s: it has fire times", want)
		}
	}
	d := every("report", "1m")
	if err := d.Validate(); err != nil || d.Faults() != nil {
		t.Error(err, d.Faults())
	}
}

func TestNextNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	d := every("report", "1h")
	d.Cron, d.Zone, d.End = "30 2 * * *", "Europe/Berlin", time.Date(2026, 3, 31, 0, 0, 0, 0, time.UTC)
	got, err := d.Next(time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC), 9)
	want := []time.Time{time.Date(2026, 3, 28, 1, 30, 0, 0, time.UTC), time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 3, 30, 0, 30, 0, 0, time.UTC)}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	after := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	for _, n := range []int{-1, 0} {
		next, failed := d.Next(after, n)
		if following, err := (Schedule{Definition: d}).Following(after, n); len(next)+len(following) > 0 || errors.Join(failed, err) != nil {
			t.Errorf("%d fire times are %v and %v (%v, %v)", n, next, following, failed, err)
		}
	}
	if got, err := every("beat", "90s").Next(after, 2); err != nil || !got[0].Equal(after.Add(90*time.Second)) || !got[1].Equal(after.Add(180*time.Second)) {
		t.Errorf("%v, %v", got, err)
	}
}
