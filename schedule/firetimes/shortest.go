package firetimes

import "time"

// The calendar repeats its sequences of month lengths and weekdays within these years: all that come up before 2400.
var (
	calendarFrom = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	calendarTo   = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
)

// The years whose changes of clocks shortest respects. Rules of today are repeated each year, and Morocco's, which
// follow the moon, are known until 2087.
var (
	changesFrom = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	changesTo   = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
)

// change is one way in which a zone's clocks change: at a time of the day by the old offset.
type change struct{ timeOfDay, before, after int64 }

// shortest returns a lower bound of the interval between two fire times, the longer one of two that both hold. It
// stops when it is above the duration that matters.
//
//	all intervals      the shortest on a wall clock that never changes, less the spread of the zone's offsets. For
//	                   fields with every hour this does not hold, as one wall time may fire twice.
//	wall, changes      the shortest on a wall clock, or the shortest about a change of clocks if every day matched. Days
//	                   that do not match take fire times away, which makes no interval shorter.
func (t *Times) shortest(matters time.Duration) time.Duration {
	if t.every > 0 {
		return time.Duration(t.every) * time.Millisecond
	}
	changes := t.zone.changes()
	bound := func(wall int64) time.Duration {
		about := wall
		for _, c := range changes {
			about = min(about, t.fields.about(c, wall))
		}
		if !t.fields.everyHour() {
			about = max(about, wall-spread(changes))
		}
		return time.Duration(about) * time.Second
	}
	if b := bound(t.fields.shortestWall(1)); b > matters {
		return b
	}
	return bound(t.fields.shortestWall(t.fields.shortestDays()))
}

// shortestWall returns the shortest interval on a wall clock, in seconds, if so many days lie between two that match.
func (f fields) shortestWall(days int64) int64 {
	first, _ := f.minuteFrom(0)
	last, shortest := first, 24*60
	for {
		next, ok := f.minuteFrom(last + 1)
		if !ok {
			break
		}
		last, shortest = next, min(shortest, next-last)
	}
	overnight := days*secondsDay - int64(last-first)*60
	if first == last {
		return overnight
	}
	return min(overnight, int64(shortest)*60)
}

// shortestDays returns how many days the closest two days that match are apart.
func (f fields) shortestDays() int64 {
	daily := f
	daily.hour, daily.minute = 1, 1
	shortest := int64(calendarTo-calendarFrom) / secondsDay
	last, ok := daily.next(calendarFrom, calendarTo)
	for ok && shortest > 1 {
		var next int64
		if next, ok = daily.next(last+secondsDay, calendarTo); ok {
			last, shortest = next, min(shortest, (next-last)/secondsDay)
		}
	}
	return shortest
}

// about returns the shortest interval that a change of clocks makes if every day matches, and wall if it makes none
// shorter than others.
func (f fields) about(c change, wall int64) int64 {
	forward := c.after - c.before
	since, until := f.since(c.timeOfDay), f.until(c.timeOfDay+forward)
	switch {
	case f.everyHour():
		return since + until
	case forward <= 0:
		return wall // the repeated times only make the interval longer
	case f.until(c.timeOfDay) >= forward:
		return since + until // no fire time at the gap's end
	case until == 0:
		return since
	}
	return min(since, until)
}

// since returns the seconds from the last match before a second of the day, at most a day.
func (f fields) since(second int64) int64 {
	for at := floorDiv(second-1, 60); ; at-- {
		minute := at - floorDiv(at, 24*60)*24*60
		if f.hour>>(minute/60)&1 == 1 && f.minute>>(minute%60)&1 == 1 {
			return second - at*60
		}
	}
}

// until returns the seconds to the first match at or after a second, less than a day.
func (f fields) until(second int64) int64 {
	at := floorDiv(second+59, 60)
	midnight := floorDiv(at, 24*60) * 24 * 60
	minute, ok := f.minuteFrom(int(at - midnight))
	if !ok {
		minute, _ = f.minuteFrom(0)
		minute += 24 * 60
	}
	return (midnight+int64(minute))*60 - second
}

// spread returns by how much offsets differ.
func spread(changes []change) int64 {
	if len(changes) == 0 {
		return 0
	}
	least, most := changes[0].before, changes[0].before
	for _, c := range changes {
		least, most = min(least, c.after), max(most, c.after)
	}
	return most - least
}

// changesOf lists how the zone's clocks change between changesFrom and changesTo, each way once.
func (z zone) changesOf() (changes []change) {
	seen := map[change]bool{}
	for s := z.spanAt(changesFrom); s.end < changesTo; {
		following := z.spanAt(s.end)
		local := s.end + s.offset
		c := change{timeOfDay: local - floorDiv(local, secondsDay)*secondsDay, before: s.offset, after: following.offset}
		if c.before != c.after && !seen[c] {
			seen[c] = true
			changes = append(changes, c)
		}
		s = following
	}
	return changes
}
