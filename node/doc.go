// Package node runs one node inside a service: it takes its share of the tables
// under an etcd lease, and delivers what is due in them to typed Go handlers or
// HTTP callbacks.
//
//	  etcd                          MySQL servers
//	   |                       ids ^    rows ^    ^ outcomes
//	assign --- Take, Drop ---> scanner --> dispatcher
//	   ^         (holder)   Offer, or Reserve |
//	   +-- Miss (reach)          and Take     |
//	                                    handlers, webhooks
//
// The package is the authority for the order in which the parts live: tables
// are taken in the order fence, intake, scan, and given up in the reverse; when
// Run's context ends, intake stops first, deliveries in hand end and are
// settled while the lease is still renewed, and the lease goes last.
//
// On failure: an engine that ends with an error ends the node with it; a server
// that is away costs its own tables only, and nodes that reach it get them; etcd
// being away ends deliveries on ownership when the lease runs out, and they
// resume with a new lease.
package node
