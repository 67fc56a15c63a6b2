package schedule

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// Missed says what becomes of runs that could not start within StartWithin.
type Missed string

// What becomes of missed runs.
const (
	MissedSkip Missed = "skip" // they are passed over
	MissedOnce Missed = "once" // the newest is made up for
	MissedAll  Missed = "all"  // the newest MissedMost are made up for
)

// Overlap says what becomes of a run while an earlier one of the schedule is open: pending since its time, claimed, or
// waiting for a retry.
type Overlap string

// What becomes of a run beside an open one.
const (
	OverlapAllow   Overlap = "allow"   // it starts
	OverlapSkip    Overlap = "skip"    // it is skipped
	OverlapQueue   Overlap = "queue"   // it waits; one run waits at most
	OverlapReplace Overlap = "replace" // the open one is cancelled
)

// Defaults of a definition.
const (
	DefaultStartWithin = 10 * time.Minute
	DefaultMissed      = MissedOnce
	DefaultMissedMost  = 100
	DefaultOverlap     = OverlapAllow
)

// Definition is a schedule as people write it. Name, BizID and Key never change.
type Definition struct {
	Name           string            `yaml:"name" json:"name"`                                           // [a-z0-9._-], a letter or digit first, at most 64; no other schedule of the cluster has it
	App            string            `yaml:"app,omitempty" json:"app,omitempty"`                         // whose it is, for people
	BizType        string            `yaml:"biz_type" json:"biz_type"`                                   // of its runs
	BizID          uint64            `yaml:"biz_id,omitempty" json:"biz_id,omitempty,string"`            // of its runs; 0: see Key
	Key            string            `yaml:"key,omitempty" json:"key,omitempty"`                         // business key of its runs; "" without BizID: the name
	Cron           string            `yaml:"cron" json:"cron"`                                           // five fields, @daily and the like, or "@every 90s", which counts from Start, or else from the activation
	Zone           string            `yaml:"zone,omitempty" json:"zone,omitempty"`                       // IANA name; "": UTC
	Start          time.Time         `yaml:"start,omitempty" json:"start,omitzero"`                      // no fire time before; zero: no limit
	End            time.Time         `yaml:"end,omitempty" json:"end,omitzero"`                          // no fire time from then on; zero: no limit
	Jitter         biztype.Duration  `yaml:"jitter,omitempty" json:"jitter,omitempty"`                   // each run is due later by a constant below this, which the schedule_id draws
	Payload        string            `yaml:"payload,omitempty" json:"payload,omitempty"`                 // of each run, passed through unread
	PayloadVersion int               `yaml:"payload_version,omitempty" json:"payload_version,omitempty"` // of Payload; below 2 it is not stored
	Headers        map[string]string `yaml:"headers,omitempty" json:"headers,omitempty"`                 // of each run
	StartWithin    biztype.Duration  `yaml:"start_within,omitempty" json:"start_within,omitempty"`       // a run that starts later than this is missed; 0: 10m
	Missed         Missed            `yaml:"missed,omitempty" json:"missed,omitempty"`                   // "": once
	MissedMost     int               `yaml:"missed_most,omitempty" json:"missed_most,omitempty"`         // of Missed all; 0: 100
	Overlap        Overlap           `yaml:"overlap,omitempty" json:"overlap,omitempty"`                 // "": allow
	PauseAfter     int               `yaml:"pause_after,omitempty" json:"pause_after,omitempty"`         // failed runs in a row that pause it; 0: never
}

// Of returns the definition with the biz type of its runs and a payload for them, encoded as an add encodes it, with its
// version.
func Of[T any](biz tocsin.BizType[T], payload T, d Definition) (Definition, error) {
	text, err := biz.Encode(payload)
	d.BizType, d.Payload, d.PayloadVersion = biz.Name(), text, biz.PayloadVersion()
	return d, err
}

// WithDefaults fills in what was left out. White space around cron means nothing, so it goes.
func (d Definition) WithDefaults() Definition {
	d.Cron = strings.TrimSpace(d.Cron)
	set(&d.Zone, "UTC")
	set(&d.StartWithin, biztype.Duration(DefaultStartWithin))
	set(&d.Missed, DefaultMissed)
	set(&d.MissedMost, DefaultMissedMost)
	set(&d.Overlap, DefaultOverlap)
	if d.BizID == 0 {
		set(&d.Key, d.Name)
	}
	if d.PayloadVersion == 1 {
		d.PayloadVersion = 0 // the first one is not stored
	}
	d.Start, d.End = d.Start.UTC(), d.End.UTC()
	return d
}

// set gives a field its default.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// spec is what determines the fire times.
func (d Definition) spec(anchor time.Time, seed uint64) firetimes.Spec {
	return firetimes.Spec{Cron: d.Cron, Zone: d.Zone, Start: d.Start, End: d.End, Anchor: anchor, Jitter: d.Jitter.D(), Seed: seed}
}

// anchorAt returns what @every counts from if the schedule is activated at a time.
func (d Definition) anchorAt(now time.Time) time.Time {
	if !d.Start.IsZero() {
		return d.Start.UTC()
	}
	return now.UTC().Truncate(time.Millisecond)
}

// Next returns the first fire times after a time, at most n, as if the schedule were activated then; @every counts from
// the start, or else from the activation. It needs no database. Runs are due later than that by less than the jitter.
func (d Definition) Next(after time.Time, n int) ([]time.Time, error) {
	if err := cmp.Or(d.Validate(), askable(d.Name, after, n)); err != nil {
		return nil, err
	}
	times, err := firetimes.Parse(d.spec(d.anchorAt(after), 0))
	if err != nil {
		return nil, invalid(d.Name, "%s", err)
	}
	return following(times, after, n), nil
}

// maxNext is the largest number of fire times that one call returns.
const maxNext = 10_000

// askable refuses a question for fire times that has no answer, or too long a one.
func askable(name string, after time.Time, n int) error {
	if n > maxNext {
		return invalid(name, "%d fire times: at most %d", n, maxNext)
	}
	if err := client.CheckTime("after", after); err != nil && !after.IsZero() {
		return invalid(name, "%s", err)
	}
	return nil
}

// following lists fire times.
func following(times *firetimes.Times, after time.Time, n int) (all []time.Time) {
	for len(all) < n {
		after = times.Next(after)
		if after.IsZero() {
			break
		}
		all = append(all, after)
	}
	return all
}

// Change is one field that differs.
type Change struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// field is one field of a definition as a text, by its YAML name.
type field struct{ name, value string }

// fieldsOf lists all fields of a definition, with the defaults filled in.
func fieldsOf(d Definition) []field {
	d = d.WithDefaults()
	headers, err := tocsin.HeadersOf(d.Headers)
	if err != nil {
		headers = tocsin.Headers(err.Error()) // refused before
	}
	biz := ""
	if d.BizID != 0 {
		biz = strconv.FormatUint(d.BizID, 10)
	}
	return []field{
		{"name", d.Name}, {"app", d.App}, {"biz_type", d.BizType}, {"biz_id", biz}, {"key", d.Key},
		{"cron", d.Cron}, {"zone", d.Zone}, {"start", shown(d.Start)}, {"end", shown(d.End)}, {"jitter", d.Jitter.String()},
		{"payload", d.Payload}, {"payload_version", strconv.Itoa(d.PayloadVersion)}, {"headers", string(headers)}, {"start_within", d.StartWithin.String()},
		{"missed", string(d.Missed)}, {"missed_most", strconv.Itoa(d.MissedMost)}, {"overlap", string(d.Overlap)},
		{"pause_after", strconv.Itoa(d.PauseAfter)},
	}
}

// shown writes an instant; "" for none.
func shown(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// differences lists the fields that a new definition changes.
func differences(old, wanted Definition) (all []Change) {
	before, after := fieldsOf(old), fieldsOf(wanted)
	for i, f := range before {
		if f.value != after[i].value {
			all = append(all, Change{f.name, f.value, after[i].value})
		}
	}
	return all
}
