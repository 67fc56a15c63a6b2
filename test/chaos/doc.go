// Package chaos proves the promises under faults: it runs a cluster of real
// processes, breaks it on purpose, and checks every task afterwards.
//
// It is the authority for what was asked of the cluster and what was seen of it,
// and believes neither nodes nor tables about the other.
//
//	producer --adds, cancels, reschedules--> ledger: what was acknowledged
//	     |                                        |
//	   proxies --> MariaDB servers (processes)  check <-- rows, read past every proxy
//	     |                                        |
//	   nodes, sweepers (processes) --> journals: what was delivered, when, where
//	     |
//	   proxies --> etcd (one to three processes)
//
// Each node reaches each server, and etcd, through a proxy of its own, so that one
// node alone can be cut off. Nodes and sweepers are this same program, run again with
// a role in its environment: whoever uses the package calls RunRole first thing in
// main or TestMain. In the matrix and in make alerts nodes are the real program.
//
// With Options.Broker, callbacks go to a message broker instead, which nodes reach without
// a proxy, as brokers tell their own address. A consumer reads its topic into a journal.
//
// With Options.Workers, tasks of one biz type are asked for by workers, processes that call the API of nodes of the real program.
// Each reaches a node's API by the same proxy, which may end connections in the middle of an answer.
//
// The runs about the cluster also watch etcd's keys from the first revision on, past
// every proxy: two owners would be a key put over that of another, and a delivery by
// who neither owned the table then nor claimed the row is found by its journal.
//
// On failure: a harness that can't go on (a server that does not come back)
// returns an error; a broken promise is not an error but a Breach in the Report,
// with everything known of the task. Children die with their parent. Linux only:
// elsewhere it builds, and Start says so.
package chaos
