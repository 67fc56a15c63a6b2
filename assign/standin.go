package assign

import (
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A table has one owner, and the owner may be unable to deliver some biz types of its group: it runs an older program, or
// the secret of a callback is missing on its host. It says so in its key (NodeInfo.Lacks), and other nodes stand in for it:
// they claim and deliver rows of these types in its tables, and of no other. The tables themselves stay where they are, so
// one node that is ahead of all others does not get everything.

// Duty is what a node does in the place of another: deliver some biz types in some of its tables.
type Duty struct {
	Owner  string   // id of the node whose tables they are: the owner rows name it
	Types  []string // that the owner lacks, sorted
	Tables []int    // ascending
}

// Told is what a node tells about its biz types, besides its Config.Info.
type Told struct {
	Types []string          // that it delivers, sorted
	Lacks map[string]string // types of its group that it does not deliver -> why; a promise until it is told otherwise
}

func (t Told) equal(o Told) bool {
	return slices.Equal(t.Types, o.Types) && maps.Equal(t.Lacks, o.Lacks)
}

// told is what the key says of biz types.
func (r nodeRecord) told() Told { return Told{r.Types, r.Lacks} }

// Tell publishes which biz types the node delivers, and which it lacks. It may be called at any time, before Run too; the
// maps and slices must not change afterwards.
func (a *Assign) Tell(t Told) {
	if t.Types == nil {
		t.Types = []string{} // null means that nothing is told
	}
	if t.Lacks == nil {
		t.Lacks = map[string]string{}
	}
	a.told.Store(&t)
	a.look()
}

// infoNow returns what the node tells about itself.
func (a *Assign) infoNow() NodeInfo {
	info := a.cfg.Info
	if told := a.told.Load(); told != nil {
		info.Types, info.Lacks = told.Types, told.Lacks
	}
	return info
}

// Elsewhere reports whether another live node of the group delivers the biz type; known is false before the group's keys
// have been read.
func (a *Assign) Elsewhere(bizType string) (delivered, known bool) {
	others := a.others.Load()
	if others == nil {
		return false, false
	}
	return (*others)[bizType], true
}

// noteOthers remembers what the other nodes deliver.
func (s *session) noteOthers(v view) {
	all := make(map[string]bool)
	for _, info := range v.infosBut(s.id) {
		for _, name := range info.Types {
			all[name] = true
		}
	}
	s.others.Store(&all)
}

// standIn says what this node does in the place of others, if that has changed.
func (s *session) standIn(duties []Duty) {
	same := func(a, b Duty) bool {
		return a.Owner == b.Owner && slices.Equal(a.Types, b.Types) && slices.Equal(a.Tables, b.Tables)
	}
	if s.cfg.StandIn == nil || slices.EqualFunc(duties, s.duties, same) {
		return
	}
	s.duties = duties
	s.cfg.StandIn(duties)
}

// duties says which node delivers what in the place of the owners: by node id, sorted by owner and types. Each type that
// an owner lacks has one stand-in in each of its tables, if a node can deliver it there. It depends on the keys alone, so
// nodes that see the same do not get in one another's way; those that don't are kept apart by their claims.
func (v view) duties(owners []string) map[string][]Duty {
	lacking := v.lacking()
	if len(lacking) == 0 {
		return nil
	}
	missed, cache := v.misses(), make(map[string][]string)
	found := make(map[string]map[string]*Duty) // by stand-in, and by owner and types
	for table, owner := range owners {
		by := make(map[string][]string) // stand-in -> types
		for _, name := range lacking[owner] {
			if id := standInOf(table, v.able(name, cache), missed); id != "" {
				by[id] = append(by[id], name)
			}
		}
		for id, types := range by {
			key := owner + " " + strings.Join(types, " ")
			if found[id] == nil {
				found[id] = make(map[string]*Duty)
			}
			if found[id][key] == nil {
				found[id][key] = &Duty{Owner: owner, Types: types}
			}
			found[id][key].Tables = append(found[id][key].Tables, table)
		}
	}
	all := make(map[string][]Duty, len(found))
	for id, duties := range found {
		for _, key := range slices.Sorted(maps.Keys(duties)) {
			all[id] = append(all[id], *duties[key])
		}
	}
	return all
}

// lacking returns the types that each node lacks, sorted.
func (v view) lacking() map[string][]string {
	lacking := make(map[string][]string)
	for id, n := range v.nodes {
		if n.lease != clientv3.NoLease && len(n.record.Lacks) > 0 {
			lacking[id] = slices.Sorted(maps.Keys(n.record.Lacks))
		}
	}
	return lacking
}

// able returns the ids of the nodes that deliver a type and take on work, sorted.
func (v view) able(name string, cache map[string][]string) []string {
	if ids, ok := cache[name]; ok {
		return ids
	}
	ids := []string{}
	for _, m := range v.members() {
		if m.Weight > 0 && slices.Contains(v.nodes[m.ID].record.Types, name) {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	cache[name] = ids
	return ids
}

// standInOf picks the node for a table, passing over those that can't reach it. "" is nobody. Tables are scattered over the
// nodes, and not given to them in turn: a plan deals tables in turn, and an owner would have but one stand-in.
func standInOf(table int, able []string, m misses) string {
	scattered := int(uint32(table) * 2654435761 >> 16)
	for i := range able {
		if id := able[(scattered+i)%len(able)]; !m.missed(id, table) {
			return id
		}
	}
	return ""
}
