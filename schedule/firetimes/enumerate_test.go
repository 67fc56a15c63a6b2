package firetimes_test

import (
	"slices"
	"time"
)

// This file is a second account of when an expression fires, which shares nothing with the first: it walks the real
// clock step by step, looks what time.In shows, and applies the rules of the package comment to what it saw.

// moment is a wall time, taken apart, and when the clocks showed it.
type moment struct {
	month          time.Month
	day, hour, min int
	weekday        time.Weekday
	passes         []int64 // instants, in order; none: skipped
	skippedUntil   int64   // the instant at which the clocks skipped it; 0: never
}

// walk is what a zone's clocks showed between two instants, by wall minute.
type walk struct {
	from, to int64
	first    int64 // the wall minute of moments[0]
	moments  []moment
}

// walkZone looks at the clock every step seconds: 60 where offsets are whole minutes, else 1. What happens within two
// days of the ends is seen but not reported, so that a pass outside is not missed.
func walkZone(loc *time.Location, from, to, step int64) *walk {
	const margin = 2 * 24 * 3600
	w := &walk{from: from, to: to, first: (from - margin) / 60}
	w.moments = make([]moment, (to-from+2*margin)/60)
	for i := range w.moments {
		at := time.Unix((w.first+int64(i))*60, 0).UTC() // the calendar, which has every minute
		w.moments[i] = moment{month: at.Month(), day: at.Day(), hour: at.Hour(), min: at.Minute(), weekday: at.Weekday()}
	}
	before := wallAt(loc, from-margin)
	for at := from - margin + step; at < to+margin; at += step {
		wall := wallAt(loc, at)
		for skipped := before + step; skipped < wall; skipped += step {
			if m := w.at(skipped); m != nil && m.skippedUntil == 0 {
				m.skippedUntil = at
			}
		}
		if m := w.at(wall); m != nil {
			m.passes = append(m.passes, at)
		}
		before = wall
	}
	return w
}

// wallAt is the date and time of day in the zone, counted as if it were UTC.
func wallAt(loc *time.Location, instant int64) int64 {
	t := time.Unix(instant, 0).In(loc)
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC).Unix()
}

// at returns the moment of a wall time in seconds, nil if it is no whole minute or outside.
func (w *walk) at(wall int64) *moment {
	if i := wall/60 - w.first; wall%60 == 0 && i >= 0 && i < int64(len(w.moments)) {
		return &w.moments[i]
	}
	return nil
}

// fires applies the rules: the instants in [from, to), in order.
func (w *walk) fires(e expression) []int64 {
	var all []int64
	for i := range w.moments {
		m := &w.moments[i]
		if !e.matches(m) {
			continue
		}
		switch {
		case len(e.hours) == 24:
			all = append(all, m.passes...)
		case len(m.passes) > 0:
			all = append(all, m.passes[0])
		case m.skippedUntil != 0:
			all = append(all, m.skippedUntil)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(at int64) bool { return at < w.from || at >= w.to })
}

// expression is what the test wrote as text, kept as sets: the text is not parsed.
type expression struct {
	text                                  string
	minutes, hours, days, months, weekday map[int]bool
	dayStar, weekdayStar                  bool
}

func (e expression) matches(m *moment) bool {
	if !e.minutes[m.min] || !e.hours[m.hour] || !e.months[int(m.month)] {
		return false
	}
	day, weekday := e.days[m.day], e.weekday[int(m.weekday)]
	switch {
	case e.dayStar && e.weekdayStar:
		return true
	case e.dayStar:
		return weekday
	case e.weekdayStar:
		return day
	}
	return day || weekday
}
