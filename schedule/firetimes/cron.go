package firetimes

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/robfig/cron/v3"
)

// parser reads five fields and descriptors. Only its bit sets are used: its Next skips and doubles times when clocks
// change.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

const (
	maxExpression = 255         // characters
	minPeriod     = time.Second // of @every
	star          = 1 << 63
	allHours      = 1<<24 - 1
	hint          = `want five fields such as "*/5 * * * *", a descriptor such as @daily, or "@every 90s"`
)

var descriptors = []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}

// field is one of the five, in their order.
type field struct {
	name     string
	min, max int
	form     *regexp.Regexp
	values   string
	names    []string // of the values from min on
}

var (
	number = regexp.MustCompile(`^(\*|\?|[0-9]+(-[0-9]+)?)(/[0-9]+)?$`)
	named  = regexp.MustCompile(`^(\*|\?|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?$`)

	five = [...]field{
		{"minute", 0, 59, number, "0-59", nil},
		{"hour", 0, 23, number, "0-23", nil},
		{"day of month", 1, 31, number, "1-31", nil},
		{"month", 1, 12, named, "1-12 or jan-dec", strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
		{"day of week", 0, 6, named, "0-6 or sun-sat, Sunday is 0", strings.Fields("sun mon tue wed thu fri sat")},
	}
)

// fields are sets of values: bit n stands for n.
type fields struct {
	minute, hour, dom, month, dow uint64
	eitherDay                     bool // both days are restricted: a day needs to match one of them only
}

// everyHour reports whether each real hour counts: clocks that change neither add nor lose anything.
func (f fields) everyHour() bool { return f.hour&allHours == allHours }

// matchesDay reports whether a day of a month that matches is one of the fields.
func (f fields) matchesDay(day int, weekday time.Weekday) bool {
	dom, dow := f.dom>>day&1 == 1, f.dow>>weekday&1 == 1
	if f.eitherDay {
		return dom || dow
	}
	return dom && dow
}

// Values are those of an expression: bit n of each field stands for n. @every has a period, and none of them.
type Values struct {
	Minute, Hour, Dom, Month, Dow uint64
	EitherDay                     bool // both days are restricted: a day needs to match one of them only
	Every                         time.Duration
}

// ValuesOf reads an expression.
func ValuesOf(expression string) (Values, error) {
	every, f, err := parseCron(expression)
	return Values{f.minute, f.hour, f.dom, f.month, f.dow, f.eitherDay, time.Duration(every) * time.Millisecond}, err
}

// parseCron returns the period of @every in milliseconds, or the fields.
func parseCron(expression string) (every int64, f fields, err error) {
	e := strings.TrimSpace(expression)
	if n := utf8.RuneCountInString(e); n > maxExpression {
		return 0, f, fmt.Errorf("the cron expression has %d characters: want at most %d", n, maxExpression)
	}
	if every, f, err = read(e); err != nil {
		return 0, f, fmt.Errorf("cron expression %q: %w", expression, err)
	}
	return every, f, nil
}

// read is parseCron of a trimmed expression. What is wrong with the whole text hides what is wrong with a part of it.
func read(e string) (every int64, f fields, err error) {
	if period, ok := strings.CutPrefix(e, "@every"); ok && !strings.HasPrefix(period, "_") {
		every, err = parsePeriod(period)
	} else {
		f, err = parseFields(e)
	}
	if err != nil {
		if whole := adviseText(e); whole != nil {
			err = whole
		}
	}
	return every, f, err
}

// parsePeriod reads what follows @every.
func parsePeriod(text string) (int64, error) {
	period, err := time.ParseDuration(strings.TrimSpace(text))
	switch {
	case err == nil && text == strings.TrimLeft(text, " \t"):
		return 0, fmt.Errorf(`no space before the period: write "@every %s"`, text)
	case err != nil:
		return 0, advisePeriod(text)
	case period < minPeriod:
		return 0, fmt.Errorf("period %v is under a second: want at least 1s", period)
	case period%time.Millisecond != 0:
		return 0, fmt.Errorf("period %v is not in whole milliseconds: round it", period)
	}
	return period.Milliseconds(), nil
}

// parseFields reads anything but @every. It refuses what the parser takes, or refuses in words that help nobody.
func parseFields(e string) (fields, error) {
	if texts := strings.Fields(e); !slices.Contains(descriptors, e) {
		if len(texts) != len(five) {
			return fields{}, adviseCount(texts)
		}
		if err := checkFields(texts); err != nil {
			return fields{}, err
		}
	}
	parsed, err := parser.Parse(e)
	if err != nil {
		return fields{}, fmt.Errorf("%w: %s", err, hint)
	}
	s, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return fields{}, errors.New(hint)
	}
	return fields{
		minute: s.Minute &^ star, hour: s.Hour &^ star, dom: s.Dom &^ star, month: s.Month &^ star, dow: s.Dow &^ star,
		eitherDay: s.Dom&star == 0 && s.Dow&star == 0,
	}, nil
}

// checkFields checks the texts of the first fields, or of all.
func checkFields(texts []string) error {
	for i, text := range texts {
		for item := range strings.SplitSeq(text, ",") {
			if err := five[i].check(item); err != nil {
				return err
			}
		}
	}
	return nil
}

// check refuses an item of a field's list that the parser would misread: *-5 is * to it, and */90 is 0.
func (f field) check(item string) error {
	values, step, ok := strings.Cut(item, "/")
	err := f.checkValues(values)
	if !f.form.MatchString(item) {
		err = fmt.Errorf("field %s has %q: want *, values of %s, ranges such as 1-5, steps such as */2, and commas between them", f.name, item, f.values)
	}
	if err != nil {
		if advice := f.advise(item); advice != "" {
			return fmt.Errorf("field %s has %q: %s", f.name, item, advice)
		}
		return err
	}
	if !ok {
		return nil
	}
	if n, err := strconv.Atoi(step); err != nil || n < 1 || n > f.max-f.min+1 {
		return fmt.Errorf(`field %s has a step of %s: want 1 to %d, or "@every" with a period`, f.name, step, f.max-f.min+1)
	}
	return nil
}

// checkValues refuses a value or a range of values that the field does not have.
func (f field) checkValues(text string) error {
	if text == "*" || text == "?" {
		return nil
	}
	last := -1
	for value := range strings.SplitSeq(text, "-") {
		n, err := strconv.Atoi(value)
		if i := slices.Index(f.names, strings.ToLower(value)); i >= 0 {
			n, err = i+f.min, nil
		}
		if err != nil || n < f.min || n > f.max {
			return fmt.Errorf("field %s has %q: want values of %s", f.name, value, f.values)
		}
		if n < last {
			return fmt.Errorf("field %s has the range %s: want its lower value first, or two ranges", f.name, text)
		}
		last = n
	}
	return nil
}

// next returns the first wall time from from to before to that matches, as seconds since 1970 of a clock in UTC.
// from is a whole minute. It steps over months, days, hours that do not match: at most 366 steps a year.
func (f fields) next(from, to int64) (int64, bool) {
	for at := from; at < to; {
		date := time.Unix(at, 0).UTC()
		year, month, day := date.Date()
		if f.month>>month&1 == 0 {
			at = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Unix()
			continue
		}
		midnight := floorDiv(at, secondsDay) * secondsDay
		if f.matchesDay(day, date.Weekday()) {
			if minute, ok := f.minuteFrom(int(at-midnight) / 60); ok {
				at = midnight + int64(minute)*60
				return at, at < to
			}
		}
		at = midnight + secondsDay
	}
	return 0, false
}

// minuteFrom returns the first minute of a day that matches, at or after the given one.
func (f fields) minuteFrom(minute int) (int, bool) {
	hour := minute / 60
	if f.hour>>hour&1 == 1 {
		if rest := f.minute >> (minute % 60); rest != 0 {
			return minute + bits.TrailingZeros64(rest), true
		}
	}
	if later := f.hour >> (hour + 1); later != 0 {
		return (hour+1+bits.TrailingZeros64(later))*60 + bits.TrailingZeros64(f.minute), true
	}
	return 0, false
}

// floorDiv rounds down, also below zero.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
