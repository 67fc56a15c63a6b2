// Package node runs one node inside a service: it takes its share of the tables under
// an etcd lease, and delivers their due tasks to typed Go handlers or HTTP callbacks.
//
//	  etcd                          MySQL servers
//	   |                       ids ^    rows ^    ^ outcomes
//	assign --- Take, Drop ---> scanner --> dispatcher
//	   ^         (holder)   Offer, or Reserve |
//	   +-- Miss (health)         and Take     |
//	                                    handlers, webhooks
//
// The package is the authority for the order in which the parts start and end. Tables
// are taken in the order fence, intake, scan, and given up in the reverse. When Run's
// context ends:
//
//  1. All tables are given up while the lease is renewed: nothing more starts. Deliveries may still end and be settled; after
//     half a second those that remain are claimed.
//  2. The lease is revoked: other nodes have the tables.
//  3. Deliveries in hand go on under their claims, and are settled as they end.
//  4. At Config.DrainTimeout, counted from the end of the context, they are cut off.
//
// On failure: an engine that ends with an error ends the node. A database that can't
// be used, because its server is away or it is not the config's, affects only its own
// tables, and nodes that can use it get them. While etcd is away, deliveries on
// ownership end when the lease runs out, and resume with a new lease.
package node
