// Package node runs one node inside a service: it takes its share of the tables
// under an etcd lease, and delivers what is due in them to typed Go handlers or
// HTTP callbacks.
//
//	  etcd                          MySQL servers
//	   |                       ids ^    rows ^    ^ outcomes
//	assign --- Take, Drop ---> scanner --> dispatcher
//	   ^         (holder)   Offer, or Reserve |
//	   +-- Miss (health)         and Take     |
//	                                    handlers, webhooks
//
// The package is the authority for the order in which the parts live. Tables are
// taken in the order fence, intake, scan, and given up in the reverse. When Run's
// context ends:
//
//  1. All tables are given up, while the lease is renewed: nothing more starts, what
//     is in delivery may end and is settled, and is claimed after half a second.
//  2. The lease is revoked: other nodes have the tables.
//  3. Deliveries in hand go on under their claims, and are settled as they end.
//  4. At Config.DrainTimeout, counted from the end of the context, they are cut off.
//
// On failure: an engine that ends with an error ends the node with it; a database
// that can't be used, since its server is away or it is not the config's, costs
// its own tables only, and nodes that can use it get them; etcd
// being away ends deliveries on ownership when the lease runs out, and they
// resume with a new lease.
package node
