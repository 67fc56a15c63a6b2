package name

import (
	"errors"
	"regexp"
	"time"
)

// strict is the form of RFC 3339 from its fractions of a second on.
var strict = regexp.MustCompile(`^.{19}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// ReadTime reads a time of RFC 3339. time.Parse alone takes a zone of 24 hours, a comma as the point and hours of one digit, and it cuts off
// what is finer than a nanosecond.
func ReadTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || !strict.MatchString(text) {
		return time.Time{}, errors.New("want RFC 3339, as 2030-01-02T15:04:05Z")
	}
	return t, nil
}
