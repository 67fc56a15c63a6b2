package firetimes

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	weekday  = `(?:[0-7]|(?:sun|mon|tue|wed|thu|fri|sat)(?:[a-z]*day)?)`
	weekdays = `(?:[*?]|L|` + weekday + `(?:-` + weekday + `|L|#-?[0-9L]+)?)(?:/\d+)?`
)

// Forms of fields that tell what the sixth and the seventh are.
var (
	isDays  = regexp.MustCompile(`(?i)^` + weekdays + `(?:,` + weekdays + `)*$`)
	isYears = regexp.MustCompile(`^(19|20)\d\d([-,/].*)?$`)
	command = regexp.MustCompile(`^(/|\./|[a-z_][a-z0-9_-]{2,}$|[a-z0-9_]+\.[a-z]+$)`)
)

// adviseCount says what is wrong with an expression that has not five fields.
func adviseCount(texts []string) error {
	n := len(texts)
	for _, text := range texts[:max(n-1, 0)] {
		if strings.HasSuffix(text, ",") {
			return fmt.Errorf("it has a space behind %q: write the list without spaces", text)
		}
	}
	switch {
	case n == 1:
		return fmt.Errorf("it has 1 field: %s", hint)
	case n > 0 && n < len(five) && checkFields(texts) == nil:
		return fmt.Errorf("it has %d fields, and lacks %s: %s", n, missingFields(n), hint)
	case n < len(five):
		return fmt.Errorf("it has %d fields: %s", n, hint)
	case n == 6 && (texts[2] == "?" || texts[4] == "?"): // the seconds' form has its ? one field later
		return orWrite(fmt.Sprintf("the last of its six fields, %q, is a year: leave it out, and set start and end", texts[5]), nameDays(texts[:5], 1))
	case n == 6 && isYears.MatchString(texts[5]):
		return orWrite(fmt.Sprintf("the last of its six fields, %q, is a year: leave it out, and set start and end", texts[5]), nameDays(texts[:5], 0))
	case n == 7 && isDays.MatchString(texts[5]) && (isYears.MatchString(texts[6]) || strings.Trim(texts[6], "*?") == ""):
		return orWrite(fmt.Sprintf("it has seven fields: the first, %q, is seconds and the last, %q, a year: leave out both, and set start and end for years", texts[0], texts[6]), nameDays(texts[1:6], 1))
	case n == 6 && isDays.MatchString(texts[5]):
		return adviseSix(texts)
	case command.MatchString(texts[5]):
		return orWrite(fmt.Sprintf("it goes on with %q, as a crontab does: leave out the user and the command", texts[5]), strings.Join(texts[:5], " "))
	default:
		return orWrite(fmt.Sprintf("it goes on with %q: leave that out", texts[5]), strings.Join(texts[:5], " "))
	}
}

// adviseSix is for seconds before five fields, and for five fields and one more. Some texts may be either.
func adviseSix(texts []string) error {
	fewer := slices.Clone(texts[:5])
	if strings.Trim(fewer[4], "*?") == "" {
		fewer[4] = texts[5]
	}
	either := texts[2] == "*" && texts[5] != "?" && checkFields(fewer) == nil
	seconds := "the first of its six fields, %q, is seconds"
	switch zero := strings.Trim(texts[0], "0") == ""; {
	case zero && either && strings.Trim(texts[1], "0123456789") == "":
		if behind := nameDays(texts[1:], 0); checkFields(strings.Fields(behind)) == nil {
			return fmt.Errorf("it has six fields: if the first, %q, is seconds, write %q; if one is too many, write %q", texts[0], behind, strings.Join(fewer, " "))
		}
	case zero:
		return adviseSeconds(fmt.Sprintf(seconds+": leave it out", texts[0]), texts[1:])
	case either:
		return fmt.Errorf(`it has six fields: if the first, %q, is seconds, there are none: want five, or "@every 30s" for periods under a minute; if one is too many, write %q`, texts[0], strings.Join(fewer, " "))
	}
	return fmt.Errorf(seconds+`, and there are none: want five, or "@every 30s" for periods under a minute`, texts[0])
}

// adviseSeconds says what to write for the five fields behind seconds. With a ? they are Quartz's or Spring's, whose days of the week have
// different numbers; without, their Sunday is 0 or 7.
func adviseSeconds(what string, texts []string) error {
	quartz, spring := nameDays(texts, 1), nameDays(texts, 0)
	if quartz == spring || texts[2] != "?" {
		return orWrite(what, spring)
	}
	return fmt.Errorf("%w if it is Quartz's, whose Sunday is 1; %w if it is Spring's", orWrite(what, quartz), orWrite("or", spring))
}

var dayNumber = regexp.MustCompile(`(^|[,-])[0-7]\b`)

// nameDays joins fields, with names for the days of the week of a dialect that counts Sunday as sunday, 0 or 1: names are the same in all.
func nameDays(texts []string, sunday int) string {
	if len(texts) < len(five) {
		return strings.Join(texts, " ")
	}
	if strings.Contains(texts[4], "0") {
		sunday = 0 // those that count from 1 have no 0
	}
	texts = slices.Clone(texts)
	texts[4] = dayNumber.ReplaceAllStringFunc(texts[4], func(day string) string {
		last := len(day) - 1
		return day[:last] + strings.ToUpper(five[4].names[(int(day[last]-'0')+7-sunday)%7])
	})
	return strings.Join(texts, " ")
}

// missingFields names the fields that an expression ends before.
func missingFields(n int) string {
	names := make([]string, 0, len(five))
	for _, f := range five[n:] {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// foreign are items of a field that other dialects have. A field without a name is any.
var foreign = []struct {
	field  string
	form   *regexp.Regexp
	advice string
}{
	{"day of month", regexp.MustCompile(`(?i)^(L|LW|L-\d+)$`), "the last days of a month have no sign here: write 28-31, and have the handler pass over the other days"},
	{"day of month", regexp.MustCompile(`(?i)^\d+W$`), "the nearest weekday has no sign here: write the days that it may be, and have the handler pass over the others"},
	{"day of week", regexp.MustCompile(`(?i)^[0-9a-z]*L$`), "the last such day of a month has no sign here: write the day alone, such as FRI, and have the handler pass over the other weeks"},
	{"day of week", regexp.MustCompile(`#`), "the nth such day of a month has no sign here: write the day alone, such as FRI, and have the handler pass over the other weeks"},
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
