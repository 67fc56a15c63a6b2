package cluster

import (
	"context"
	"slices"

	"github.com/tocsinhq/tocsin/dispatcher"
)

// Lane is what a node has in hand of one biz type.
type Lane struct {
	Node  string                 `json:"node"`
	Lane  *dispatcher.LaneReport `json:"lane"`            // null: the node knows no policy of the type, or could not be asked
	Error string                 `json:"error,omitempty"` // why it could not be asked
}

// Lanes asks the nodes of a group, all at once, what they have in hand of a biz type.
func (v View) Lanes(ctx context.Context, group, bizType string) ([]Lane, error) {
	if v.cfg.NoEtcd != nil && !v.cfg.ByRows {
		return nil, v.cfg.NoEtcd
	}
	groups, err := v.Nodes(ctx, group)
	if err != nil {
		return nil, err
	}
	var lanes []Lane
	var pages []string
	for _, g := range groups {
		for _, n := range g.Nodes {
			lanes, pages = append(lanes, Lane{Node: n.ID}), append(pages, PageOf(n))
		}
	}
	for i, asked := range v.askAll(ctx, pages) {
		if lanes[i].Error = asked.Error; pages[i] == "" {
			lanes[i].Error = "it publishes no address: set Listen of its node.Config"
		}
		if asked.Report == nil {
			continue
		}
		if at := slices.IndexFunc(asked.Report.Lanes, func(l dispatcher.LaneReport) bool { return l.BizType == bizType }); at >= 0 {
			lanes[i].Lane = &asked.Report.Lanes[at]
		}
	}
	return lanes, nil
}
