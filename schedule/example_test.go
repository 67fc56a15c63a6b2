package schedule_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
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

// exampleTB lets an example use what tests use.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()            {}
func (e *exampleTB) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func ExampleSchedules_ApplyTx() {
	tb := &exampleTB{}
	defer func() {
		for _, cleanup := range tb.cleanups {
			cleanup()
		}
	}()
	ctx, dsn := context.Background(), devtest.DSN(tb)
	cfg := tocsin.Config{ // of your own servers
		Layout:  tocsin.Layout{Databases: 2, Tables: 2, Prefix: devtest.Prefix(tb)},
		Servers: []tocsin.Server{{Name: "db1", DSN: dsn}},
	}
	_, failed := ddl.Apply(ctx, cfg, ddl.Options{})
	_, unknown := biztype.Apply(ctx, cfg, []biztype.Policy{{Name: "report.make", Number: 1, Group: "reports"}})
	schedules, closed := schedule.Open(ctx, cfg)
	db, err := sql.Open("mysql", dsn) // the service's own pool
	if err := errors.Join(failed, unknown, closed, err); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _, _ = schedules.Close(), db.Close() }()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tx.Rollback() }()
	applied, err := schedules.ApplyTx(ctx, tx, schedule.Definition{Name: "report.weekly", BizType: "report.make", Cron: "0 9 * * 1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(applied.Verdict, tx.Commit())
	// Output: created <nil>
}
