package console

import (
	"testing"

	"github.com/tocsinhq/tocsin/api"
)

func TestACronExpressionIsSaidInWords(t *testing.T) {
	t.Parallel()
	en, zh := &visit{lang: "en"}, &visit{lang: "zh-CN"}
	for _, c := range []struct{ cron, en, zh string }{
		{"@hourly", "every hour at minute 0", "每小时的第 0 分"},
		{"@daily", "at 00:00 every day", "每天 00:00"},
		{"@midnight", "at 00:00 every day", "每天 00:00"},
		{"@weekly", "at 00:00, every Sunday", "每周日 00:00"},
		{"@monthly", "at 00:00, on day 1 of the month", "每月 1 日 00:00"},
		{"@yearly", "at 00:00, every year on 1 January", "每年 1 月 1 日 00:00"},
		{"@annually", "at 00:00, every year on 1 January", "每年 1 月 1 日 00:00"},
		{"@every 90s", "every 1 min 30 s, counted from the start, or else the activation", "每 1 分钟 30 秒，从开始时间算起，无开始时间则从启用时算起"},
		{"@every 36h0m0.5s", "every 1 d 12 h 500 ms, counted from the start, or else the activation", "每 1 天 12 小时 500 毫秒，从开始时间算起，无开始时间则从启用时算起"},
		{"* * * * *", "every minute", "每分钟"},
		{"*/5 * * * *", "every 5 minutes", "每 5 分钟"},
		{"0,30 * * * *", "every 30 minutes", "每 30 分钟"},
		{"*/7 * * * *", "every hour at minute 0, 7, 14 … 56", "每小时的第 0、7、14 … 56 分"},
		{"5,6,7,20 */1 * * *", "every hour at minute 5 to 7, 20", "每小时的第 5至7、20 分"},
		{"30 2 * * *", "at 02:30 every day", "每天 02:30"},
		{"0,30 9,18 * * *", "at 09:00, 09:30, 18:00, 18:30 every day", "每天 09:00、09:30、18:00、18:30"},
		{"15 */2 * * *", "every 2 hours from 00:15 to 22:15", "每 2 小时一次（00:15 至 22:15）"},
		{"0 9-17 * * MON-FRI", "every hour from 09:00 to 17:00, Monday to Friday", "周一至周五 每小时一次（09:00 至 17:00）"},
		{"*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45, Monday to Friday", "周一至周五 每 15 分钟（09:00 至 17:45）"},
		{"* 9 * * *", "every minute from 09:00 to 09:59", "每分钟（09:00 至 09:59）"},
		{"*/10 1,3,9 * * *", "every 10 minutes in the hours 1, 3, 9", "每 10 分钟（仅 1、3、9 点）"},
		{"3,17 1,3,9,22 * * *", "at minute 3, 17 of the hours 1, 3, 9, 22", "第 3、17 分（1、3、9、22 点）"},
		{"0 9 * * 0,6", "at 09:00, every Saturday, Sunday", "每周六、周日 09:00"},
		{"0 9 * * 5,6,0", "at 09:00, Friday to Sunday", "周五至周日 09:00"},
		{"0 9 * * 0-6", "at 09:00 every day", "每天 09:00"},
		{"0 9 1,15 * *", "at 09:00, on day 1, 15 of the month", "每月 1、15 日 09:00"},
		{"0 9 */2 * *", "at 09:00, on day 1, 3, 5 … 31 of the month", "每月 1、3、5 … 31 日 09:00"},
		{"0 9 1 * 1", "at 09:00, on day 1 of the month and every Monday", "每月 1 日以及每周一 09:00"},
		{"0 9 1-31 * 1", "at 09:00 every day", "每天 09:00"},
		{"0 9 ? * 1", "at 09:00, every Monday", "每周一 09:00"},
		{"0 9 1-5 1-3,7 *", "at 09:00, on day 1 to 5 of the month, in January to March, July", "每月 1至5 日（仅 1 月至3 月、7 月） 09:00"},
		{"0 9 1 1,7 *", "at 09:00, every year on 1 January, 1 July", "每年 1 月 1 日、7 月 1 日 09:00"},
		{"0 9 * jan *", "at 09:00, in January", "1 月 09:00"},
		{"*/5 * * dec fri", "every 5 minutes, every Friday, in December", "每周五（仅 12 月） 每 5 分钟"},
		{" 30 2 * * * ", "at 02:30 every day", "每天 02:30"},
		{"TZ=", "", ""}, {"", "", ""}, {"60 * * * *", "", ""}, {"@every x", "", ""}, {"0 0 L * *", "", ""}, {"0 0 * * 1#2", "", ""}, {"0 0 1W * *", "", ""},
	} {
		d := api.ScheduleDefinition{ScheduleFields: api.ScheduleFields{Cron: c.cron}}
		if got := en.Recurs(d); got != c.en {
			t.Errorf("%q in English is %q, want %q", c.cron, got, c.en)
		}
		if got := zh.Recurs(d); got != c.zh {
			t.Errorf("%q in Chinese is %q, want %q", c.cron, got, c.zh)
		}
	}
}

func TestWordsOfAScheduleHaveItsZoneAndItsJitter(t *testing.T) {
	t.Parallel()
	en, zh := &visit{lang: "en"}, &visit{lang: "zh-CN"}
	whole := api.ScheduleDefinition{ScheduleFields: api.ScheduleFields{Cron: "30 2 * * *", Zone: "Europe/Berlin", Jitter: "5m"}}
	if got := en.Recurs(whole); got != "at 02:30 every day (Europe/Berlin), each run later by a constant below 5 min" {
		t.Error(got)
	}
	if got := zh.Recurs(whole); got != "每天 02:30（Europe/Berlin），每次执行固定推迟不到 5 分钟" {
		t.Error(got)
	}
	whole.Cron = "@every 1h"
	if got := en.Recurs(whole); got != "every 1 h, counted from the start, or else the activation, each run later by a constant below 5 min" {
		t.Error(got)
	}
}
