package node

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/loop"
)

const (
	rosterEvery = 2 * time.Second // between two readings of the secrets
	newerFor    = 3 * time.Minute // how long it is told that tasks were left alone; each is found again within a minute
)

// lanes is the part of the dispatcher that roster needs.
type lanes interface {
	SetPolicies([]biztype.Policy)
	InHand(bizType uint64) bool
	Newer() map[uint64]dispatcher.Newer
}

// group is the part of the assignment that roster needs.
type group interface {
	Tell(assign.Told)
	Elsewhere(bizType string) (delivered, known bool)
	Newest(bizType string) int // version of its payload that other nodes deliver; 0: none
}

// roster knows which biz types of its group this node delivers and which it lacks,
// because their callback's secret is missing here or this program has no handler for
// them, or because other nodes know newer payloads of it. It tells the dispatcher and the other nodes, which then stand in for this
// one. When this node ceases to deliver a type, roster publishes that only after the
// last delivery in hand has ended: from then on others deliver the type in this
// node's tables.
type roster struct {
	targets *targets
	lanes   lanes
	group   group
	log     *slog.Logger
	limit   loop.LogLimit
	lacking *prometheus.GaugeVec
	groups  *prometheus.GaugeVec

	mu       sync.Mutex
	policies []biztype.Policy
	seen     int // changes of targets, as of the last look
	told     assign.Told
	idle     map[string]string // handlers that get no task -> why
}

func newRoster(t *targets, g group, log *slog.Logger, r prometheus.Registerer) *roster {
	return &roster{
		targets: t, group: g, log: log,
		lacking: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "tocsin", Subsystem: "node", Name: "biz_type_lacking",
			Help: "1 for each biz type of its group that this node can't deliver, except those with pull: other nodes stand in for it, if they can.",
		}, []string{"biz_type"}),
		groups: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "tocsin", Subsystem: "node", Name: "group_biz_types",
			Help: "Biz types of each group that are not paused, by this node's policies; own: true for the group of this node.",
		}, []string{"group", "own"}),
	}
}

// run reads the secrets again at intervals, and looks who asks for tasks, until ctx ends.
func (r *roster) run(ctx context.Context) {
	tick := time.NewTicker(rosterEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.targets.hub.News():
		}
		r.look(ctx)
	}
}

// set replaces the policies. It waits for their secrets, at most until ctx ends.
func (r *roster) set(ctx context.Context, policies []biztype.Policy) {
	r.targets.read(ctx, policies) // before the lock, which deliveries and the status page need
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policies = policies
	r.count()
	r.targets.leave(r.group.Newest)
	r.targets.reload(policies, &r.seen)
	r.lanes.SetPolicies(policies)
	r.tell()
	r.tellIdle()
}

// count exports how many biz types each group has. Called under mu.
func (r *roster) count() {
	types := map[string]int{r.targets.cfg.Group: 0}
	for _, p := range r.policies {
		if !p.Paused {
			types[p.WithDefaults().Group]++
		}
	}
	r.groups.Reset()
	for group, n := range types {
		r.groups.WithLabelValues(group, strconv.FormatBool(group == r.targets.cfg.Group)).Set(float64(n))
	}
}

// look reads the secrets again.
func (r *roster) look(ctx context.Context) {
	r.targets.read(ctx, r.known())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets.leave(r.group.Newest)
	if r.targets.reload(r.policies, &r.seen) {
		r.lanes.SetPolicies(r.policies)
	}
	r.tell()
	r.say()
}

// tell publishes changes to the other nodes. Called under mu.
func (r *roster) tell() {
	now := assign.Told{Types: r.targets.types(r.policies), Lacks: r.targets.lacks(r.policies), Versions: r.targets.handlers.versions, Newer: r.newer()}
	for _, p := range r.policies {
		if _, new := now.Lacks[p.Name]; new && r.told.Lacks[p.Name] == "" && r.lanes.InHand(p.Number) {
			delete(now.Lacks, p.Name) // not yet; the next look will add it
		}
	}
	if slices.Equal(now.Types, r.told.Types) && maps.Equal(now.Lacks, r.told.Lacks) && maps.Equal(now.Newer, r.told.Newer) {
		return
	}
	r.told = now
	r.lacking.Reset()
	for name, why := range now.Lacks {
		if why != assign.Unasked { // that is no fault of a node
			r.lacking.WithLabelValues(name).Set(1)
		}
	}
	r.group.Tell(now)
}

// newer returns the biz types of which tasks were left alone lately, since their payload is newer than this program reads,
// with the newest version, and logs them once a minute. Called under mu.
func (r *roster) newer() map[string]int {
	all := make(map[string]int)
	left := r.lanes.Newer()
	for _, p := range r.policies {
		n, some := left[p.Number]
		if !some || time.Since(n.Last) > newerFor {
			continue
		}
		all[p.Name] = n.Version
		if time.Since(n.Last) <= rosterEvery {
			r.limit.Of(r.log, "newer "+p.Name).Warn("tasks with a newer payload than this program reads are left for a program that reads it",
				"biz_type", p.Name, "payload_version", n.Version, "known", n.Known)
		}
	}
	return all
}

// say logs the lacking biz types, once a minute. Called under mu.
func (r *roster) say() {
	for name, why := range r.told.Lacks {
		switch delivered, known := r.group.Elsewhere(name); {
		case !known: // the group's keys have not been read yet
		case why == assign.Unasked: // workers decide when they come: a metric and an alert tell
		case delivered:
			r.limit.Of(r.log, "lacks "+name).Warn("biz type can't be delivered here: other nodes of the group stand in",
				"biz_type", name, "why", why)
		default:
			r.limit.Of(r.log, "nobody "+name).Error("biz type can't be delivered by any node of the group: its tasks wait",
				"biz_type", name, "why", why)
		}
	}
	for name, err := range r.targets.stale() {
		r.limit.Of(r.log, "stale "+name).Error("a secret can't be read any more, or a fallback can't be used: going on with what was read before, or without it",
			"error", err, "biz_type", name)
	}
}

// now returns what was last published.
func (r *roster) now() assign.Told {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

// without returns the handlers that get no task, with the reasons.
func (r *roster) without() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.idle
}

// known returns the policies of all groups. They are not to be changed.
func (r *roster) known() []biztype.Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policies
}

// number returns the number of a biz type, and whether this node delivers it.
func (r *roster) number(name string) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.policies {
		if p.Name == name {
			return p.Number, slices.Contains(r.told.Types, name)
		}
	}
	return 0, false
}
