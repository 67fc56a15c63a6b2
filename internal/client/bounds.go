package client

import (
	"fmt"
	"time"
)

// The seconds that a DATETIME of both servers holds. Times are compared by their seconds: package time compares others than those
// near the year 1 wrongly from year 292277026596 on, which time.Unix(math.MaxInt64, 0) is.
var (
	firstSecond = time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	lastSecond  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
)

// CheckTime refuses a time that no column holds: its year is below 1000 or above 9999. The message begins with what.
func CheckTime(what string, t time.Time) error {
	switch s := t.Unix(); {
	case s < firstSecond && t.UTC().Year() >= 1000: // package time counts a year that is far enough back as one far ahead
		return Refuse(ErrInvalid, "%s %d s before 1970: before the year 1000", what, -uint64(s))
	case s < firstSecond:
		return Refuse(ErrInvalid, "%s %s: before the year 1000", what, t.UTC().Format(time.RFC3339))
	case s > lastSecond:
		return Refuse(ErrInvalid, "%s %s: after the year 9999", what, t.UTC().Format(time.RFC3339))
	}
	return nil
}

// CheckSpan refuses a span of time that has no time in it, or that no column holds. A zero time is no bound.
func CheckSpan(from string, begin time.Time, to string, end time.Time) error {
	for what, t := range map[string]time.Time{from: begin, to: end} {
		if t.IsZero() {
			continue
		}
		if err := CheckTime(what, t); err != nil {
			return err
		}
	}
	if !end.IsZero() && begin.After(end) {
		return Refuse(ErrInvalid, "%s %s is after %s %s: swap them", from, begin.UTC().Format(time.RFC3339Nano), to, end.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// maxDuration is longer than anything that a program waits for, and short enough for sums and multiples.
const maxDuration = MaxAhead * 365 * 24 * time.Hour

// CheckDuration returns what is wrong with a duration of a config, whose name what is.
func CheckDuration(what string, d time.Duration) error {
	if d < 0 || d > maxDuration {
		return fmt.Errorf("%s %s: use 0 to %s", what, d, maxDuration)
	}
	return nil
}
