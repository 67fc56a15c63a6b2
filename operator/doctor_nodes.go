package operator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// bizTypes judges the stored policies, and whether the nodes deliver what they name.
func (p patient) bizTypes(ctx context.Context) (_ []Check, unread error) {
	bounded, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	policies, err := p.types(bounded)
	checks := []Check{storedTypes(policies, err)}
	groups, listed := p.nodes()
	if !listed || err != nil {
		groups = nil // the check of etcd, or of the servers, says why
	} else {
		checks = append(append(checks, delivered(policies, groups)...), idleHandlers(policies, groups)...)
		checks = append(checks, unasked(policies, groups, p.asked)...)
	}
	checks = append(append(checks, p.secrets(policies, groups)...), p.sinks(ctx, policies, groups)...)
	return append(of("biz types", checks...), of("nodes", programs(groups)...)...), err
}

// storedTypes judges the stored policies, or why they could not be read.
func storedTypes(policies []biztype.Policy, err error) Check {
	const name, fix = "stored", "run `tocsin biz apply FILE`"
	paused := 0
	for _, p := range policies {
		if p.Paused {
			paused++
		}
	}
	switch {
	case mysql.ClassOf(err) == mysql.Missing:
		return bad(Fail, name, err.Error(), "run `tocsin ddl apply`, then `tocsin biz apply FILE`")
	case err != nil:
		return bad(Fail, name, err.Error(), cmp.Or(refusalFixes[mysql.Number(err)], "mend the server first"))
	case len(policies) == 0:
		return bad(Warn, name, "none, so no task can be added", fix)
	case paused > 0:
		return good(name, "%d, of which %d paused", len(policies), paused)
	}
	return good(name, "%d", len(policies))
}

// delivers reports whether a node of some groups has the handler of a biz type.
func delivers(groups []Group, bizType string) bool {
	return slices.ContainsFunc(groups, func(g Group) bool {
		return slices.ContainsFunc(g.Nodes, func(n assign.NodeState) bool { return slices.Contains(n.Info.Types, bizType) })
	})
}

// named returns the groups of this name that have nodes.
func named(groups []Group, name string) []Group {
	return slices.DeleteFunc(slices.Clone(groups), func(g Group) bool { return g.Group != name || len(g.Nodes) == 0 })
}

// delivered judges whether the nodes deliver what they should. It fails for a type
// that no node of its group delivers, and warns of nodes that others stand in for, and of
// groups without nodes if other groups have some.
func delivered(policies []biztype.Policy, groups []Group) (checks []Check) {
	const name, fix = "delivered", "give each node of the group the secret (in its environment, or a file in node.secrets_dir), the sink (in its config) or a program with the handler"
	for _, p := range policies {
		own := named(groups, p.WithDefaults().Group)
		if p.Pull != nil {
			continue // see unasked
		}
		var lacking []string
		for _, g := range own {
			for _, n := range g.Nodes {
				if why := n.Info.Lacks[p.Name]; why != "" {
					lacking = append(lacking, fmt.Sprintf("%s: %s", n.ID, why))
				}
			}
		}
		switch {
		case len(own) > 0 && !delivers(own, p.Name):
			is := fmt.Sprintf("no node of group %s delivers %s: its tasks wait", p.WithDefaults().Group, p.Name)
			checks = append(checks, bad(Fail, name, strings.Join(append([]string{is}, lacking...), "; "), fix))
		case len(lacking) > 0:
			is := fmt.Sprintf("some nodes lack %s, and others stand in for them", p.Name)
			checks = append(checks, bad(Warn, name, strings.Join(append([]string{is}, lacking...), "; "), fix))
		}
	}
	checks = append(checks, groupsAway(policies, groups)...)
	if len(checks) == 0 && someNode(groups) {
		checks = append(checks, good(name, "by every node of their groups"))
	}
	return checks
}

// unasked finds the pull types that no worker asks the nodes of their group for. last returns when one asked last, zero if that is not
// known; nil: nobody is asked.
func unasked(policies []biztype.Policy, groups []Group, last func(own []Group, bizType string) time.Time) (checks []Check) {
	for _, p := range policies {
		own := named(groups, p.WithDefaults().Group)
		if p.Pull == nil || len(own) == 0 || delivers(own, p.Name) {
			continue
		}
		is := fmt.Sprintf("no worker asks the nodes of group %s for tasks of %s", p.WithDefaults().Group, p.Name)
		if last != nil {
			if at := last(own, p.Name); !at.IsZero() {
				is += "; one asked last at " + at.UTC().Format(time.RFC3339)
			}
		}
		checks = append(checks, bad(Warn, "workers", is, "start its workers, with a token of scope work that allows the biz type, or wait for them"))
	}
	return checks
}

func someNode(groups []Group) bool {
	return slices.ContainsFunc(groups, func(g Group) bool { return len(g.Nodes) > 0 })
}

// groupsAway finds the groups without a running node, while other groups have one. It fails if nodes of another group have the
// handlers. Without any node nothing is said: they may not have been started yet.
func groupsAway(policies []biztype.Policy, groups []Group) (checks []Check) {
	if !someNode(groups) {
		return nil
	}
	elsewhere := map[string]bool{} // groups without a node -> whether nodes of another have a handler of theirs
	for _, p := range policies {
		if group := p.WithDefaults().Group; len(named(groups, group)) == 0 {
			elsewhere[group] = elsewhere[group] || delivers(groups, p.Name)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(elsewhere)) {
		found := groupAway(policies, group)
		if elsewhere[group] {
			found[0].Level = Fail
		}
		checks = append(checks, found...)
	}
	return checks
}

// groupAway is what to do about a group without a running node.
func groupAway(policies []biztype.Policy, group string) []Check {
	says := withoutNode(policies, group)
	if says.Text == "" {
		return nil
	}
	return []Check{bad(Warn, "delivered", says.Text, fmt.Sprintf("start a node of group %s, or name in the policies a group that has nodes", group))}
}

// withoutNode names the biz types of a group without a running node: their tasks wait.
func withoutNode(policies []biztype.Policy, group string) Sentence {
	var waiting []string
	for _, p := range policies {
		if p.WithDefaults().Group == group {
			waiting = append(waiting, p.Name)
		}
	}
	if len(waiting) == 0 {
		return Sentence{}
	}
	slices.Sort(waiting)
	return sentence("no node of group %s runs: tasks of %s wait", group, strings.Join(waiting, ", "))
}

// idleHandlers finds handlers that get no task, since the policy of their biz type names another group, or there is none.
func idleHandlers(policies []biztype.Policy, groups []Group) (checks []Check) {
	const name = "handlers"
	at := map[[2]string][]string{} // biz type and group -> nodes
	for _, g := range groups {
		for _, n := range g.Nodes {
			for _, t := range n.Info.Types {
				at[[2]string{t, g.Group}] = append(at[[2]string{t, g.Group}], n.ID)
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(at), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		bizType, group, ids := key[0], key[1], strings.Join(at[key], ", ")
		i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == bizType })
		if i < 0 {
			checks = append(checks, bad(Warn, name, fmt.Sprintf("%s of group %s: the handler of %s gets no task, as this biz type has no policy", ids, group, bizType),
				"apply one with `tocsin biz apply`, or remove the handler"))
			continue
		}
		right := policies[i].WithDefaults().Group
		if right == group {
			continue
		}
		checks = append(checks, bad(Warn, name, fmt.Sprintf("%s of group %s: the handler of %s gets no task, as its policy names group %s", ids, group, bizType, right),
			fmt.Sprintf("start these nodes in group %s, or name group %s in the policy", right, group)))
	}
	return checks
}

// programs warns of nodes with different programs in one group. A program is told by its version and by the schema version
// that it is for.
func programs(groups []Group) (checks []Check) {
	const name = "versions"
	nodes := map[string]map[string][]string{} // group -> program -> nodes
	for _, g := range groups {
		for _, n := range g.Nodes {
			program := "no version"
			if n.Info.Version != "" {
				program = "version " + n.Info.Version
			}
			if n.Info.Schema > 0 {
				program += fmt.Sprintf(" for schema version %d", n.Info.Schema)
			}
			if nodes[g.Group] == nil {
				nodes[g.Group] = map[string][]string{}
			}
			nodes[g.Group][program] = append(nodes[g.Group][program], n.ID)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(nodes)) {
		var parts []string
		for _, program := range slices.Sorted(maps.Keys(nodes[group])) {
			parts = append(parts, program+": "+some(nodes[group][program]))
		}
		if len(parts) > 1 {
			checks = append(checks, bad(Warn, name, fmt.Sprintf("nodes of group %s have different programs: %s", group, strings.Join(parts, "; ")),
				"replace the older ones by the new program; what only it knows is not used, or waits, until then"))
		}
	}
	if len(checks) == 0 && len(nodes) > 0 {
		checks = append(checks, good(name, "one in each group"))
	}
	return checks
}

// secrets judges whether the secrets of the callbacks are available. doctor sees only its own environment, and says so.
// It fails for a type that no live node delivers either, and otherwise warns.
func (p patient) secrets(policies []biztype.Policy, groups []Group) []Check {
	const name = "secrets"
	if p.Secrets == nil {
		return nil
	}
	var missing []string
	level, signed := Warn, 0
	for _, policy := range policies {
		if len(biztype.Secrets(policy)) == 0 {
			continue
		}
		signed++
		err := p.Secrets(policy)
		if err == nil {
			continue
		}
		missing = append(missing, err.Error())
		if !delivers(groups, policy.Name) {
			level = Fail
		}
	}
	switch {
	case len(missing) > 0:
		return []Check{bad(level, name, "missing or invalid where doctor runs: "+strings.Join(missing, "; "),
			"give the secrets to `tocsin serve` and `tocsin sweep`, since these tasks wait without them, and run doctor with the same environment and secrets_dir")}
	case signed > 0:
		return []Check{good(name, "those of %d callbacks are set where doctor runs", signed)}
	}
	return nil
}

// sinksAtOnce is how many policies' topics are asked for at the same time.
const sinksAtOnce = 8

// sinks asks the brokers for the topics that the policies name. A topic that doctor can't use fails for a type that no live node
// delivers either, and otherwise warns, as secrets do.
func (p patient) sinks(ctx context.Context, policies []biztype.Policy, groups []Group) []Check {
	const name = "sinks"
	if p.Sinks == nil {
		return nil
	}
	var ways []biztype.Policy
	for _, policy := range policies {
		for _, way := range biztype.Links(policy) {
			if way.Sink != nil {
				ways = append(ways, way)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	errs := make([]error, len(ways))
	var all errgroup.Group
	all.SetLimit(sinksAtOnce)
	for i, way := range ways {
		all.Go(func() error { errs[i] = p.Sinks(ctx, way); return nil })
	}
	_ = all.Wait()
	level, wrong := Warn, []string{}
	for i, err := range errs {
		if err == nil {
			continue
		}
		if !slices.Contains(wrong, err.Error()) { // a broker that is down says the same for all
			wrong = append(wrong, err.Error())
		}
		if !delivers(groups, ways[i].Name) {
			level = Fail
		}
	}
	switch {
	case len(wrong) > 0:
		return []Check{bad(level, name, "not usable where doctor runs: "+strings.Join(wrong, "; "), "mend the broker, the sinks of the config or the policy: these tasks wait until then")}
	case len(ways) > 0:
		return []Check{good(name, "the brokers answer for %s", plural(len(ways), "target"))}
	}
	return nil
}
