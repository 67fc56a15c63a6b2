package firetimes

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file words what is wrong with expressions of other dialects of cron, and what to write instead. docs/schedules.md has them in a table,
// which a test reads.

// foreign are items of a field that other dialects have. A field without a name is any.
var foreign = []struct {
	field  string
	form   *regexp.Regexp
	advice string
}{
	{"day of month", regexp.MustCompile(`(?i)^(L|LW|L-\d+)$`), "the last days of a month have no sign here: write 28-31, and have the handler pass over the other days"},
	{"day of month", regexp.MustCompile(`(?i)^\d+W$`), "the nearest weekday has no sign here: write the days that it may be, and have the handler pass over the others"},
	{"day of week", regexp.MustCompile(`(?i)^[0-9a-z]*L$`), "the last such day of a month has no sign here: write the day alone, such as 5, and have the handler pass over the other weeks"},
	{"day of week", regexp.MustCompile(`^[0-9A-Za-z]+#\d+$`), "the nth such day of a month has no sign here: write the day alone, such as 5, and have the handler pass over the other weeks"},
	{"", regexp.MustCompile(`^H(\(.*\))?(/\d+)?$`), "write a value or a step, such as 7 or */15, and set jitter to spread schedules"},
	{"", regexp.MustCompile(`~`), "there are no random values: write one value, and set jitter"},
	{"", regexp.MustCompile(`\.\.`), "write ranges with -, such as 1-5"},
	{"", regexp.MustCompile(`:`), "write the hour and the minute in fields of their own: 09:30 is 30 9"},
}

// advise says what to write instead of an item that the field does not have; "": nothing is known of it.
func (f field) advise(item string) string {
	for _, o := range foreign {
		if (o.field == "" || o.field == f.name) && o.form.MatchString(item) {
			return o.advice
		}
	}
	for i, name := range f.names {
		for word := range strings.FieldsFuncSeq(strings.ToLower(item), func(r rune) bool { return r == '-' || r == '/' }) {
			if len(word) > 3 && strings.HasPrefix(word, name) {
				return fmt.Sprintf("write %s or %d", name, i+f.min)
			}
		}
	}
	if f.name == "day of week" && strings.Contains(item, "7") {
		return "want values of " + f.values + ": 7 is Sunday in some crons and Saturday in others, so write 0 or sun, or 6 or sat"
	}
	return ""
}

// macros are words of other dialects, without their @.
var macros = map[string]string{
	"every_minute": "* * * * *", "minutely": "* * * * *", "every_second": "@every 1s", "secondly": "@every 1s", "quarterly": "0 0 1 1,4,7,10 *",
	"semiannually": "0 0 1 1,7 *", "weekdays": "0 0 * * 1-5", "weekends": "0 0 * * 6,0", "fortnightly": "@every 336h", "biweekly": "@every 336h",
}

// adviseWord says what to write instead of a word that is no descriptor, or has more behind it; nil: nothing is known of it.
func adviseWord(word string) error {
	word, rest, more := strings.Cut(word, " ")
	name := strings.ToLower(strings.TrimPrefix(word, "@"))
	switch instead, ok := macros[name]; {
	case more && slices.Contains(descriptors, word):
		return fmt.Errorf("it goes on with %q: write %q, and put a time zone into the field zone", strings.TrimSpace(rest), word)
	case ok:
		return fmt.Errorf("there is no %s: write %q", word, instead)
	case slices.Contains(descriptors, "@"+name):
		return fmt.Errorf("there is no %s: write %q", word, "@"+name)
	}
	return nil
}

// Names of units of time, in what a Duration is read from.
var (
	units = map[string]time.Duration{
		"s": time.Second, "sec": time.Second, "second": time.Second, "m": time.Minute, "min": time.Minute, "minute": time.Minute,
		"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour, "w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
	}
	amount = regexp.MustCompile(`^(\d+) *([a-z]*) *(?:,|and)? *`)
)

// periodOf reads a period in days, weeks and words, such as "1d", "5 minutes" or "1d12h".
func periodOf(text string) (period time.Duration, ok bool) {
	rest := strings.ToLower(strings.TrimSpace(text))
	if _, known := units[strings.TrimSuffix(rest, "s")]; known {
		rest = "1 " + rest // "every day"
	}
	for ok = rest != ""; ok && rest != ""; {
		found := amount.FindStringSubmatch(rest)
		if found == nil {
			return 0, false
		}
		unit, known := units[found[2]]
		if !known {
			unit, known = units[strings.TrimSuffix(found[2], "s")]
		}
		n, err := strconv.Atoi(found[1])
		if !known || err != nil || n > 100_000 {
			return 0, false
		}
		period, rest = period+time.Duration(n)*unit, rest[len(found[0]):]
	}
	return period, ok
}

// advisePeriod says what is wrong with a text that is no period.
func advisePeriod(text string) error {
	text = strings.TrimSpace(text)
	if _, err := strconv.Atoi(text); err == nil {
		return fmt.Errorf(`the period %s has no unit: write "@every %ss", or with m or h`, text, text)
	}
	if period, ok := periodOf(text); ok {
		return fmt.Errorf("the period %q has a unit that is not h, m, s or ms: write \"@every %s\"", text, short(period))
	}
	if strings.Contains(strings.ToLower(text), "mo") || strings.Contains(strings.ToLower(text), "year") {
		return fmt.Errorf(`the period %q differs in length: write "@monthly", "@yearly", or five fields such as "0 0 1 */3 *"`, text)
	}
	if text == "" {
		return errors.New(`no period: want a duration such as "@every 90s" or "@every 1h30m"`)
	}
	return fmt.Errorf(`%q is no period: want a duration in h, m, s and ms such as "@every 90s" or "@every 1h30m"`, text)
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

// Forms of whole expressions of other dialects.
var (
	called   = regexp.MustCompile(`^(?i)(cron|rate|at)\((.*)\)$`)
	years    = regexp.MustCompile(`^(19|20)\d\d([-,/].*)?$`)
	calendar = regexp.MustCompile(`(?i)^oncalendar|\.\.|[\d*]:[\d*]|^\*-|-\*|^\d{4}-`)
	command  = regexp.MustCompile(`^(/|\./|[a-z_][a-z0-9_-]{3,}$|[a-z0-9_]+\.[a-z]+$)`)
	inWords  = regexp.MustCompile(`(?i)^every +(.*)$`)
)

// adviseWhole says what is wrong with an expression that has not five fields.
func adviseWhole(e string, texts []string) error {
	n := len(texts)
	if found := called.FindStringSubmatch(e); found != nil {
		return adviseCall(strings.ToLower(found[1]), strings.TrimSpace(found[2]))
	}
	if found := inWords.FindStringSubmatch(e); found != nil {
		if period, ok := periodOf(found[1]); ok {
			return fmt.Errorf("write %q", "@every "+short(period))
		}
	}
	if n == 1 {
		if err := adviseWord(e); err != nil {
			return err
		}
	}
	for _, text := range texts[:max(n-1, 0)] {
		if strings.HasSuffix(text, ",") {
			return fmt.Errorf("it has a space behind %q: write the list without spaces", text)
		}
	}
	switch {
	case n > len(five) && command.MatchString(texts[5]):
		return fmt.Errorf("it goes on with %q, as a crontab does: %s", texts[5], orWrite("leave out the user and the command", texts[:5]))
	case n < len(five) && slices.ContainsFunc(texts, calendar.MatchString):
		return fmt.Errorf("it is a calendar event of systemd: want the five fields minute, hour, day of month, month and day of week: daily at 04:30 is %q", "30 4 * * *")
	case n == 7:
		return fmt.Errorf("it has seven fields: the first, %q, is seconds and the last, %q, a year: %s", texts[0], texts[6], orWrite("leave out both, and set start and end for years", texts[1:6]))
	case n == 6 && (years.MatchString(texts[5]) || texts[2] == "?" || texts[4] == "?"):
		return fmt.Errorf("the last of its six fields, %q, is a year: %s", texts[5], orWrite("leave it out, and set start and end", texts[:5]))
	case n == 6 && strings.Trim(texts[0], "0") == "":
		return fmt.Errorf("the first of its six fields, %q, is seconds: %s", texts[0], orWrite("leave it out", texts[1:]))
	case n == 6:
		return fmt.Errorf(`the first of its six fields, %q, is seconds, and there are none: want five, or "@every 30s" for periods under a minute`, texts[0])
	case n > 0 && n < len(five) && checkFields(texts) == nil:
		return fmt.Errorf("it has %s, and lacks %s: %s", fieldsIn(n), missingFields(n), hint)
	}
	return fmt.Errorf("it has %s: %s", fieldsIn(n), hint)
}

func fieldsIn(n int) string {
	if n == 1 {
		return "1 field"
	}
	return fmt.Sprint(n, " fields")
}

// missingFields names the fields that an expression ends before.
func missingFields(n int) string {
	names := make([]string, 0, len(five))
	for _, f := range five[n:] {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// orWrite says what to do, and what to write if that is then right. Numbers for days of the week are other ones where seconds or years are.
func orWrite(what string, texts []string) string {
	instead := strings.Join(texts, " ")
	if err := checkText(instead); err != nil {
		return what + "; and then " + err.Error()
	}
	if strings.ContainsAny(texts[4], "0123456789") && !strings.Contains(texts[4], "/") {
		what += " (days of the week count from Sunday, which is 0)"
	}
	return fmt.Sprintf("%s: write %q", what, instead)
}

// adviseCall says what to write instead of AWS's cron(...), rate(...) and at(...).
func adviseCall(name, in string) error {
	texts := strings.Fields(in)
	switch name {
	case "at":
		return errors.New("at() is for one time, and a schedule repeats: add a task that is due then")
	case "rate":
		if period, ok := periodOf(in); ok {
			return fmt.Errorf("there is no rate(): write %q", "@every "+short(period))
		}
		return fmt.Errorf("there is no rate(): %w", advisePeriod(in))
	}
	if len(texts) == 6 {
		return fmt.Errorf("there is no cron(): its last field, %q, is a year: %s", texts[5], orWrite("leave it out, and set start and end", texts[:5]))
	}
	return fmt.Errorf("there is no cron(): %s", orWrite("write what is in it", texts))
}
