package firetimes

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// This file words what is wrong with expressions of other dialects of cron, and what to write instead: first what the whole text is,
// then how many fields it has, then what a single field has. docs/schedules.md has a row for each kind, which a test reads.

const quotes = "\"'`“”‘’"

// Forms of whole texts.
var (
	comment  = regexp.MustCompile(`^(.*?)(?:^|\s)(#(?:\D.*)?)$`)
	rule     = regexp.MustCompile(`(?i)^(RRULE:|FREQ=)`)
	zoned    = regexp.MustCompile(`(?i)^(?:CRON_)?TZ\s*=\s*(\S*)(.*)$`)
	timer    = regexp.MustCompile(`(?i)^On[a-z]+\s*=`)
	variable = regexp.MustCompile(`^([A-Za-z_]\w*)(?:\s*=\s*|:\s+)("[^"]*"|'[^']*'|\S*)(.*)$`)
	called   = regexp.MustCompile(`^(?i)(cron|rate|at)\s*\((.*)\)$`)
	oneTime  = regexp.MustCompile(`^\d{4}-\d\d?-\d\d?([T ].*)?$`)
	inWords  = regexp.MustCompile(`(?i)^(?:every|each)\s+(.*)$`)
	words    = regexp.MustCompile(`(?i)^((every|each|daily|hourly|weekly|monthly|yearly|weekdays?|weekends?|on|at|once|twice|first|second|third|last|[1-5](st|nd|rd|th)|(mon|tues|wednes|thurs|fri|satur|sun)days?)\s|\d{1,2}(:\d\d)?\s?[ap]m\b)`)
	clock    = regexp.MustCompile(`^([01]?\d|2[0-3]):([0-5]\d)(?::00)?((?:\s+\S+){3})?$`)
	calendar = regexp.MustCompile(`(?:^|\s)\S*(\.\.|[\d*]:[\d*]|-\*)`)
	offsets  = regexp.MustCompile(`(?i)^(Z|[ACEHIJKMNP]K?[SD]T|[CEMW]E[SD]T|BST|(UTC|GMT)?[+-]\d{1,2}(:?\d\d)?)$`) // zones without an IANA name
)

// adviseText says what an expression that can't be read is as a whole; nil: nothing is known of it.
func adviseText(e string) error {
	var found []string
	is := func(form *regexp.Regexp) bool { found = form.FindStringSubmatch(e); return found != nil }
	texts := strings.Fields(e)
	switch {
	case strings.Trim(e, quotes) != e:
		return orWrite("leave out the quotes", strings.Trim(e, quotes))
	case is(comment) && strings.TrimSpace(found[1]) == "":
		return orWrite("it is a comment: leave out the #", strings.TrimLeft(found[2], "#"))
	case is(comment):
		return orWrite(fmt.Sprintf("it has a comment, %q: leave it out", found[2]), found[1])
	case is(rule):
		return fmt.Errorf("it is a rule of iCalendar: %s", hint)
	case is(zoned):
		return orWrite("it names a time zone: put the zone into the field zone", found[2])
	case is(timer):
		return errCalendar
	case is(variable):
		return adviseVariable(e, found)
	case is(called):
		return adviseCall(strings.ToLower(found[1]), strings.TrimSpace(found[2]))
	case is(oneTime):
		return errOneTime
	case len(texts) > 1 && isZone(texts[len(texts)-1]):
		return orWrite(fmt.Sprintf("it goes on with a time zone, %q: put it into the field zone", texts[len(texts)-1]), strings.Join(texts[:len(texts)-1], " "))
	}
	return adviseWords(e, texts)
}

var (
	errOneTime  = errors.New("it is for one time, and a schedule repeats: add a task that is due then")
	errCalendar = fmt.Errorf("it is a calendar event of systemd: want the five fields minute, hour, day of month, month and day of week: daily at 04:30 is %q", "30 4 * * *")
)

// adviseWords is adviseText of periods, words, times of the day, calendar events and macros.
func adviseWords(e string, texts []string) error {
	if found := inWords.FindStringSubmatch(e); found != nil {
		if _, ok := periodOf(found[1]); ok {
			return adviseEvery("it is a period", found[1])
		}
		if uneven.MatchString(found[1]) {
			return advisePeriod(found[1])
		}
	}
	_, isPeriod := periodOf(e)
	switch found := clock.FindStringSubmatch(e); {
	case isPeriod && strings.ContainsAny(e, "0123456789"):
		return adviseEvery("it is a period", e)
	case words.MatchString(e):
		return fmt.Errorf("it is in words: want five fields: each day at 09:00 is %q, and each Monday %q", "0 9 * * *", "0 9 * * 1")
	case found != nil && found[3] == "":
		return orWrite("it is a time of the day", decimal(found[2])+" "+decimal(found[1])+" * * *")
	case found != nil:
		return orWrite("the hour and the minute are fields of their own", decimal(found[2])+" "+decimal(found[1])+found[3])
	case len(texts) < len(five) && calendar.MatchString(e):
		return errCalendar
	case strings.HasPrefix(e, "@") || len(texts) == 1:
		return adviseMacro(texts)
	}
	return nil
}

// decimal leaves out a zero before a digit.
func decimal(n string) string { return strings.TrimLeft(n[:len(n)-1], "0") + n[len(n)-1:] }

// adviseEvery says what to write for a text that would be a period of @every.
func adviseEvery(what, text string) error {
	if period, ok := periodOf(text); ok && period <= maxPeriod {
		return orWrite(what, "@every "+short(period))
	}
	return fmt.Errorf("%s: %w", what, advisePeriod(text))
}

// isZone reports whether a text is a time zone, by a name of the IANA's or by another one.
func isZone(text string) bool {
	_, err := zoneOf(text)
	return err == nil || offsets.MatchString(text)
}

// adviseVariable is for NAME=value as in a crontab, and for NAME: as in YAML.
func adviseVariable(e string, found []string) error {
	if _, yaml, ok := strings.Cut(e, ":"); ok && strings.HasPrefix(e, found[1]+":") {
		return orWrite(fmt.Sprintf("leave out %q", found[1]+":"), yaml)
	}
	return orWrite(fmt.Sprintf("it sets %s, as a crontab does: leave that out", found[1]), found[3])
}

// adviseCall says what to write instead of AWS's cron(...), rate(...) and at(...).
func adviseCall(name, in string) error {
	texts := strings.Fields(in)
	switch {
	case name == "at":
		return errOneTime
	case name == "rate":
		return adviseEvery("there is no rate()", in)
	case len(texts) == 6:
		return orWrite(fmt.Sprintf("there is no cron(): its last field, %q, is a year: leave it out, and set start and end", texts[5]), nameDays(texts[:5], 1))
	}
	return orWrite("there is no cron()", nameDays(texts, 1))
}

// macros are words of other dialects, without their @.
var macros = map[string]string{
	"every_second": "@every 1s", "secondly": "@every 1s", "second": "@every 1s", "minute": "* * * * *", "every_minute": "* * * * *", "minutely": "* * * * *",
	"hour": "@hourly", "every_hour": "@hourly", "day": "@daily", "every_day": "@daily", "everyday": "@daily", "nightly": "@daily", "noon": "0 12 * * *",
	"week": "@weekly", "every_week": "@weekly", "weekly": "0 0 * * 1", "month": "@monthly", "every_month": "@monthly", "year": "@yearly", "every_year": "@yearly",
	"annually": "@yearly", "anually": "@yearly", "quarterly": "0 0 1 1,4,7,10 *", "semiannually": "0 0 1 1,7 *", "semi-annually": "0 0 1 1,7 *",
	"biannually": "0 0 1 1,7 *", "bi-annually": "0 0 1 1,7 *", "weekday": "0 0 * * 1-5", "weekdays": "0 0 * * 1-5",
	"weekend": "0 0 * * 6,0", "weekends": "0 0 * * 6,0", "fortnightly": "@every 336h", "biweekly": "@every 336h",
}

// adviseMacro says what to write instead of a word that is no descriptor, or has more behind it. nil: nothing is known of it. Only
// with @ is weekly on Sundays: systemd's is on Mondays.
func adviseMacro(texts []string) error {
	name, at := strings.CutPrefix(strings.ToLower(texts[0]), "@")
	rest := strings.Join(texts[1:], " ")
	instead := macros[name]
	if is := "@" + name; slices.Contains(descriptors, is) && (at || instead == "") {
		instead = is
	}
	period, underscored := strings.CutPrefix(strings.ReplaceAll(name, "_", " "), "every ")
	_, isPeriod := periodOf(period)
	switch {
	case name == "every" && texts[0] != "@every":
		return orWrite("there is no "+texts[0], "@every "+rest)
	case instead == "" && underscored && isPeriod: // @every_5_minutes
		return adviseEvery("there is no "+texts[0], period)
	case instead == "" && at && (!strings.HasPrefix(texts[0], "@every") || underscored):
		return fmt.Errorf(`there is no such descriptor: want one of %s, or "@every 90s"`, strings.Join(descriptors, ", "))
	case instead == "":
		return nil
	case instead == texts[0]:
		return fmt.Errorf("it goes on with %q: write %q, or five fields", rest, instead)
	}
	return fmt.Errorf("there is no %s: write %q", texts[0], instead)
}

// orWrite says what to do, and what to write if that is then right.
func orWrite(what, instead string) error {
	instead = strings.TrimSpace(instead)
	if _, _, err := read(instead); err != nil {
		return fmt.Errorf("%s; and then %w", what, err)
	}
	return fmt.Errorf("%s: write %q", what, instead)
}
