package devcluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/schedule"
)

// repeated reminds of a coupon every few seconds while the cluster is up.
var repeated = schedule.Definition{
	Name:    "coupon-every-5s",
	BizType: CouponRemind.Name(),
	BizID:   700001,
	Cron:    "@every 5s",
	Payload: `{"user_id":700001,"code":"EVERY5S"}`,
	Missed:  schedule.MissedSkip, StartWithin: biztype.Duration(5 * time.Second),
}

// AddSchedule adds the sample schedule, unless it is there.
func (c *Cluster) AddSchedule(ctx context.Context) error {
	schedules, err := schedule.Open(ctx, c.Config)
	if err != nil {
		return err
	}
	if _, err = schedules.Apply(ctx, []schedule.Definition{repeated}, false); err != nil {
		err = fmt.Errorf("add the sample schedule: %w", err)
	}
	return errors.Join(err, schedules.Close())
}
