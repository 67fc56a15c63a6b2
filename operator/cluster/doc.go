// Package cluster is what people ask of a running cluster: which nodes there are, who owns which tables, and where a task is.
// The command tocsin and the HTTP API ask through it.
//
//	etcd, or the node tables ---+
//	owner rows, policies -------+--> View --> Group, Tables, why.Answer
//	status pages of nodes ------+
//
// It is the authority for how these sources are put together. It only reads. On failure: what could be read stands beside the
// error, which names the rest; Why names in its answer what it could not ask.
package cluster
