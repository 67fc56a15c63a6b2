package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// bizTypes registers the operations that show, pause and resume biz types.
func (a *API) bizTypes() {
	register(a, operation{
		id: "list_biz_types", method: http.MethodGet, path: "/biz-types", tag: "biz types", needs: apitoken.Read, connects: true, summary: "List the biz types that the token is for",
	}, func(ctx context.Context, c *call, _ *struct{}) (BizTypes, error) {
		seen, err := a.seenTypes(ctx, c)
		if seen == nil {
			return BizTypes{}, err
		}
		c.cause = err
		return BizTypes{seen, err != nil}, nil
	})
	register(a, operation{
		id: "get_biz_type", method: http.MethodGet, path: "/biz-types/{name}", tag: "biz types", needs: apitoken.Read, connects: true, summary: "Get a biz type",
		errors: []int{http.StatusNotFound},
	}, a.getBizType)
	register(a, operation{
		id: "pause_biz_type", method: http.MethodPost, path: "/biz-types/{name}:pause", tag: "biz types", needs: apitoken.Operate, connects: true, summary: "Let the tasks of a biz type wait",
		about:  "Nodes and sweepers start none of its tasks within two seconds; deliveries in hand end. Tasks are added as before, and wait.",
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, func(ctx context.Context, c *call, in *becauseByName) (BizType, error) {
		return a.pause(ctx, c, *in, true)
	})
	register(a, operation{
		id: "resume_biz_type", method: http.MethodPost, path: "/biz-types/{name}:resume", tag: "biz types", needs: apitoken.Operate, connects: true, summary: "Deliver the tasks of a paused biz type again",
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, func(ctx context.Context, c *call, in *becauseByName) (BizType, error) {
		return a.pause(ctx, c, *in, false)
	})
}

// ByName names a biz type in a path.
type ByName struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the biz type" example:"order.close"`
}

// becauseByName names a biz type, and why it is changed.
type becauseByName struct {
	ByName
	Body *Reason
}

// BizType is a policy, with its defaults.
type BizType struct {
	Name        string   `json:"name" example:"order.close"`
	Number      ID       `json:"number"`
	Group       string   `json:"group" doc:"The nodes that deliver it" example:"callback"`
	Webhook     string   `json:"webhook,omitempty" doc:"URL of the callback; left out if the type has none"`
	Sink        *Sink    `json:"sink,omitempty" doc:"Message broker that gets the tasks; left out if the type has none. A type without webhook, sink and lease_ms has a Go handler"`
	LeaseMS     int64    `json:"lease_ms,omitempty" doc:"Workers ask for the tasks, and have each for so long; left out of other types"`
	Fallback    string   `json:"fallback,omitempty" doc:"What delivers while that is away: the URL of a callback, or the name of a sink"`
	FallbackMS  int64    `json:"fallback_after_ms,omitempty" doc:"For how long that is away before the fallback delivers"`
	Batch       int      `json:"batch,omitempty" doc:"Tasks in one request of the callback at most; left out: a request for each task"`
	Allow       []string `json:"allow,omitempty" doc:"Private networks that the callback may call"`
	Signatures  int      `json:"signatures,omitempty" doc:"Secrets that sign each request of the callback"`
	TimeoutMS   int64    `json:"timeout_ms" doc:"Of one delivery"`
	Attempts    int      `json:"attempts" doc:"At most, then the task is dead"`
	Backoff     *Backoff `json:"backoff,omitempty" doc:"Waits between attempts; left out if ladder_ms has them"`
	LadderMS    []int64  `json:"ladder_ms,omitempty" doc:"Waits after the first, second, ... failed attempt; the last one repeats"`
	Concurrency int      `json:"concurrency" doc:"Deliveries at once in each node"`
	Rate        float64  `json:"rate" doc:"Deliveries a second over the whole group; 0: no limit"`
	Priority    string   `json:"priority" enum:"high,normal,low" doc:"Lower ones give way where a process or a server can't keep up"`
	PerKey      int      `json:"per_key,omitempty" doc:"Deliveries of one biz_id at once, in the order of their times; left out: no limit"`
	Strict      bool     `json:"strict" doc:"Tasks are claimed before every delivery"`
	Paused      bool     `json:"paused"`
	RetentionMS int64    `json:"retention_ms" doc:"How long finished tasks are kept"`
	History     bool     `json:"history" doc:"What becomes of each attempt is kept: see GET /v1/tasks/{id}/runs"`
	Alarm       *Alarm   `json:"alarm,omitempty" doc:"Left out if the biz type has no alarm"`
	Defaults    []string `json:"defaults" doc:"Which of these fields have the value that a policy without them has" example:"[\"timeout_ms\"]"`
}

// Backoff doubles the wait after each failed attempt, and takes a random one between half of that and all.
type Backoff struct {
	BaseMS int64 `json:"base_ms" doc:"After the first failed attempt"`
	MaxMS  int64 `json:"max_ms" doc:"The longest"`
}

// Alarm is the alarm of a policy: the biz type that delivers alarms about dead tasks and missed runs.
type Alarm struct {
	To            string   `json:"to,omitempty" doc:"Biz type whose tasks are the alarms; left out if the token is not for it" example:"ops.alarm"`
	On            []string `json:"on" enum:"dead,missed" doc:"What is told"`
	AtMostEveryMS int64    `json:"at_most_every_ms" doc:"Between two alarms of one kind"`
}

// Sink says where the tasks of a biz type go at a message broker.
type Sink struct {
	Name   string `json:"name" doc:"Of the sink in the config of the nodes" example:"orders-kafka"`
	Topic  string `json:"topic" doc:"{biz_type} and {header.NAME} are filled in" example:"orders.{biz_type}"`
	Key    string `json:"key" doc:"What decides the partition: biz_key, job_id, header.NAME or none" example:"biz_key"`
	Format string `json:"format" enum:"cloudevents,webhook" doc:"Of the message: a CloudEvent whose value is the payload, or the body of a callback"`
}

func bizTypeOf(p biztype.Policy, c *call) BizType {
	b := BizType{
		Name: p.Name, Number: idOf(p.Number), Group: p.Group, TimeoutMS: p.Timeout.D().Milliseconds(), Attempts: p.Attempts, Concurrency: p.Concurrency,
		Rate: p.Rate, Priority: string(cmp.Or(p.Priority, tocsin.Normal)), PerKey: p.PerKey, Strict: p.Strict, Paused: p.Paused, RetentionMS: p.Retention.D().Milliseconds(), History: p.History,
	}
	if w := p.Webhook; w != nil {
		b.Webhook, b.Batch, b.Allow, b.Signatures = w.URL, w.Batch, w.Allow, len(w.Secrets)
	}
	for _, wait := range p.Ladder {
		b.LadderMS = append(b.LadderMS, wait.D().Milliseconds())
	}
	if len(p.Ladder) == 0 {
		b.Backoff = &Backoff{p.Backoff.Base.D().Milliseconds(), p.Backoff.Max.D().Milliseconds()}
	}
	if s := p.Sink; s != nil {
		b.Sink = &Sink{s.Name, s.Topic, s.Key, cmp.Or(s.Format, "cloudevents")}
	}
	if p.Pull != nil {
		b.LeaseMS = p.Pull.Lease.D().Milliseconds()
	}
	switch f := p.Fallback; {
	case f == nil:
	case f.Webhook != nil:
		b.Fallback = f.Webhook.URL
	case f.Sink != nil:
		b.Fallback = f.Sink.Name
	}
	if p.Fallback != nil {
		b.FallbackMS = p.Fallback.After.D().Milliseconds()
	}
	b.Defaults = defaultsOf(p)
	if p.Alarm != nil {
		b.Alarm = alarmOf(p, c)
	}
	return b
}

// defaultsOf names the fields of a policy that are as those of a policy that leaves them out.
func defaultsOf(p biztype.Policy) []string {
	plain := biztype.Policy{Webhook: p.Webhook, Sink: p.Sink, Pull: p.Pull}.WithDefaults()
	names := []string{}
	for _, field := range []struct {
		name string
		is   bool
	}{
		{"group", p.Group == plain.Group},
		{"timeout_ms", p.Timeout == plain.Timeout},
		{"attempts", p.Attempts == plain.Attempts},
		{"backoff", len(p.Ladder) == 0 && p.Backoff == plain.Backoff},
		{"concurrency", p.Concurrency == plain.Concurrency},
		{"rate", p.Rate == 0},
		{"priority", p.Priority == "" || p.Priority == tocsin.Normal},
		{"per_key", p.PerKey == 0},
		{"strict", !p.Strict},
		{"history", !p.History},
		{"retention_ms", p.Retention == plain.Retention},
	} {
		if field.is {
			names = append(names, field.name)
		}
	}
	return names
}

func alarmOf(p biztype.Policy, c *call) *Alarm {
	alarm := &Alarm{On: []string{}, AtMostEveryMS: p.Alarm.AtMostEvery.D().Milliseconds()}
	if c.sees(p.Alarm.To) {
		alarm.To = p.Alarm.To
	}
	for _, kind := range []string{biztype.OnDead, biztype.OnMissed} {
		if p.AlarmOn(kind) {
			alarm.On = append(alarm.On, kind)
		}
	}
	return alarm
}

// BizTypes are the biz types that a token allows.
type BizTypes struct {
	BizTypes   []BizType `json:"biz_types"`
	Incomplete bool      `json:"incomplete,omitempty" doc:"A policy can't be read: the log of the node that answers says which"`
}

// seenTypes reads the biz types that the caller may see. Beside an error it returns those that can be read; nil: none can.
func (a *API) seenTypes(ctx context.Context, c *call) ([]BizType, error) {
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return nil, err
	}
	policies, err := people.BizTypes(ctx)
	if policies == nil {
		return nil, err
	}
	seen := []BizType{}
	for _, p := range policies {
		if c.sees(p.Name) {
			seen = append(seen, bizTypeOf(p, c))
		}
	}
	return seen, err
}

func (a *API) getBizType(ctx context.Context, c *call, in *ByName) (BizType, error) {
	if !c.sees(in.Name) { // even if a policy can't be read
		return BizType{}, noType(in.Name)
	}
	seen, err := a.seenTypes(ctx, c)
	for _, b := range seen {
		if b.Name == in.Name {
			return b, nil
		}
	}
	return BizType{}, cmp.Or(err, error(noType(in.Name)))
}

func (a *API) pause(ctx context.Context, c *call, in becauseByName, paused bool) (b BizType, err error) {
	name := in.Name
	c.object = "biz type " + line(name)
	c.because(in.Body)
	if b, err = a.getBizType(ctx, c, &ByName{name}); err != nil {
		return b, err
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return b, err
	}
	res, err := people.Pause(ctx, name, paused)
	if err != nil {
		return b, err
	}
	c.outcome = "unchanged"
	if len(res.Types) > 0 {
		c.outcome = string(res.Types[0].Verdict)
	}
	b, err = a.getBizType(ctx, c, &ByName{name})
	if err == nil && b.Paused != paused {
		err = problem(http.StatusConflict, "changed_meanwhile", "somebody else changed biz type %s at the same time: look at it again", name)
	}
	return b, err
}
