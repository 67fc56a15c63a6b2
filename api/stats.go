package api

import (
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// stats registers the operation that counts tasks.
func (a *API) stats() {
	register(a, operation{
		id: "get_stats", method: http.MethodGet, path: "/stats", tag: "cluster", needs: apitoken.Read, connects: true, summary: "Count tasks by biz type and status",
		about: "Counts about 10000 tasks of each status, those of all biz types together: if there are more, the status is in at_least. For watching, use the metrics " +
			"of the nodes.",
	}, a.getStats)
}

// Counts are the tasks of a biz type by status.
type Counts struct {
	BizType   string `json:"biz_type" example:"order.close"`
	Pending   int    `json:"pending"`
	Claimed   int    `json:"claimed"`
	Done      int    `json:"done" doc:"Those that are not purged yet"`
	Cancelled int    `json:"cancelled"`
	Dead      int    `json:"dead"`
	OverdueMS int64  `json:"overdue_ms" doc:"How long ago the earliest pending task was due; 0: none is due"`
}

// Stats are the counts of all biz types that a token is for.
type Stats struct {
	BizTypes   []Counts `json:"biz_types"`
	AtLeast    []Status `json:"at_least,omitempty" doc:"Statuses with more tasks than were counted: there are at least as many as their counts say"`
	Incomplete []string `json:"incomplete,omitempty" doc:"Servers that could not be asked in full: their tasks are not counted"`
}

func (a *API) getStats(ctx context.Context, c *call, _ *struct{}) (*body[Stats], error) {
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return nil, err
	}
	var more []tocsin.Status
	counts, err := widely(a, func() (counts []operator.Stats, err error) {
		counts, more, err = people.StatsUpTo(ctx, tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Cancelled, tocsin.Dead)
		return counts, err
	})
	out := Stats{BizTypes: []Counts{}}
	for _, status := range more {
		out.AtLeast = append(out.AtLeast, Status(status.String()))
	}
	if out.Incomplete, err = c.incomplete(err, len(counts) > 0); err != nil {
		return nil, err
	}
	for _, s := range counts {
		if c.sees(s.BizType) {
			out.BizTypes = append(out.BizTypes, Counts{
				BizType: s.BizType, Pending: s.Pending, Claimed: s.Claimed, Done: s.Done, Cancelled: s.Cancelled, Dead: s.Dead, OverdueMS: int64(s.Overdue * 1000),
			})
		}
	}
	return &body[Stats]{out}, nil
}
