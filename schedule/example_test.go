package schedule_test

import (
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin/schedule"
)

func ExampleDefinition_Next() {
	report := schedule.Definition{Name: "report.daily", BizType: "report.make", Cron: "30 2 * * *", Zone: "Europe/Berlin"}
	times, err := report.Next(time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC), 3)
	if err != nil {
		fmt.Println(err)
	}
	for _, t := range times { // on the 29th there is no 02:30
		fmt.Println(t.Format(time.DateTime))
	}
	// Output:
	// 2026-03-28 01:30:00
	// 2026-03-29 01:00:00
	// 2026-03-30 00:30:00
}

func ExampleParse() {
	_, err := schedule.Parse([]byte(`schedules:
  - name: report.daily
    biz_type: report.make
    cron: 30 25 * * *
`), "schedules.yaml")
	fmt.Println(err != nil)

	all, err := schedule.Parse([]byte(`schedules:
  - name: report.daily
    biz_type: report.make
    cron: 30 2 * * *
`), "schedules.yaml")
	fmt.Println(all[0].Name, all[0].WithDefaults().Zone, err)
	// Output:
	// true
	// report.daily UTC <nil>
}
