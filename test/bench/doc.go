// Package bench measures Tocsin on this machine beside the least that the same
// work costs in plain SQL: draining a backlog, lateness, inserting, and doing
// nothing. It is the authority for what `tocsin bench` says and for nothing in
// production. Its Go benchmarks measure what has another bound on the same
// servers: peeks beside rows that can't be purged, relays, and histories.
//
//	own MariaDB (durable) and etcd, or given servers and databases of its own
//	     |
//	     |   raw SQL   ->   Tocsin   ->   raw SQL        on the same tables,
//	     |   before         measured      after          in one run
//	     v
//	figures, their ratio, what a task costs in statements and bytes, settings
//
// A ratio is the only figure that travels to another machine: both sides of it
// share the server, the tables, the load of the machine and the minute.
//
// On failure: a run that can't be finished is an error, not a figure: nodes that
// stall, rows that are not settled, a server that goes away. What the run made,
// servers or databases, is removed in any case; after a kill -9 the databases of
// its random prefix stay on servers that were given.
package bench
