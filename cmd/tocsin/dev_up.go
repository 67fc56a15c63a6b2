package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/devcluster"
)

// upAPI listens for the HTTP API of a cluster that stays up.
func (a *app) upAPI(c *devcluster.Cluster, f devFlags, path string) (*apiServer, error) {
	up := *a
	up.configPath = path
	file, err := up.load()
	if err != nil {
		return nil, err
	}
	return up.listenAPI(file, net.JoinHostPort("127.0.0.1", strconv.Itoa(f.apiPort)), a.logger("warn", "text"), c.Registerer())
}

// stayUp shows how to use the cluster from a second terminal, serves the API and keeps the load up, until ctx ends.
func (a *app) stayUp(ctx context.Context, c *devcluster.Cluster, f devFlags, view *devView) error {
	path, remove, err := f.writeConfig(c)
	defer remove()
	if err != nil {
		return err
	}
	if f.biz == "" {
		if err := c.AddSchedule(ctx); err != nil {
			return interrupted(ctx, err)
		}
	}
	requests, err := a.upAPI(c, f, path)
	if err != nil {
		return err
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
