package schedule

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/yamlfile"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// Bounds of a definition.
const (
	minStartWithin = time.Second
	maxStartWithin = 366 * 24 * time.Hour
	maxMissedMost  = MaxRuns
	maxPauseAfter  = 1_000_000
)

// Fault is what is wrong with one field of a definition: its Field, as YAML and JSON name it, and Err.
type Fault = yamlfile.Fault

// Validate returns what is wrong with the definition, in one line for each fault; nil: nothing. It can't know whether the
// biz type exists.
func (d Definition) Validate() error {
	var errs []error
	for _, p := range d.Faults() {
		errs = append(errs, invalid(d.Name, "%s", p.Err))
	}
	return errors.Join(errs...)
}

// Faults is Validate field by field, in the order of the fields.
func (d Definition) Faults() []Fault {
	c := &check{}
	c.Note("name", name.CheckLower("name", d.Name))
	if d.App != "" {
		c.Note("app", name.Check("app", d.App))
	}
	c.Refuse(d.BizType == "", "biz_type", "needs the biz_type of its runs")
	c.subject(d)
	c.times(d)
	c.payload(d)
	c.policies(d.WithDefaults())
	return c.Found
}

// check collects what is wrong with one definition.
type check struct{ yamlfile.Faults }

func (c *check) subject(d Definition) {
	c.Refuse(d.BizID != 0 && d.Key != "", "key", "give either biz_id or key")
	if d.Key != "" {
		c.Note("key", name.CheckKey(d.Key))
	}
}

func (c *check) times(d Definition) {
	c.Refuse(d.Cron == "", "cron", `needs cron, such as "0 4 * * *" or "@every 90s"`)
	if d.Cron == "" {
		return
	}
	for field, t := range map[string]time.Time{"start": d.Start, "end": d.End} {
		if !t.IsZero() {
			c.Note(field, client.CheckTime(field, t))
		}
	}
	c.Refuse(!whole(d.Start), "start", "start %s is finer than a millisecond", d.Start.Format(time.RFC3339Nano))
	c.Refuse(!whole(d.End), "end", "end %s is finer than a millisecond", d.End.Format(time.RFC3339Nano))
	c.fires(d)
}

// fires notes the first field with which there are no fire times, or wrong ones.
func (c *check) fires(d Definition) {
	now := time.Now()
	spec := firetimes.Spec{Cron: "@daily", Anchor: now}
	for _, add := range []struct {
		field string
		set   func()
	}{
		{"zone", func() { spec.Zone = d.Zone }},
		{"cron", func() { spec.Cron = d.Cron }},
		{"start", func() { spec.Start, spec.Anchor = d.Start, d.anchorAt(now) }},
		{"end", func() { spec.End = d.End }},
		{"jitter", func() { spec.Jitter = d.Jitter.D() }},
	} {
		add.set()
		if _, err := firetimes.Parse(spec); err != nil {
			if !slices.ContainsFunc(c.Found, func(f Fault) bool { return f.Field == add.field }) {
				c.Note(add.field, err)
			}
			return
		}
	}
}

func whole(t time.Time) bool { return t.Equal(t.Truncate(time.Millisecond)) }

func (c *check) payload(d Definition) {
	c.Refuse(!utf8.ValidString(d.Payload), "payload", "payload is not UTF-8")
	n := utf8.RuneCountInString(d.Payload)
	c.Refuse(n > tocsin.MaxPayload, "payload", "payload has %d characters: at most %d", n, tocsin.MaxPayload)
	c.Refuse(d.PayloadVersion < 0, "payload_version", "payload_version %d: use 0 or more", d.PayloadVersion)
	_, err := client.StoredHeaders(d.Headers, d.PayloadVersion)
	c.Note("headers", err)
}

func (c *check) policies(d Definition) {
	within := d.StartWithin.D()
	c.Refuse(within < minStartWithin || within > maxStartWithin || within%time.Millisecond != 0, "start_within",
		"start_within %s: use %s to %s, in whole milliseconds", d.StartWithin, minStartWithin, maxStartWithin)
	c.Refuse(d.Missed != MissedSkip && d.Missed != MissedOnce && d.Missed != MissedAll, "missed",
		"missed %q: use %s, %s or %s", d.Missed, MissedSkip, MissedOnce, MissedAll)
	c.Refuse(d.MissedMost < 1 || d.MissedMost > maxMissedMost, "missed_most", "missed_most %d: use 1 to %d", d.MissedMost, maxMissedMost)
	switch d.Overlap {
	case OverlapAllow, OverlapSkip, OverlapQueue, OverlapReplace:
	default:
		c.Refuse(true, "overlap", "overlap %q: use %s, %s, %s or %s", d.Overlap, OverlapAllow, OverlapSkip, OverlapQueue, OverlapReplace)
	}
	c.Refuse(d.PauseAfter < 0 || d.PauseAfter > maxPauseAfter, "pause_after", "pause_after %d: use 0 (never) to %d", d.PauseAfter, maxPauseAfter)
}

// ValidateAll is Validate of each definition, and refuses a name that stands twice.
func ValidateAll(all []Definition) error {
	var errs []error
	seen := map[string]bool{}
	for _, d := range all {
		errs = append(errs, d.Validate())
		if seen[d.Name] {
			errs = append(errs, invalid(d.Name, "the name stands twice"))
		}
		seen[d.Name] = true
	}
	return errors.Join(errs...)
}

// Parse reads the definitions of a YAML file of the form
//
//	schedules:
//	  - name: report.daily
//	    biz_type: report.make
//	    cron: 0 4 * * *
//	    zone: Europe/Berlin
//
// and validates them. Each message is one line, with file and the place:
// configs/schedules.yaml:4: unknown key "corn".
func Parse(text []byte, file string) ([]Definition, error) {
	f, err := yamlfile.Parse(text, file)
	if err != nil {
		return nil, err
	}
	var content struct {
		Schedules []Definition `yaml:"schedules"`
	}
	if err := f.Decode(&content); err != nil {
		return nil, err
	}
	all := content.Schedules
	if len(all) == 0 {
		return nil, f.Errorf("$.schedules", "no schedules")
	}
	var found []Fault
	seen := map[string]bool{}
	for i, d := range all {
		of := yamlfile.Faults{Within: fmt.Sprintf("schedules[%d].", i), Of: "schedule " + label(d.Name)}
		for _, fault := range d.Faults() {
			of.Note(fault.Field, fault.Err)
		}
		of.Refuse(seen[d.Name], "name", "the name stands twice")
		found = append(found, of.Found...)
		seen[d.Name] = true
	}
	return all, f.Place(found)
}
