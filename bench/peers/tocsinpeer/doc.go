// Package tocsinpeer has Tocsin take part in a contest: one node in this process,
// on a private MariaDB and etcd.
//
// Tasks are added by the client, as a user adds them. For a minute after it took
// its tables a node claims overdue rows before it delivers them, since the last
// owner may have died with them: Warm waits until that is over. Deliveries are
// paused, and begin, by the policy of the biz type; the node looks for it once a
// second.
//
// A node that fails is an error of Quiet, Pause and Close; a server that fails is
// one of the call that meets it.
package tocsinpeer
