// Package firetimes is the authority for when a schedule fires: the times of a cron expression in a time zone, or of
// a fixed period. It is pure: no database, no clock, no goroutine.
//
// robfig/cron parses the expression, and only parses. A wall clock in UTC, which has neither gaps nor repeated hours,
// is searched for times that match; each is then mapped to the instant when the zone's clocks show it:
//
//	hour field                   wall time skipped when clocks go forward   wall time repeated when clocks go back
//	every hour (*, */1, 0-23)    no fire time                               a fire time at each pass
//	anything else                one fire time, when the gap ends           a fire time at the first pass
//
// However many wall times one gap skips, it has one fire time, which is also that of a wall time that matches when
// the gap ends. A gap may be a whole day: Samoa skipped 2011-12-30.
//
// Day of month and day of week follow the standard: if one of them is *, a day must match the other; if both are
// restricted, a day matches if one of them does. */2 is a restriction.
//
// A zone's rules are those of the machine, or else those that are compiled in (time/tzdata).
package firetimes

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
	_ "time/tzdata" // a machine without zone data
)

// Spec says when a schedule fires.
type Spec struct {
	// Cron has five fields, or is a descriptor: @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or
	// @every with a period of at least a second in whole milliseconds, such as "@every 90s".
	Cron string
	// Zone is an IANA time zone such as Europe/Berlin; "" is UTC. @every ignores it, but it must be valid.
	Zone string
	// Start and End bound the nominal times t: Start <= t < End. Zero: no bound.
	Start, End time.Time
	// Anchor is what @every counts from: its times are Anchor plus and minus whole periods. Parts of a millisecond are
	// dropped. Zero: 1970-01-01 00:00 UTC.
	Anchor time.Time
	// Jitter is the bound of Offset: whole milliseconds, at least 0, less than the shortest interval between two times.
	Jitter time.Duration
	// Seed draws Offset: the schedule_id.
	Seed uint64
}

// Times are the fire times of a Spec. They may be used concurrently.
type Times struct {
	spec   Spec
	zone   zone
	every  int64 // ms; 0: fields
	fields fields
	offset time.Duration
}

// The first fire time of an expression is at most maxWait after its start, or it is refused. Next looks farther, as
// 29 February is eight years away in 2096: what was accepted once never ends by itself.
const (
	maxWait    = 5    // years
	lookAhead  = 9    // years
	lastYear   = 9999 // of MySQL's DATETIME
	secondsDay = 24 * 60 * 60
)

// reference stands in for Start and Anchor in the check of maxWait, so that Parse does not depend on today.
var reference = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Parse checks the whole Spec. Its error is one line that says what to do.
func Parse(s Spec) (*Times, error) {
	t := &Times{spec: s}
	var err error
	if t.zone, err = zoneOf(s.Zone); err != nil {
		return nil, err
	}
	if t.every, t.fields, err = parseCron(s.Cron); err != nil {
		return nil, err
	}
	if err := t.checkBounds(); err != nil {
		return nil, err
	}
	if err := t.checkJitter(); err != nil {
		return nil, err
	}
	t.offset = offset(s.Jitter, s.Seed)
	return t, nil
}

// Next returns the first nominal time after the given one, in UTC and in whole milliseconds, and the zero time if there
// is none: the schedule has ended, or the time would be after the year 9999. It looks at most nine years ahead.
func (t *Times) Next(after time.Time) time.Time {
	if after.Before(t.spec.Start) {
		after = t.spec.Start.Add(-1)
	}
	if after.Before(time.Time{}) {
		after = time.Time{}
	}
	if after.Year() > lastYear {
		return time.Time{}
	}
	next := t.next(after.UTC())
	if next.Year() > lastYear || !t.spec.End.IsZero() && !next.Before(t.spec.End) {
		return time.Time{}
	}
	return next
}

// Has reports whether a time is a nominal time.
func (t *Times) Has(at time.Time) bool { return t.Next(at.Add(-time.Millisecond)).Equal(at) }

// Offset returns how much later than its nominal time each run is due: a constant of [0, Jitter).
func (t *Times) Offset() time.Duration { return t.offset }

// Location returns the time zone.
func (t *Times) Location() *time.Location { return t.zone.loc }

// next is Next without Start and End.
func (t *Times) next(after time.Time) time.Time {
	if t.every > 0 {
		return nextPeriod(t.spec.Anchor, t.every, after)
	}
	return t.zone.next(t.fields, after)
}

// nextPeriod returns the first of anchor, anchor +- period, anchor +- 2 periods ... that is after the given time.
func nextPeriod(anchor time.Time, period int64, after time.Time) time.Time {
	var from int64
	if !anchor.IsZero() {
		from = anchor.UnixMilli()
	}
	since := after.UnixMilli() - from
	return time.UnixMilli(from + (floorDiv(since, period)+1)*period).UTC()
}

// checkBounds refuses an end that is not after the start, and times that never come.
func (t *Times) checkBounds() error {
	s := t.spec
	for _, at := range []time.Time{s.Start, s.End, s.Anchor} {
		if at.Year() < 1 || at.Year() > lastYear {
			return fmt.Errorf("%s is not in the years 1 to 9999: correct the start, end or anchor", stamp(at))
		}
	}
	if !s.Start.IsZero() && !s.End.IsZero() && !s.Start.Before(s.End) {
		return fmt.Errorf("start %s is not before end %s: set an earlier start or a later end", stamp(s.Start), stamp(s.End))
	}
	from := s.Start
	if from.IsZero() {
		from = s.Anchor
	}
	if from.IsZero() {
		from = reference
	}
	limit := from.AddDate(maxWait, 0, 0)
	period := time.Duration(t.every) * time.Millisecond
	if next := t.next(from.Add(-1)); next.IsZero() || next.After(limit) || from.Add(period).After(limit) {
		return fmt.Errorf("cron expression %q has no fire time within five years of %s: change its day or month, or its period", s.Cron, stamp(from))
	} else if !s.Start.IsZero() && !s.End.IsZero() && !next.Before(s.End) {
		return fmt.Errorf("cron expression %q has no fire time between start %s and end %s: set a later end", s.Cron, stamp(s.Start), stamp(s.End))
	}
	return nil
}

// checkJitter refuses a jitter that might reach the next fire time.
func (t *Times) checkJitter() error {
	jitter := t.spec.Jitter
	switch {
	case jitter < 0:
		return fmt.Errorf("jitter %v is negative: want 0 or more", jitter)
	case jitter%time.Millisecond != 0:
		return fmt.Errorf("jitter %v is not in whole milliseconds: round it", jitter)
	case jitter == 0:
		return nil
	}
	if shortest := t.shortest(jitter); jitter >= shortest {
		return fmt.Errorf("jitter %v is not below the shortest interval of %q, which may be %v: set a shorter jitter", jitter, t.spec.Cron, shortest)
	}
	return nil
}

// offset draws from a hash, as neighbouring ids must not fire at neighbouring times. It never changes: runs that were
// made would be due at other times than those to come.
func offset(jitter time.Duration, seed uint64) time.Duration {
	if jitter == 0 {
		return 0
	}
	hash := sha256.Sum256(binary.BigEndian.AppendUint64(nil, seed))
	return time.Duration(binary.BigEndian.Uint64(hash[:8])%uint64(jitter/time.Millisecond)) * time.Millisecond
}

// stamp is how errors show a time.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
