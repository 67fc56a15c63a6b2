// Package biztype is the authority for biz types: the kinds of task, and the
// policy by which the tasks of each kind are delivered.
//
//	configs/biz.yaml -- Parse --> []Policy -- Apply --> table biz_type of every database
//	                                                        |            |
//	                                                      Load        Watcher --> nodes
//
// Every database holds all biz types, so that a client, a sweeper or a cold
// node needs one reachable server and no etcd. A type's revision grows with
// each real change of its policy and with nothing else; of two databases that
// disagree, the higher revision is right. A number never changes its name, nor
// a name its number: rows hold the number. Types that are not in the file are
// left alone.
//
// On failure: Apply writes what it can and names the servers it could not
// write; the next Apply brings them up. Load and Watcher need one server of
// all, and take the highest revision of each type that they can see.
package biztype
