package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/schedule"
)

// demoSchedule reminds of a coupon every few seconds while the cluster is up.
var demoSchedule = schedule.Definition{
	Name:    "coupon-every-5s",
	BizType: devcluster.CouponRemind.Name(),
	BizID:   700001,
	Cron:    "@every 5s",
	Payload: `{"user_id":700001,"code":"EVERY5S"}`,
	Missed:  schedule.MissedSkip, StartWithin: biztype.Duration(5 * time.Second),
}

// upAPI serves the HTTP API of a cluster that stays up, and adds its schedule unless the biz types are the user's.
func (a *app) upAPI(ctx context.Context, f devFlags, path string) (*apiServer, error) {
	up := *a
	up.configPath = path
	file, err := up.load()
	if err != nil {
		return nil, err
	}
	if f.biz == "" {
		if err := addDemoSchedule(ctx, file); err != nil {
			return nil, err
		}
	}
	return up.listenAPI(file, net.JoinHostPort("127.0.0.1", strconv.Itoa(f.apiPort)), a.logger("warn", "text"))
}

func addDemoSchedule(ctx context.Context, file config.File) error {
	schedules, err := schedule.Open(ctx, file.Tocsin())
	if err != nil {
		return err
	}
	defer func() { _ = schedules.Close() }()
	_, err = schedules.Apply(ctx, []schedule.Definition{demoSchedule}, false)
	return err
}

// stayUp shows how to use the cluster from a second terminal, serves the API and keeps the load up, until ctx ends.
func (a *app) stayUp(ctx context.Context, c *devcluster.Cluster, f devFlags, view *devView) error {
	path, remove, err := f.writeConfig(c)
	defer remove()
	if err != nil {
		return err
	}
	requests, err := a.upAPI(ctx, f, path)
	if err != nil {
		return interrupted(ctx, err)
	}
	if !a.json {
		fmt.Fprint(a.out, f.hint(c, path, requests.url()), f.closing(c))
	}
	if f.load == 0 {
		view.follow()
	}
	g, work := errgroup.WithContext(ctx)
	if f.load > 0 {
		g.Go(func() error {
			return c.Demo(work, devcluster.DemoOptions{Rate: f.load, Sweep: demoSweep, Upkeep: demoUpkeep})
		})
	}
	g.Go(func() error { return requests.serve(work) })
	g.Go(func() error { return c.Wait(work) })
	return g.Wait()
}
