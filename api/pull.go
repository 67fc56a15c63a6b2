package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/pull"
)

// pulls registers the operations of workers that ask for tasks. These may wait, and are not counted in the rate of their token.
func (a *API) pulls() {
	register(a, operation{
		id: "reserve_tasks", method: http.MethodPost, path: pullPath + "reserve", tag: "pull", needs: apitoken.Work,
		summary: "Wait for due tasks, and take them",
		about: "For biz types whose policy has pull. Each task is the caller's until its lease ends: extend or settle it by then. Without a task the answer comes after wait_ms, or at " +
			"once when the node stops, and tasks is empty: ask again.",
		errors: []int{http.StatusNotFound},
	}, a.reserve)
	register(a, operation{
		id: "extend_leases", method: http.MethodPost, path: pullPath + "extend", tag: "pull", needs: apitoken.Work,
		summary: "Keep tasks for longer", about: "The leases last for the time of their policies from now on. Any node may be asked, and the request may be repeated.",
	}, a.extend)
	register(a, operation{
		id: "settle_leases", method: http.MethodPost, path: pullPath + "settle", tag: "pull", needs: apitoken.Work,
		summary: "Say how tasks ended, and perhaps take the next ones",
		about: "Any node may be asked. The items do not depend on each other: results has one for each, in their order. complete may be repeated, and counts after the end of a lease too. With " +
			"reserve the answer waits for tasks once the items are stored.",
		errors: []int{http.StatusNotFound}, lists: true,
	}, a.settle)
	register(a, operation{
		id: "list_pull_nodes", method: http.MethodGet, path: "/pull/nodes", tag: "pull", needs: apitoken.Work, connects: true,
		summary: "List the nodes whose API workers may ask", about: "One of them is enough, as it stands in for the others. To ask all shares the work among them.",
	}, a.pullNodes)
}

// pullPath begins the paths that workers call all the time.
const pullPath = "/pull:"

// polls reports whether a request may wait for tasks.
func polls(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1"+pullPath) }

// Reserve asks for tasks.
type Reserve struct {
	BizTypes []string `json:"biz_types" minItems:"1" maxItems:"64" uniqueItems:"true" doc:"Tasks of these; they take turns" example:"[\"order.close\"]"`
	Max      Int      `json:"max,omitempty" minimum:"1" maximum:"100" default:"1" doc:"Tasks at most; if others wait too, each gets a share of those that are due"`
	WaitMS   *Int     `json:"wait_ms,omitempty" minimum:"0" maximum:"25000" doc:"How long to wait for the first task; 25000 if it is left out. At least 100 ms, or 5 s if nobody has asked this node for 10 s, since it looks for tasks only then"`
	Worker   string   `json:"worker,omitempty" maxLength:"64" doc:"Who asks, for the history" example:"php-7"`
}

// ReservedTask is a task that a worker has.
type ReservedTask struct {
	Task
	Key        string `json:"key" doc:"Idempotency key, the same for each attempt" example:"1523399873241099.0"`
	Lease      string `json:"lease" doc:"Extends and settles it"`
	LeaseUntil Time   `json:"lease_until" doc:"The lease lasts until then at least, by the database's clock"`
	LeaseMS    int64  `json:"lease_ms" doc:"So long it lasts, from about now"`
}

// Reserved are tasks that a worker has.
type Reserved struct {
	Tasks []ReservedTask `json:"tasks"`
}

// Extend names leases.
type Extend struct {
	Leases []string `json:"leases" minItems:"1" maxItems:"500" uniqueItems:"true" doc:"As they came with the tasks"`
}

// Settle says how leases end.
type Settle struct {
	Settle  []SettleOne `json:"settle,omitempty" maxItems:"500" doc:"Each lease once"`
	Reserve *Reserve    `json:"reserve,omitempty" doc:"Then take these tasks, in the same request"`
	Worker  string      `json:"worker,omitempty" maxLength:"64" doc:"Who has done the tasks, for the history; that of reserve if it is left out"`
}

// SettleOne says how one lease ends.
type SettleOne struct {
	Lease   string `json:"lease" maxLength:"100"`
	Do      string `json:"do" enum:"complete,retry,snooze,bury,release" doc:"complete: it is done. retry: a failed attempt, the last one of the policy makes the task dead. snooze: again after delay_ms, no attempt is counted. bury: it is dead. release: again at once, no attempt is counted"`
	Output  string `json:"output,omitempty" maxLength:"8192" doc:"For the history, which keeps 1024 characters"`
	Error   string `json:"error,omitempty" maxLength:"8192" doc:"Of retry and bury: why. The task keeps 255 characters"`
	DelayMS *Int   `json:"delay_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"Of retry: until the next attempt, at least; the policy's wait if that is longer. Of snooze: needed; less than 1000 counts as 1000"`
}

// LeaseResult is what became of a lease.
type LeaseResult struct {
	Lease      string   `json:"lease"`
	Result     string   `json:"result,omitempty" enum:"done,already,lost,ok,cancel_wanted" doc:"Of settle: done; already, it was complete before; lost, the lease ran out and the task is somebody else's, or it has ended: nothing was changed. Of extend: ok; lost; cancel_wanted, the task was cancelled or rescheduled, so stop. Left out beside problem"`
	LeaseUntil *Time    `json:"lease_until,omitempty" doc:"Of ok"`
	Problem    *Problem `json:"problem,omitempty" doc:"Nothing is known of it, as of a server that is away: repeat it"`
}

// Extended is what became of leases.
type Extended struct {
	Results []LeaseResult `json:"results" doc:"One for each lease, in the order given"`
}

// Settled is what became of leases, and the next tasks.
type Settled struct {
	Results []LeaseResult  `json:"results" doc:"One for each item, in the order given"`
	Tasks   []ReservedTask `json:"tasks,omitempty" doc:"Of reserve"`
}

func (a *API) reserve(ctx context.Context, c *call, in *struct{ Body Reserve }) (out Reserved, err error) {
	out.Tasks, err = a.take(ctx, c, in.Body)
	return out, err
}

// hub returns where the workers of the node in this process are.
func (a *API) hub() (*pull.Hub, error) {
	if a.cfg.Pull == nil {
		return nil, problem(http.StatusServiceUnavailable, "unavailable", "no node runs in the process of this API, so it has no tasks for workers: ask the API of a node, such as that of tocsin serve")
	}
	return a.cfg.Pull, nil
}

// take waits for tasks. If the answer can't be written, they go back.
func (a *API) take(ctx context.Context, c *call, in Reserve) ([]ReservedTask, error) {
	hub, err := a.hub()
	if err != nil {
		return nil, err
	}
	for _, name := range in.BizTypes {
		if !c.sees(name) {
			return nil, noType(name)
		}
	}
	wait := pull.MaxWait
	if in.WaitMS != nil {
		wait = time.Duration(*in.WaitMS) * time.Millisecond
	}
	tasks, err := hub.Reserve(ctx, pull.Request{BizTypes: in.BizTypes, Max: int(cmp.Or(in.Max, 1)), Wait: wait})
	if errors.Is(err, context.Canceled) { // the worker has gone, which is no failure, or the API stops
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if len(tasks) > 0 {
		c.unsent = func() { hub.Release(ctx, tasks) }
	}
	out := make([]ReservedTask, len(tasks))
	for i, t := range tasks {
		out[i] = ReservedTask{Task: taskOf(t.Info), Key: t.Key(), Lease: t.Lease, LeaseUntil: Time{t.Until}, LeaseMS: t.For.Milliseconds()}
	}
	return out, nil
}

func (a *API) extend(ctx context.Context, c *call, in *struct{ Body Extend }) (out Extended, err error) {
	hub, err := a.hub()
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	became, err := hub.Extend(ctx, in.Body.Leases, c.filter())
	out.Results = resultsOf(c, became, func(i int) string { return in.Body.Leases[i] })
	return out, err
}

func (a *API) settle(ctx context.Context, c *call, in *struct{ Body Settle }) (out Settled, err error) {
	hub, err := a.hub()
	if err != nil {
		return out, err
	}
	worker := in.Body.Worker
	if in.Body.Reserve != nil {
		worker = cmp.Or(worker, in.Body.Reserve.Worker)
	} else if len(in.Body.Settle) == 0 {
		return out, invalid("settle", "name leases to settle, or tasks to reserve, or both")
	}
	all := make([]pull.Settling, len(in.Body.Settle))
	for i, one := range in.Body.Settle {
		if all[i], err = one.settling(worker); err != nil {
			return out, err
		}
	}
	within, cancel := context.WithTimeout(ctx, a.cfg.Timeout) // the rest of the time is to wait for tasks
	defer cancel()
	became, err := hub.Settle(within, all, c.filter())
	if err != nil {
		return out, err
	}
	out.Results = resultsOf(c, became, func(i int) string { return all[i].Lease })
	if in.Body.Reserve != nil {
		if out.Tasks, err = a.take(ctx, c, *in.Body.Reserve); err != nil && len(all) > 0 {
			c.cause, err = err, nil // what is settled must be told
		}
	}
	return out, err
}

// settling reads what a worker says of a task.
func (one SettleOne) settling(worker string) (s pull.Settling, err error) {
	s = pull.Settling{Lease: one.Lease, Output: one.Output, Worker: worker, Release: one.Do == "release"}
	delay := time.Duration(0)
	if one.DelayMS != nil {
		delay = time.Duration(*one.DelayMS) * time.Millisecond
	}
	why := errors.New(name.Reason(one.Error, "the worker gave no reason"))
	switch one.Do {
	case "retry":
		if s.Answer = why; one.DelayMS != nil {
			s.Answer = tocsin.RetryIn(delay, why)
		}
	case "bury":
		s.Answer = tocsin.Bury(why)
	case "snooze":
		if one.DelayMS == nil {
			return s, invalid("settle", "snooze needs delay_ms")
		}
		s.Answer = tocsin.Snooze(delay)
	}
	if one.DelayMS != nil && one.Do != "retry" && one.Do != "snooze" {
		return s, invalid("settle", "delay_ms is for retry and snooze")
	}
	return s, nil
}

// resultsOf tells what became of leases.
func resultsOf(c *call, became []pull.Became, lease func(int) string) []LeaseResult {
	results := make([]LeaseResult, len(became))
	for i, b := range became {
		results[i] = LeaseResult{Lease: lease(i), Result: string(b.Result)}
		if b.Result == pull.OK {
			results[i].LeaseUntil = &Time{b.Until}
		}
		if b.Err != nil {
			results[i].Problem, c.cause = asProblem(b.Err), b.Err
		}
	}
	return results
}

// PullNode is a node whose API workers may ask.
type PullNode struct {
	Node string `json:"node" example:"host-1-4mzkq7ta"`
	API  string `json:"api" doc:"Where its API is" example:"http://host-1:8481"`
}

// PullNodes are all such nodes.
type PullNodes struct {
	Nodes []PullNode `json:"nodes"`
}

func (a *API) pullNodes(ctx context.Context, _ *call, _ *struct{}) (out PullNodes, err error) {
	groups, err := a.cfg.Cluster.Nodes(ctx, "")
	if err != nil && len(groups) == 0 {
		return out, unasked(err)
	}
	out.Nodes = []PullNode{}
	for _, g := range groups {
		for _, n := range g.Nodes {
			if at := operator.APIOf(n); at != "" {
				out.Nodes = append(out.Nodes, PullNode{n.ID, at})
			}
		}
	}
	return out, nil
}
