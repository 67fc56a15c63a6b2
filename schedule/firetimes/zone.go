package firetimes

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"time"
)

// zone maps wall times to instants. Both are seconds since 1970, of a clock in UTC and of the real one.
type zone struct {
	loc     *time.Location
	changes func() []change // read once, when a jitter asks
}

// span is a time in which the zone's clocks run on: wall = instant + offset for start <= instant < end.
type span struct{ start, end, offset int64 }

const (
	// The offset of a zone is within a day of UTC, also of ships that changed sides of the date line: an instant
	// is at most that far from the wall time that was taken for one in UTC.
	maxOffset = 26 * 60 * 60
	// No zone changes its clocks as often in lookAhead years. It bounds Next if zone data is broken.
	maxSpans = 200
)

// zones holds what LoadLocation read, since it reads a file each time. A zone has one spelling, so there are about 600.
var zones = struct {
	sync.Mutex
	loaded map[string]zone
}{loaded: map[string]zone{}}

// maxZones bounds what zones holds, if the machine has more files of zones.
const maxZones = 1000

// zoneOf returns the zone of an IANA name.
func zoneOf(name string) (zone, error) {
	zones.Lock()
	defer zones.Unlock()
	if z, ok := zones.loaded[name]; ok {
		return z, nil
	}
	const use = "name an IANA time zone such as Europe/Berlin, or UTC"
	if why := foreignZone(name); why != "" {
		return zone{}, fmt.Errorf("zone %q %s: %s", name, why, use)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return zone{}, fmt.Errorf("zone %q is unknown: %s", name, use)
	}
	if len(zones.loaded) >= maxZones {
		clear(zones.loaded)
	}
	z := zone{loc: loc}
	z.changes = sync.OnceValue(z.changesOf)
	zones.loaded[name] = z
	return z, nil
}

// zoneForm is the form of the IANA's names. LoadLocation takes any path to the same file: Europe//Berlin, ./localtime.
var zoneForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z][A-Za-z0-9_+-]*)*$`)

// foreignZone says why a name that LoadLocation may know is not one of the IANA's; "" if it may be one.
func foreignZone(name string) string {
	switch dir, _, _ := strings.Cut(strings.ToLower(name), "/"); {
	case name == "":
		return "" // UTC
	case !zoneForm.MatchString(name):
		return "is unknown"
	case dir == "local" || dir == "localtime" || dir == "posixrules":
		return "means another time zone on each machine"
	case dir == "right" || dir == "posix":
		return "counts leap seconds or is a copy"
	}
	return ""
}

// next returns the first fire time after the given one, the zero time if there is none within lookAhead years.
func (z zone) next(f fields, after time.Time) time.Time {
	limit := after.AddDate(lookAhead, 0, 0).Unix()
	s := z.spanAt(after.Unix())
	for range maxSpans {
		if at, ok := z.nextIn(s, f, after.Unix(), min(s.end, limit)); ok {
			return time.Unix(at, 0).UTC()
		}
		if s.end >= limit {
			break
		}
		s = z.spanAt(s.end)
	}
	return time.Time{}
}

// nextIn returns the first fire time of a span, after the given instant and before the end.
func (z zone) nextIn(s span, f fields, after, end int64) (int64, bool) {
	if after < s.start {
		if z.firesAtGap(s, f) {
			return s.start, true
		}
		after = s.start - 1
	}
	for wall := floorDiv(after+s.offset, 60) * 60; ; {
		var ok bool
		if wall, ok = f.next(wall+60, end+s.offset); !ok {
			return 0, false
		}
		if at := wall - s.offset; f.everyHour() || z.instant(wall, s) == at {
			return at, true
		}
	}
}

// firesAtGap reports whether the clocks went forward when the span began and skipped a wall time that matches.
func (z zone) firesAtGap(s span, f fields) bool {
	if f.everyHour() {
		return false
	}
	from, to := s.start+z.spanAt(s.start-1).offset, s.start+s.offset
	for wall := floorDiv(from-1, 60) * 60; ; {
		var ok bool
		if wall, ok = f.next(wall+60, to); !ok {
			return false
		}
		if z.instant(wall, s) == s.start {
			return true
		}
	}
}

// instant returns when the wall time is there first, or, if the clocks skip it, when they do. near is a span about
// that time. math.MinInt64 if there is no such time.
func (z zone) instant(wall int64, near span) int64 {
	if near.start < wall-near.offset-2*maxOffset && wall < near.end+near.offset {
		return wall - near.offset // nothing was repeated or skipped for days
	}
	skipped := int64(math.MinInt64)
	s := z.spanAt(wall - maxOffset)
	for range maxSpans {
		if s.start+s.offset <= wall && wall < s.end+s.offset {
			return wall - s.offset
		}
		if s.end > wall+maxOffset {
			break
		}
		following := z.spanAt(s.end)
		if s.end+s.offset <= wall && wall < s.end+following.offset && skipped == math.MinInt64 {
			skipped = s.end
		}
		s = following
	}
	return skipped
}

// The years in which zones change: what lies beyond is taken for one span.
const (
	firstInstant = math.MinInt64 / 4
	lastInstant  = math.MaxInt64 / 4
)

// spanAt returns the span of an instant. Its end is after the instant, also on 31 December of leap years from 2038 on,
// for which ZoneBounds says that the clocks' time has ended that midnight; the offset is right, and holds until the
// year in UTC has ended.
func (z zone) spanAt(instant int64) span {
	at := time.Unix(instant, 0).In(z.loc)
	_, offset := at.Zone()
	s := span{start: firstInstant, end: lastInstant, offset: int64(offset)}
	start, end := at.ZoneBounds()
	if !start.IsZero() {
		s.start = start.Unix()
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	if s.end <= instant {
		s.end = (floorDiv(instant, secondsDay) + 1) * secondsDay
	}
	return s
}
