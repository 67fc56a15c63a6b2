package assign

import (
	"context"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A table has one owner, and that owner may be unable to deliver some biz types of its group: it may run an older
// program, or lack the secret of a callback. It publishes that in its key (NodeInfo.Lacks), and other nodes stand in
// for it: they claim and deliver rows of these types in its tables, and of no other type. The tables themselves stay
// where they are, so one upgraded node does not get all of them.

// Duty is one stand-in: the biz types that a node delivers in some tables of another node.
type Duty struct {
	Owner  string   // id of the node that owns the tables, as in the owner rows
	Types  []string // the ones that the owner lacks, sorted
	Tables []int    // ascending
}

// Unasked is why a node lacks a type whose tasks workers ask for. It is the normal state of nodes that none of them asks.
const Unasked = "no worker has asked this node for its tasks for 10 s"

// Told is what a node publishes about its biz types, besides its Config.Info.
type Told struct {
	Types []string          // the ones it delivers, sorted
	Lacks map[string]string // types of its group that it does not deliver -> why; it will deliver none of them before the next Tell

	Versions map[string]int // of the payloads of its types; without those that have none. They must not change
	Newer    map[string]int // biz type -> newest payload version of the tasks that the node cannot read and leaves alone
}

func (t Told) equal(o Told) bool {
	return slices.Equal(t.Types, o.Types) && maps.Equal(t.Lacks, o.Lacks) && maps.Equal(t.Versions, o.Versions) && maps.Equal(t.Newer, o.Newer)
}

// Reads reports whether the node delivers tasks of a biz type whose payload has the version by a handler.
func (i NodeInfo) Reads(bizType string, version int) bool {
	return slices.Contains(i.Types, bizType) && i.Versions[bizType] >= version
}

// with returns the description with other biz types.
func (i NodeInfo) with(t Told) NodeInfo {
	i.Types, i.Lacks, i.Versions, i.Newer = t.Types, t.Lacks, t.Versions, t.Newer
	return i
}

func (i NodeInfo) told() Told { return Told{i.Types, i.Lacks, i.Versions, i.Newer} }

// Tell publishes which biz types the node delivers, and which it lacks. It may be called at any time, even before Run;
// the maps and slices must not change afterwards.
func (a *Assign) Tell(t Told) {
	if t.Types == nil {
		t.Types = []string{} // null would mean that nothing was told
	}
	if t.Lacks == nil {
		t.Lacks = map[string]string{}
	}
	a.told.Store(&t)
	a.look()
}

// infoNow returns the node's current description of itself.
func (a *Assign) infoNow() NodeInfo {
	if told := a.told.Load(); told != nil {
		return a.cfg.Info.with(*told)
	}
	return a.cfg.Info
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

// Newest returns the newest version of a biz type's payload that another node of the group delivers; 0: none is known.
func (a *Assign) Newest(bizType string) int {
	newest := a.newest.Load()
	if newest == nil {
		return 0
	}
	return (*newest)[bizType]
}

// Delivered reads the biz types that live nodes of the group deliver; told is false if one of them does not tell. It does not
// need Run.
func (a *Assign) Delivered(ctx context.Context) (types map[string]bool, told bool, err error) {
	v, err := readView(ctx, a.cfg.Client, spaceOf(a.cfg.Cluster, a.cfg.Group), a.cfg.Tables)
	types, told = delivered(v.infosBut(a.ID()))
	return types, told, err
}

// delivered returns the biz types that nodes deliver; told is false if one of them does not tell.
func delivered(infos []NodeInfo) (types map[string]bool, told bool) {
	types, told = make(map[string]bool), true
	for _, info := range infos {
		told = told && info.Types != nil
		for _, name := range info.Types {
			types[name] = true
		}
	}
	return types, told
}

// newest returns the newest versions of payloads that nodes but one deliver: those that take on work and reach all tables,
// since they will have to stand in for older ones.
func (v view) newest(but string) map[string]int {
	newest := make(map[string]int)
	for _, m := range v.members() {
		is := v.nodes[m.ID].record
		if m.ID == but || m.Weight == 0 || is.Leaving || len(is.Misses) > 0 {
			continue
		}
		for _, name := range is.Types {
			newest[name] = max(newest[name], is.Versions[name])
		}
	}
	return newest
}

// noteOthers remembers the types that the other nodes deliver.
func (s *session) noteOthers(v view) {
	all, _ := delivered(v.infosBut(s.id))
	newest := v.newest(s.id)
	s.others.Store(&all)
	s.newest.Store(&newest)
}

// standIn passes the node's duties to Config.StandIn if they have changed.
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

// duties returns the stand-ins of all nodes: by node id, sorted by owner and types. Each type that an owner lacks has
// one stand-in in each of its tables, if a node can deliver it there. The result depends on the keys alone, so nodes
// with the same view never collide; nodes with different views are kept apart by their claims.
func (v view) duties(owners []string) map[string][]Duty {
	lacking := v.lacking()
	if len(lacking) == 0 {
		return nil
	}
	missed, cache := v.misses(), make(map[string][]string)
	found := make(map[string]map[string]*Duty) // stand-in -> owner and types -> duty
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

// standInOf picks the node for a table, passing over nodes that can't reach it; "" means none. Tables are scattered
// over the nodes by hash, not dealt in turn: a plan deals tables in turn, so an owner would have only one stand-in.
func standInOf(table int, able []string, m misses) string {
	scattered := int(uint32(table) * 2654435761 >> 16)
	for i := range able {
		if id := able[(scattered+i)%len(able)]; !m.missed(id, table) {
			return id
		}
	}
	return ""
}
