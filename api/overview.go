package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// overview registers the operation that shows what is wrong now.
func (a *API) overview() {
	register(a, operation{
		id: "get_overview", method: http.MethodGet, path: "/overview", tag: "cluster", needs: apitoken.Read, summary: "Say what is wrong, and how each biz type does",
		about: "The node that answers asks all nodes each 5 s and walks over all tables each 60 s for what is overdue, while somebody asks: it goes on for 30 s after the last " +
			"request, however many there are. The first request after a pause waits for the nodes; rates and what is overdue come in later answers. A token for some biz " +
			"types gets these alone, and of the nodes only how many answer.",
	}, a.getOverview)
}

// runbook is where the sections are that faults refer to.
const runbook = "https://github.com/tocsinhq/tocsin/blob/main/docs/runbook.md#"

// Overview is a cluster at a glance.
type Overview struct {
	Faults      []OverviewFault  `json:"faults" doc:"What is wrong, the worst first; empty: nothing that is known"`
	BizTypes    []OverviewType   `json:"biz_types" doc:"Overdue ones first, then the busiest"`
	Nodes       OverviewNodes    `json:"nodes"`
	Servers     []OverviewServer `json:"servers" doc:"In the order of the config"`
	RatesOverMS int64            `json:"rates_over_ms,omitempty" doc:"Over how long rates and lateness are; left out: there are none yet"`
}

// OverviewFault is one thing that is wrong.
type OverviewFault struct {
	Level   string `json:"level" enum:"fail,warn" doc:"fail: something waits that should not; warn: it is slow, or will be"`
	Text    string `json:"text" doc:"One sentence" example:"order.close is late: 12 overdue tasks, the oldest for 3m30s"`
	Runbook string `json:"runbook" format:"uri" doc:"What to do"`
	BizType string `json:"biz_type,omitempty" doc:"That it is about; left out: none, or several"`
	Server  string `json:"server,omitempty" doc:"That it is about"`
	Node    string `json:"node,omitempty" doc:"That it is about"`

	Parts Sentence `json:"parts" doc:"The text in parts"`
}

// OverviewType is how one biz type does.
type OverviewType struct {
	BizType      string  `json:"biz_type" example:"order.close"`
	State        string  `json:"state" enum:"open,full,limited,busy,paused,away,lacking,no_worker,unknown" doc:"Of its lane, the worst of all nodes; no_worker: it has pull, and no worker asks; unknown: no node of its group answers"`
	Overdue      *int64  `json:"overdue,omitempty" doc:"Tasks that have been due for a second; left out: not known yet"`
	AtLeast      bool    `json:"at_least,omitempty" doc:"There may be more that are overdue"`
	OldestMS     int64   `json:"oldest_ms,omitempty" doc:"For how long the oldest of them has been due, if it still is"`
	DrainMS      *int64  `json:"drain_ms,omitempty" doc:"Until none is overdue, at the present pace; left out: not known, or never"`
	Grows        bool    `json:"grows,omitempty" doc:"The overdue tasks do not become fewer"`
	OverdueAgeMS int64   `json:"overdue_age_ms,omitempty" doc:"Age of these figures"`
	Late50MS     *int64  `json:"late_50_ms,omitempty" doc:"Half of the deliveries began at most so late; left out: there was none"`
	Late99MS     *int64  `json:"late_99_ms,omitempty" doc:"99 of 100 deliveries began at most so late"`
	Delivered    float64 `json:"delivered_per_second"`
	Failed       float64 `json:"failed_per_second" doc:"Attempts, those that made their task dead included"`
	Dead         float64 `json:"dead_per_second"`
	Running      int     `json:"running"`
	Limit        int     `json:"limit" doc:"Slots in all nodes"`
	Queued       int     `json:"queued"`

	Past []OverviewSample `json:"past,omitempty" doc:"With past=true, of the first 50 biz types: each 5 s of the last 5 minutes, as far back as somebody asks, the latest last"`
}

// OverviewSample is how a biz type did for 5 s.
type OverviewSample struct {
	Late99MS  *int64  `json:"late_99_ms,omitempty" doc:"Left out: nothing was delivered"`
	Delivered float64 `json:"delivered_per_second"`
	Failed    float64 `json:"failed_per_second"`
}

// pastTypes is how many biz types have a past, which is 20 times as long as the rest of what is said of them.
const pastTypes = 50

// overviewQuery is what an overview has beside the figures of now.
type overviewQuery struct {
	Past bool `query:"past" doc:"Whether the first 50 biz types have what they did in the last 5 minutes"`
}

// OverviewNodes is which nodes answer.
type OverviewNodes struct {
	Known     int          `json:"known"`
	Answering int          `json:"answering"`
	AgeMS     int64        `json:"age_ms" doc:"How long ago they were asked: the age of rates, lateness and states"`
	Silent    []SilentNode `json:"silent,omitempty" doc:"Those that do not answer; left out for a token that is not for all biz types"`
}

// SilentNode is a node that does not answer.
type SilentNode struct {
	ID    string `json:"id" example:"host-1-4mzkq7ta"`
	Group string `json:"group,omitempty"`
	Error string `json:"error"`
}

// OverviewServer is what is known of a MySQL server.
type OverviewServer struct {
	Name         string `json:"name" example:"db1"`
	OverdueAgeMS *int64 `json:"overdue_age_ms,omitempty" doc:"How long ago its tables were walked over; left out: not yet"`
	Unread       int    `json:"unread_tables,omitempty" doc:"Tables that could not be read"`
	Away         bool   `json:"away,omitempty" doc:"It did not answer the walk, or a node"`
}

func (a *API) getOverview(ctx context.Context, c *call, in *overviewQuery) (out Overview, err error) {
	now, err := a.sampler.Overview(ctx)
	if err != nil {
		return out, err
	}
	out = Overview{Faults: []OverviewFault{}, Servers: []OverviewServer{}, RatesOverMS: int64(now.Seconds * 1000)}
	for _, t := range now.Troubles(c.filter()) {
		out.Faults = append(out.Faults, OverviewFault{t.Level.String(), line(t.Is), runbook + strings.ToLower(t.Section), t.BizType, t.Server, t.Node, sentenceOf(t.Said)})
	}
	out.BizTypes = overviewTypes(now.Types, c.sees, in.Past)
	out.Nodes = OverviewNodes{Known: len(now.Nodes), AgeMS: time.Since(now.At).Milliseconds()}
	for _, n := range now.Nodes {
		switch {
		case n.Error == "":
			out.Nodes.Answering++
		case c.token.SeesAll():
			out.Nodes.Silent = append(out.Nodes.Silent, SilentNode{n.ID, n.Group, n.Error})
		}
	}
	for _, s := range now.Servers {
		server := OverviewServer{Name: s.Name, Unread: s.Unread, Away: s.Away > 0 || s.Err != nil}
		if !s.Measured.IsZero() {
			age := time.Since(s.Measured).Milliseconds()
			server.OverdueAgeMS = &age
		}
		out.Servers = append(out.Servers, server)
	}
	return out, nil
}

// overviewTypes are the biz types that a token sees, with past the first of them with theirs.
func overviewTypes(all []operator.TypeOverview, sees func(bizType string) bool, past bool) []OverviewType {
	types := []OverviewType{}
	for _, t := range all {
		if sees(t.Name) {
			types = append(types, overviewOf(t, past && len(types) < pastTypes))
		}
	}
	return types
}

func overviewOf(t operator.TypeOverview, past bool) OverviewType {
	out := OverviewType{
		BizType: t.Name, State: t.State, AtLeast: t.AtLeast, OldestMS: t.Oldest().Milliseconds(), DrainMS: milli(t.Drain), Grows: t.Grows,
		Late50MS: milli(t.Late50), Late99MS: milli(t.Late99), Delivered: t.Delivered, Failed: t.Failed, Dead: t.Dead,
		Running: t.Running, Limit: t.Limit, Queued: t.Queued,
	}
	if t.Overdue != nil {
		overdue := int64(*t.Overdue)
		out.Overdue, out.OverdueAgeMS = &overdue, time.Since(t.Measured).Milliseconds()
	}
	if past {
		for _, s := range t.Past {
			out.Past = append(out.Past, OverviewSample{milli(s.Late99), s.Delivered, s.Failed})
		}
	}
	return out
}

// milli returns seconds in milliseconds; nil stays nil.
func milli(seconds *float64) *int64 {
	if seconds == nil {
		return nil
	}
	ms := int64(*seconds * 1000)
	return &ms
}
