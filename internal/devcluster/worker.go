package devcluster

import (
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/pull"
)

// The worker asks anew after workerWait, so that somebody who tries to be a worker is first in line soon, and again workerPause after a failure.
const (
	workerWait  = time.Second
	workerPause = 100 * time.Millisecond
)

// work takes the tasks of LabelPrint from a node and completes them, as a worker does, until ctx ends.
func (c *Cluster) work(ctx context.Context, at int) error {
	from := c.nodes.Nodes[at].Pull()
	for ctx.Err() == nil {
		tasks, err := from.Reserve(ctx, pull.Request{BizTypes: []string{LabelPrint.Name()}, Max: pull.MaxTasks, Wait: workerWait})
		if err != nil { // the node has not begun, or ends
			_ = loop.Wait(ctx, workerPause) // the loop ends with ctx
			continue
		}
		ends := make([]pull.Settling, len(tasks))
		for i, t := range tasks {
			c.Recorder.record(t.Info, c.names[at])
			ends[i] = pull.Settling{Lease: t.Lease, Worker: "worker of " + c.names[at]}
		}
		for len(ends) > 0 && ctx.Err() == nil {
			became, err := from.Settle(ctx, ends, nil)
			if err == nil && !slices.ContainsFunc(became, func(b pull.Became) bool { return b.Err != nil }) {
				break
			}
			_ = loop.Wait(ctx, workerPause) // then again: what is complete already stays so
		}
	}
	return nil
}
