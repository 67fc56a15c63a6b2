package webhook_test

import (
	"fmt"

	"github.com/tocsinhq/tocsin/webhook"
)

func ExampleAlarmOf() {
	task := webhook.Task{JobID: 7, Payload: `{"kind":"dead","biz_type":"order.close","count":1000,"since":"2026-11-22T08:36:40.012Z","until":"2026-11-22T08:41:45.318Z",
		"job_ids":["117904638606316173"],"last_error":"callback answered 503 Service Unavailable: no bank",
		"do":["tocsin task list --status dead --type order.close","tocsin task redrive --type order.close"]}`}
	alarm, err := webhook.AlarmOf(task)
	fmt.Println(alarm, err)
	_, err = webhook.AlarmOf(webhook.Task{JobID: 7, Payload: `{"coupon":"SPRING"}`})
	fmt.Println(err)
	_, err = webhook.AlarmOf(webhook.Task{JobID: 7, Payload: "SPRING"})
	fmt.Println(err)
	// Output:
	// order.close: dead tasks: 1000 since 2026-11-22T08:36:40Z
	// last error: callback answered 503 Service Unavailable: no bank
	// tocsin task list --status dead --type order.close
	// tocsin task redrive --type order.close <nil>
	// task 7 carries no alarm: want kind and biz_type
	// task 7 carries no alarm: invalid character 'S' looking for beginning of value
}
