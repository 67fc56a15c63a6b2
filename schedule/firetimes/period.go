package firetimes

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const maxPeriod = maxWait * 366 * 24 * time.Hour

// units are those that a period is read from, each also with an s behind it.
var units = map[string]time.Duration{
	"ms": time.Millisecond, "millisecond": time.Millisecond, "s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "h": time.Hour, "hr": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "w": 7 * 24 * time.Hour, "wk": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// smaller is the unit of a last number that has none, as in 1h30.
var smaller = map[time.Duration]time.Duration{time.Hour: time.Minute, time.Minute: time.Second}

var (
	amount = regexp.MustCompile(`^(\d+(?:\.\d+)?) *([a-z]*) *(?:and )? *`)
	iso    = regexp.MustCompile(`^(?:r\d*/(?:[^/]*/)?)?p((?:[\d.]+[wd])*)(?:t((?:[\d.]+[hms])+))?$`) // ISO 8601: PT1H30M
	uneven = regexp.MustCompile(`(?i)(\b|\d)(mo|mos|months?|y|yrs?|years?|quarters?)\b|^p[\d.]+[my]`)
)

// periodOf reads a period in days, weeks, words or ISO 8601, such as "1d", "5 minutes", "1.5h" or "PT1H". One that is longer than
// maxPeriod may be cut.
func periodOf(text string) (period time.Duration, ok bool) {
	rest := strings.ToLower(strings.TrimSpace(text))
	if found := iso.FindStringSubmatch(rest); found != nil {
		rest = found[1] + found[2]
	}
	if _, known := units[strings.TrimSuffix(rest, "s")]; known {
		rest = "1 " + rest // "every day"
	}
	var sum float64
	var unit time.Duration
	for rest != "" {
		found := amount.FindStringSubmatch(rest)
		if found == nil {
			return 0, false
		}
		n, err := strconv.ParseFloat(found[1], 64)
		switch of, known := units[found[2]]; {
		case known:
			unit = of
		case found[2] == "":
			unit = smaller[unit]
		default:
			unit = units[strings.TrimSuffix(found[2], "s")]
		}
		if err != nil || unit == 0 {
			return 0, false
		}
		sum, rest, ok = sum+n*float64(unit), rest[len(found[0]):], true
	}
	return time.Duration(math.Round(min(sum, float64(2*maxPeriod)))), ok
}

// advisePeriod says what is wrong with a text that is no period.
func advisePeriod(text string) error {
	text = strings.TrimSpace(text)
	_, number := strconv.ParseFloat(text, 64)
	switch period, ok := periodOf(text); {
	case text == "":
		return errors.New(`no period: want a duration such as "@every 90s" or "@every 1h30m"`)
	case number == nil && text[0] <= '9':
		return fmt.Errorf(`the period %s has no unit: write "@every %ss", or with m or h`, text, text)
	case ok && period > maxPeriod:
		return fmt.Errorf("the period %q is too long: want at most five years", text)
	case ok:
		return orWrite("a period has h, m, s or ms, and no spaces", "@every "+short(period))
	case strings.Contains(text, ","):
		return fmt.Errorf("%q is a list: want one period, such as %q", text, "@every 1h30m")
	case uneven.MatchString(text):
		return fmt.Errorf(`the period %q differs in length: write "@monthly", "@yearly", or five fields such as "0 0 1 */3 *"`, text)
	}
	return fmt.Errorf(`%q is no period: want a duration in h, m, s and ms such as "@every 90s", or five fields such as "0 9 * * 1"`, text)
}

// short writes a duration without units of zero.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
