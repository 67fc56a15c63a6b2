// Package assign is the authority for which node looks at which table. A cluster works in one of two ways: the nodes of a
// group own tables, by keys in etcd (Assign), or nobody owns tables, and all look at all of them (Rows).
//
// # By etcd
//
// The nodes of a group register in etcd and divide the tables among themselves, without a leader.
//
//	/{cluster}/groups/{group}/nodes/{id}    a node's description of itself, under its lease
//	/{cluster}/groups/{group}/tables/{n}    the owner of table n: its id and lease, under that lease
//	/{cluster}/groups/{group}/drains/{id}   written by an operator, without a lease: node id shall own nothing
//	/{cluster}/identity                     the identity of the cluster's databases, without a lease (Binding)
//	/{cluster}/groups/{group}/epoch         a number that grows when etcd has forgotten owners (epoch.go)
//	/{cluster}/groups/{group}/settling      under a lease of one TTL, at least 10 s: the epoch has just grown, nobody plans
//
// A table's key is created only if it does not exist, so two nodes can't both hold one. Every node watches all keys of
// its group, makes the same plan from them (Plan), and does its own part of it. One table, seen from one node:
//
//	         plan says mine                key seen
//	free ------------------> key wanted ------------> key ours --- Take ---> held
//	 ^                                                   |  refused           | plan says another's,
//	 |                                                   v                    v or leaving
//	 +------- key deleted, if it is still that key --- doomed <--- Drop ------+
//
// The keys are the only state: each round compares them with the plan and with the holder's tables, and acts on its own
// writes only when the watch shows them. So a lost answer needs no special care. A key that was doomed is never started
// on again, since a delete of it may still be under way.
//
// A node trusts its lease from the start of the last successful renewal for the TTL, at most 10 s, less a margin (trust.go), on its
// own monotonic clock. etcd starts counting later, so the node has stopped acting on ownership (MayAct) before another can have its
// tables. It keeps them in claim mode: each row is claimed in MySQL, where the owner row shows whether the node was
// replaced.
//
// What happens when
//
//	a node joins                 the others give up tables to it once it takes them at once: no table is left without an owner
//	a node returns quickly       it waits up to a TTL for the tables of its former life before others give up any to it;
//	                             a second process of its name answers the registration, so nobody waits for that one
//	many tables move             their owner gives them up in parts and keeps working on the others meanwhile
//	a server stalls              tables of other servers are still taken and dropped: each server has its own requests (hands)
//	a node leaves                it is marked as leaving, and gives up its tables in parts, all servers at the same time
//	a node is told to drain      it drops its tables in order and takes none, but stays; a new incarnation drains too
//	a node dies                  its keys go when the lease runs out; after a short pause the others take its tables
//	etcd does not answer         tables stay where they are; a node whose trust runs out goes on in claim mode
//	etcd is back                 a lease that etcd has not ended is renewed, and the node acts on ownership again; else it
//	                             registers as a new incarnation and takes those of its tables that are still free. It plans
//	                             nothing else for one TTL, since others may still be registering, and announces that (Pausing)
//	etcd was wiped or restored   the owner rows in MySQL show it: a new epoch begins, and nothing is taken while settling stands, as nodes
//	                             that the new etcd does not know may still trust their leases
//	one node alone is cut off    the others take its tables when its lease ends; it drops them when it sees their keys. Back,
//	                             it sees that others have gone on, and pauses for a second only
//	a node pauses                free tables go to others meanwhile (PlanMeanwhile); if keys of its own vanish, it takes those tables again at once
//	the watch breaks             all keys are read anew; also after a compaction
//	the holder can't take        the keys are given back and taken again after 1 s, 2 s, ... 30 s; other tables go on
//	the holder can't drop some   their keys stay, and Drop is called again; other tables go on; after a lost lease nothing is taken before that
//	a key is deleted by hand     its owner drops the table or restores its node's key; the table is taken anew
//	a key is overwritten         the same, after a TTL: any node removes a key that has no node behind it
//	a node can't reach a database   it publishes that (Miss); others that can take its tables after 5 s, and give it others for them
//	a node lacks biz types       it publishes that (Tell); for each of its tables one node that has a type stands in (Config.StandIn)
//	a node has other databases   it is refused when it registers (ErrForeign). One that already runs goes on and logs it: it
//	                             keeps its tables, or goes on in claim mode if its lease is lost, until Adopt
//
// # By rows
//
//	Keeper of internal/session --- sessions of every database, when they change ---> Rows.Note
//	                           <-- what the node says of itself -------------------- Rows.Tell
//
// Every node claims each row before it starts, so Rows decides who is likely to get a row, and never who may have it. Each
// database has its own list of nodes, so a node that can't reach a database has no part in its tables. From the same list
// every node computes the same seats: its tables are dealt to the nodes in turn, by weight. Nodes that lack a biz type of
// the group get tables only if all do. A node looks at its own tables first, and at the others' 250 ms later.
//
// While a database can't be read or written, the last list stands. Nodes whose lists differ for a while claim the same rows,
// some in vain, or leave rows to each other, which start 250 ms late. A node that is killed or frozen is
// passed over after 1.5 s, and gone when others have ended its session. One that ends removes its sessions.
package assign
