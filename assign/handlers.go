package assign

import (
	"maps"
	"slices"
	"strings"
)

// differing gives, sorted, the types that others have handlers for and own has not, and those that own has and not all
// others have. A node that does not tell its types is not compared.
func differing(own NodeInfo, others []NodeInfo) (lacks, extra []string) {
	if own.Types == nil {
		return nil, nil
	}
	missing, only := make(map[string]bool), make(map[string]bool)
	for _, other := range others {
		if other.Types == nil || slices.Equal(other.Types, own.Types) {
			continue
		}
		note(missing, other, own)
		note(only, own, other)
	}
	return slices.Sorted(maps.Keys(missing)), slices.Sorted(maps.Keys(only))
}

// note adds to set the types of a that b has not, except those of workers that ask: they may ask any node.
func note(set map[string]bool, a, b NodeInfo) {
	for _, name := range a.Types {
		if !slices.Contains(b.Types, name) && b.Lacks[name] != Unasked {
			set[name] = true
		}
	}
}

// infosBut gives what the live nodes but one tell about themselves. Those that leave don't count any more.
func (v view) infosBut(id string) []NodeInfo {
	var infos []NodeInfo
	for other, n := range v.nodes {
		if other != id && n.lease != 0 && !n.record.Leaving {
			infos = append(infos, n.record.NodeInfo)
		}
	}
	return infos
}

// compareHandlers warns, once per change, of types that only some nodes of the group can deliver. Nodes that can stand
// in for the others. A rolling deploy passes through this state.
func (s *session) compareHandlers(v view) {
	lacks, extra := differing(s.record.NodeInfo, v.infosBut(s.id))
	now := strings.Join(lacks, ",") + ";" + strings.Join(extra, ",")
	if now == s.differs || now == ";" && s.differs == "" {
		return
	}
	s.differs = now
	if now == ";" {
		s.log.Info("all nodes of the group have the same handlers")
		return
	}
	s.log.Warn("handlers differ from those of the group's other nodes: nodes that have a handler deliver its tasks for nodes that lack it",
		"missing_here", lacks, "missing_elsewhere", extra)
}
