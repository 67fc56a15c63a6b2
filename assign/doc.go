// Package assign is the authority for which node owns which table. The nodes of a group register in etcd and divide the
// tables among themselves, without a leader.
//
//	/{cluster}/groups/{group}/nodes/{id}    a node: what it tells about itself, under its lease
//	/{cluster}/groups/{group}/tables/{n}    the owner of table n: its id and lease, under that lease
//	/{cluster}/groups/{group}/drains/{id}   written by an operator, without a lease: node id shall own nothing
//	/{cluster}/identity                     the databases that the cluster is known by, without a lease (Binding)
//	/{cluster}/groups/{group}/epoch         a number that grows when etcd has forgotten owners (epoch.go)
//	/{cluster}/groups/{group}/settling      under a lease of one TTL: the epoch has just grown, nobody plans
//
// A table's key is created only where there is none, so two nodes can't both hold one. Every node watches all keys of its
// group, makes the same plan from them (Plan), and does its own part of it. One table, seen from one node:
//
//	         plan says mine                key seen
//	free ------------------> key wanted ------------> key ours --- Take ---> held
//	 ^                                                   |  refused           | plan says another's,
//	 |                                                   v                    v or leaving
//	 +------- key deleted, if it is still that key --- doomed <--- Drop ------+
//
// The keys are the only state: each round compares them with the plan and with what the holder has, and what a round
// writes is acted on when the watch shows it. So an answer that got lost needs no care. A key once doomed is never started
// on again, since a delete of it may still be under way.
//
// A node trusts its lease from the start of the last renewal that succeeded for the TTL less a tenth, on its own monotonic
// clock. etcd begins to count later, so the node has stopped to act on ownership (MayAct) before another can have its
// tables. It keeps them in claim mode: each row is claimed in MySQL, where the owner row says whether it was replaced.
//
// What happens when
//
//	a node comes                 the others give up tables to it when it says that it takes them at once: no table lies between two
//	a node comes back quickly    it waits for the tables of its former life, a TTL at most, before others give up any to it;
//	                             not for a second process of its name, which answers it
//	many tables move             their owner gives them up in parts and goes on with the others meanwhile
//	a server stalls              tables of other servers are taken and dropped meanwhile: each has requests of its own (hands)
//	a node leaves                it is marked as leaving, and gives up its tables in parts, each server's beside the others'
//	a node is told to drain      it drops its tables in order and takes none, but stays; also as a new incarnation
//	a node dies                  its keys go when the lease runs out; after a short pause the others take its tables
//	etcd does not answer         tables stay where they are; a node whose trust runs out goes on in claim mode
//	etcd is back                 a lease that etcd has not ended is renewed, and the node acts on ownership again; else it
//	                             registers as a new incarnation and takes its tables that nobody else has. It plans
//	                             nothing else for one TTL, as the others may still be registering, and says so (Pausing)
//	etcd was wiped or restored   the owner rows in MySQL show it: a new epoch begins, and nothing is taken for one TTL, as nodes
//	                             that the new etcd does not know may still trust their leases
//	a node alone is cut off      the others take its tables when its lease ends; it drops them when it sees their keys. Back,
//	                             it sees that others have gone on, and pauses for a tenth of a TTL only
//	a node pauses                free tables go to others meanwhile (PlanMeanwhile); its own whose keys go it takes again at once
//	the watch breaks             all keys are read anew; also after a compaction
//	the holder can't take        the keys are given back and taken again after 1 s, 2 s, ... 30 s; other tables go on
//	the holder can't drop some   their keys stay, and Drop is called again; other tables go on; after a lost lease nothing is taken before that
//	a key is deleted by hand     its owner drops the table or restores its node's key; the table is taken anew
//	a key is overwritten         the same, after a TTL: a key that no node stands behind is removed by whoever sees it
//	a node can't reach a database   it says so (Miss); others that can take its tables after half a TTL, and give it others for them
//	a node lacks biz types       it says so (Tell); for each of its tables one node that has a type is told to stand in (Config.StandIn)
//	a node has other databases   it is refused when it registers (ErrForeign). One that runs already goes on and says so: it
//	                             keeps its tables, or goes on in claim mode if its lease is lost, until Adopt
package assign
