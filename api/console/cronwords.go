package console

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// Recurs is Fires, and how much later its runs may be.
func (v *visit) Recurs(d api.ScheduleDefinition) string {
	words := v.Fires(d)
	if jitter, err := time.ParseDuration(string(d.Jitter)); err == nil && jitter > 0 && words != "" {
		return v.T("cron.jitter", words, v.spell(jitter))
	}
	return words
}

// Fires says in words when a schedule fires, and in which zone; "" of an expression that is none.
func (v *visit) Fires(d api.ScheduleDefinition) string {
	of, err := firetimes.ValuesOf(d.Cron)
	switch {
	case err != nil:
		return ""
	case of.Every > 0: // in any zone
		return v.T("cron.every", v.spell(of.Every))
	case d.Zone == "":
		return v.calendar(of)
	}
	return v.T("cron.zone", v.calendar(of), v.Shown(d.Zone))
}

// spell writes a length of time in full.
func (v *visit) spell(d time.Duration) string {
	var parts []string
	for _, unit := range []struct {
		of   time.Duration
		text string
	}{{24 * time.Hour, v.T("unit.d")}, {time.Hour, v.T("unit.h")}, {time.Minute, v.T("unit.min")}, {time.Second, v.T("unit.s")}, {time.Millisecond, v.T("unit.ms")}} {
		if n := d / unit.of; n > 0 {
			parts = append(parts, fmt.Sprintf(unit.text, int(n)))
			d %= unit.of
		}
	}
	return strings.Join(parts, " ")
}

// calendar is "at 04:00, Monday to Friday".
func (v *visit) calendar(s firetimes.Values) string {
	times, listed := v.clock(values(s.Minute, 0, 59), values(s.Hour, 0, 23))
	switch days := v.days(s); {
	case days != "":
		return v.T("cron.when", times, days)
	case listed:
		return v.T("cron.daily", times)
	}
	return times
}

// values are those of a field's set.
func values(set uint64, least, most int) (all []int) {
	for n := least; n <= most; n++ {
		if set>>n&1 == 1 {
			all = append(all, n)
		}
	}
	return all
}

// stepOf is the distance between values that are equally far apart; 0: they are not, or there are less than three.
func stepOf(all []int) int {
	if len(all) < 3 {
		return 0
	}
	step := all[1] - all[0]
	for i := range all[1:] {
		if all[i+1]-all[i] != step {
			return 0
		}
	}
	return step
}

// mostTimes is how many times of a day are listed, at most.
const mostTimes = 6

// clock says at which times of a day, and whether it lists them.
func (v *visit) clock(minutes, hours []int) (text string, listed bool) {
	often := v.often(minutes)
	first, last := at(hours[0], minutes[0]), at(hours[len(hours)-1], minutes[len(minutes)-1])
	switch step := stepOf(hours); {
	case len(hours) == 24 && often != "":
		return often, false
	case len(hours) == 24:
		return v.T("cron.hourly", v.numbers(minutes)), false
	case len(minutes)*len(hours) <= mostTimes:
		var times []string
		for _, h := range hours {
			for _, m := range minutes {
				times = append(times, at(h, m))
			}
		}
		return v.T("cron.at", strings.Join(times, v.T("cron.comma"))), true
	case len(minutes) == 1 && step == 1:
		return v.T("cron.hours1", first, last), false
	case len(minutes) == 1 && step > 1:
		return v.T("cron.hours", step, first, last), false
	case often != "" && (step == 1 || len(hours) == 1 || len(hours) == 2 && hours[1] == hours[0]+1):
		return v.T("cron.between", often, first, last), false
	case often != "":
		return v.T("cron.within", often, v.numbers(hours)), false
	}
	return v.T("cron.minutes", v.numbers(minutes), v.numbers(hours)), false
}

// often says how often in each hour; "" if the minutes are not equally far apart, from one hour to the next too.
func (v *visit) often(minutes []int) string {
	switch step := stepOf(minutes); {
	case step == 1 && len(minutes) == 60:
		return v.T("cron.minutely")
	case len(minutes) == 2 && minutes[0] == 0 && minutes[1] == 30:
		return v.T("cron.step", 30)
	case step > 1 && minutes[0] == 0 && step*len(minutes) == 60:
		return v.T("cron.step", step)
	}
	return ""
}

// at is a time of a day.
func at(hour, minute int) string { return fmt.Sprintf("%02d:%02d", hour, minute) }

// days says on which days; "" for all. If both kinds of days are restricted, a day of either kind counts.
func (v *visit) days(s firetimes.Values) string {
	dates, months := values(s.Dom, 1, 31), values(s.Month, 1, 12)
	weekdays := values(s.Dow, 1, 6)
	if s.Dow&1 == 1 {
		weekdays = append(weekdays, 7) // Sunday ends a week
	}
	allDates, allWeekdays := len(dates) == 31, len(weekdays) == 7
	if s.EitherDay && (allDates || allWeekdays) {
		allDates, allWeekdays = true, true
	}
	if !allDates && allWeekdays && len(months) < 12 && len(dates)*len(months) <= 3 {
		return v.T("cron.yearly", v.dates(dates, months))
	}
	var text string
	switch onDates, onWeekdays := v.T("cron.dates", v.numbers(dates)), v.weekdays(weekdays); {
	case allDates && allWeekdays:
	case allDates:
		text = onWeekdays
	case allWeekdays:
		text = onDates
	default:
		text = v.T("cron.either", onDates, onWeekdays)
	}
	if len(months) == 12 {
		return text
	}
	in := v.listed(months, func(n int) string { return v.Word("month", n) })
	if text == "" {
		return v.T("cron.months", in)
	}
	return v.T("cron.in", text, in)
}

// dates are days of a year.
func (v *visit) dates(days, months []int) string {
	var all []string
	for _, m := range months {
		for _, d := range days {
			all = append(all, v.T("cron.date", d, v.Word("month", m)))
		}
	}
	return strings.Join(all, v.T("cron.comma"))
}

// weekdays names days of a week.
func (v *visit) weekdays(days []int) string {
	name := func(n int) string { return v.Word("weekday", n) }
	if stepOf(days) == 1 {
		return v.listed(days, name)
	}
	return v.T("cron.weekdays", v.listed(days, name))
}

// numbers lists numbers. Many that are equally far apart are not all written.
func (v *visit) numbers(all []int) string {
	if step := stepOf(all); step > 1 && len(all) > 5 {
		return v.listed(all[:3], strconv.Itoa) + " … " + strconv.Itoa(all[len(all)-1])
	}
	return v.listed(all, strconv.Itoa)
}

// listed lists values, three or more that follow one another as a range.
func (v *visit) listed(all []int, name func(int) string) string {
	var parts []string
	for from := 0; from < len(all); {
		to := from
		for to+1 < len(all) && all[to+1] == all[to]+1 {
			to++
		}
		if to-from >= 2 {
			parts = append(parts, v.T("cron.range", name(all[from]), name(all[to])))
		} else {
			for _, n := range all[from : to+1] {
				parts = append(parts, name(n))
			}
		}
		from = to + 1
	}
	return strings.Join(parts, v.T("cron.comma"))
}
