package name

import (
	"testing"
	"time"
)

// The samples follow the grammar and the restrictions of RFC 3339, 5.6 and 5.7. A leap second is no time of package time.
func TestTimesAreThoseOfRFC3339(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		"2030-01-02T15:04:05Z":                time.Date(2030, 1, 2, 15, 4, 5, 0, time.UTC),
		"2030-01-02T15:04:05.1Z":              time.Date(2030, 1, 2, 15, 4, 5, 100_000_000, time.UTC),
		"2030-01-02T15:04:05.123456789+23:59": time.Date(2030, 1, 1, 15, 5, 5, 123_456_789, time.UTC),
		"2030-01-02T15:04:05-00:00":           time.Date(2030, 1, 2, 15, 4, 5, 0, time.UTC),
		"2028-02-29T00:00:00-09:30":           time.Date(2028, 2, 29, 9, 30, 0, 0, time.UTC),
	} {
		if got, err := ReadTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "tomorrow", "2030-01-02", "2030-01-02T15:04", "2030-01-02T15:04Z", "2030-01-02T15:04:05", "2030-01-02 15:04:05Z", "2030-01-02T15:04:05Z ", " 2030-01-02T15:04:05Z",
		"2030-01-02T15:04:05,5Z", "2030-01-02T15:04:05.Z", "2030-01-02T15:04:05.1234567890Z", "2030-01-02T15:04:05.0000000001+01:00",
		"2030-01-02T15:04:05+24:00", "2030-01-02T15:04:05-24:00", "2030-01-02T15:04:05+99:00", "2030-01-02T15:04:05+01:60", "2030-01-02T15:04:05+0100", "2030-01-02T15:04:05+1:00", "2030-01-02T15:04:05+01",
		"2030-01-02T5:04:05Z", "2030-01-02T24:00:00Z", "2030-01-02T15:60:05Z", "2030-01-02T15:04:61Z", "2030-02-29T15:04:05Z", "2030-13-01T15:04:05Z", "2030-1-2T15:04:05Z", "+2030-01-02T15:04:05Z", "12030-01-02T15:04:05Z",
	} {
		if got, err := ReadTime(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
