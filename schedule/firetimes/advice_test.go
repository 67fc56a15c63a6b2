package firetimes_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// dialect is a row of the page's table of what other dialects have.
var dialect = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\|$")

// write is what a message says to write instead.
var write = regexp.MustCompile(`write "([^"]+)"`)

// advised are more of each kind that the page has a row of: what is written, and what the message says.
var advised = map[string]string{
	"0 9 * * * Europe/Berlin":           `it goes on with a time zone, "Europe/Berlin": put it into the field zone: write "0 9 * * *"`,
	"0 9 * * * CEST":                    `put it into the field zone: write "0 9 * * *"`,
	"0 9 * * * +02:00":                  `put it into the field zone: write "0 9 * * *"`,
	"@daily Europe/Berlin":              `put it into the field zone: write "@daily"`,
	"@every 5m UTC":                     `put it into the field zone: write "@every 5m"`,
	"cron_tz=UTC 0 9 * * *":             `put the zone into the field zone: write "0 9 * * *"`,
	"30 9 * * * MON-FRI":                `if one is too many, write "30 9 * * MON-FRI"`,
	"30 9 * * * mon-fri":                `if one is too many, write "30 9 * * mon-fri"`,
	"0 9 * * * *":                       `if the first, "0", is seconds, write "9 * * * *"; if one is too many, write "0 9 * * *"`,
	"0 9 * * 1 OCT":                     `it goes on with "OCT": leave that out: write "0 9 * * 1"`,
	"0 9 * * 1 www run":                 `it goes on with "www", as a crontab does: leave out the user and the command: write "0 9 * * 1"`,
	"0 0 9 * * 7":                       `is seconds: leave it out: write "0 9 * * SUN"`,
	"0 0 9 ? * 0":                       `is seconds: leave it out: write "0 9 ? * SUN"`, // Quartz has no 0
	"# 0 9 * * *":                       `it is a comment: leave out the #: write "0 9 * * *"`,
	"0 9 * * # daily":                   `it has a comment, "# daily": leave it out; and then it has 4 fields, and lacks day of week`,
	"@every 5m # poll":                  `write "@every 5m"`,
	"cron: 0 9 * * *":                   `leave out "cron:": write "0 9 * * *"`,
	`SHELL="/bin/a b" 0 9 * * *`:        `it sets SHELL, as a crontab does: leave that out: write "0 9 * * *"`,
	"cron(0 9 * * *)":                   `there is no cron(): write "0 9 * * *"`,
	"cron(0 12 * * MON)":                `there is no cron(): write "0 12 * * MON"`,
	"every 2 hours on weekdays":         "it is in words",
	"every day at 9 am":                 "it is in words",
	"every monday 09:00":                "it is in words",
	"every 15 mins from 10:00 to 14:00": "it is in words",
	"1st monday of month 09:00":         "it is in words",
	"9am":                               "it is in words",
	"every 1 month":                     `differs in length: write "@monthly"`,
	"09:00 * * *":                       `the hour and the minute are fields of their own: write "0 9 * * *"`,
	"2030-01-01":                        "it is for one time",
	"Mon..Fri 09:00":                    "it is a calendar event of systemd",
	"OnUnitActiveSec=1h":                "it is a calendar event of systemd",
	"*-*-* 04:30:00 UTC":                "it is a calendar event of systemd",
	"0 9 * * sun#-1":                    "the nth such day of a month has no sign here",
	"0 9 * * MON#L":                     "the nth such day of a month has no sign here",
	"`0 9 * * *`":                       `leave out the quotes: write "0 9 * * *"`,
	"'0 9 * *'":                         "leave out the quotes; and then it has 4 fields",
	"@every 99999999h":                  `the period "99999999h" is too long: want at most five years`,
	"@every 1h 30m":                     `a period has h, m, s or ms, and no spaces: write "@every 1h30m"`,
	"@every 30m,10m":                    `"30m,10m" is a list: want one period`,
	"@every 1.5d":                       `write "@every 36h"`,
	"@every 0.5 hours":                  `write "@every 30m"`,
	"@every 0.5 seconds":                "and then period 500ms is under a second",
	"@every 1h30":                       `write "@every 1h30m"`,
	"@every PT1H":                       `write "@every 1h"`,
	"@every P1DT12H":                    `write "@every 36h"`,
	"@every P1M":                        `the period "P1M" differs in length`,
	"@every monday":                     `"monday" is no period: want a duration`,
	"R/PT1H":                            `write "@every 1h"`,
	"5m":                                `it is a period: write "@every 5m"`,
	"@Every 1h":                         `there is no @Every: write "@every 1h"`,
	"@every_5_minutes":                  `there is no @every_5_minutes: write "@every 5m"`,
	"@every_":                           "there is no such descriptor",
	"@daily at 9":                       `it goes on with "at 9": write "@daily", or five fields`,
	"weekly":                            `there is no weekly: write "0 0 * * 1"`, // systemd's is on Mondays
}

// TestEachDialectWorksOrIsAdvised: as the page has it. What a message says to write is right itself.
func TestEachDialectWorksOrIsAdvised(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| written | dialect |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := dialect.FindAllStringSubmatch(table, -1)
	if want := strings.Count(table, "\n| `"); len(rows) != want || want < 45 {
		t.Errorf("%d rows are tried of %d", len(rows), want)
	}
	for _, row := range rows {
		if strings.HasPrefix(row[3], "works") {
			if _, err := firetimes.ValuesOf(row[1]); err != nil {
				t.Errorf("%s: %v, and the page says: %s", row[1], err, row[3])
			}
			continue
		}
		isAdvised(t, row[1], row[3])
	}
	for written, says := range advised {
		isAdvised(t, written, says)
	}
}

// isAdvised checks what an expression's message says, and tries what it says to write.
func isAdvised(t *testing.T, written, says string) {
	t.Helper()
	_, err := firetimes.ValuesOf(written)
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %s", written, err, says)
		return
	}
	for _, instead := range write.FindAllStringSubmatch(err.Error(), -1) {
		if _, err := firetimes.ValuesOf(instead[1]); err != nil {
			t.Errorf("%s: the advice is wrong: %v", written, err)
		}
	}
}

// TestMacrosOfOthersAreAdvised: those of crontab(5) of FreeBSD, of systemd.time(7), and words that people expect.
func TestMacrosOfOthersAreAdvised(t *testing.T) {
	t.Parallel()
	for macro := range strings.FieldsSeq(`@every_minute @every_second @every_hour @every_day @everyday
		minutely hourly daily weekly monthly yearly annually anually quarterly semiannually semi-annually biannually bi-annually
		@second @minute @hour @day @week @month @year @weekdays @weekends @Daily @noon`) {
		if _, err := firetimes.ValuesOf(macro); err == nil || write.FindStringSubmatch(err.Error()) == nil {
			t.Errorf("%s: %v", macro, err)
		}
		isAdvised(t, macro, "there is no "+macro)
	}
}

// TestAdviceKeepsTheDays: in each dialect, a proposal has the days of the week that the dialect means. Quartz's and AWS's 1 is Sunday,
// Spring's Monday, and its Sunday 0 or 7.
func TestAdviceKeepsTheDays(t *testing.T) {
	t.Parallel()
	for form, sundays := range map[string][]int{
		"0 0 9 ? * %s":       {1, 0}, // Quartz or Spring: two proposals
		"0 0 9 ? * %s *":     {1},    // Quartz
		"0 0 9 ? * %s 2027":  {1},
		"0 9 ? * %s *":       {1}, // AWS
		"cron(0 9 ? * %s *)": {1},
		"0 0 9 * * %s":       {0}, // Spring, robfig/cron
		"0 0 9 * 1 %s":       {0},
	} {
		for from := 1; from <= 7; from++ {
			for to := from; to <= 7; to++ {
				days := fmt.Sprintf("%d-%d", from, to)
				if from == to {
					days = fmt.Sprint(from)
				}
				for i, sunday := range sundays {
					if to > 6+sunday && from != to {
						continue // 5-7 goes over the week's end: no range here
					}
					var want uint64
					for day := from; day <= to; day++ {
						want |= 1 << ((day - sunday) % 7)
					}
					_, err := firetimes.ValuesOf(fmt.Sprintf(form, days))
					proposed := write.FindAllStringSubmatch(fmt.Sprint(err), -1)
					if len(proposed) <= i {
						t.Errorf("%s of %s: %v", form, days, err)
						continue
					}
					if got, err := firetimes.ValuesOf(proposed[i][1]); err != nil || got.Dow != want {
						t.Errorf("%s of %s: %s has %b, %v, want %b", form, days, proposed[i][1], got.Dow, err, want)
					}
				}
			}
		}
	}
}
