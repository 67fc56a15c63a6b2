// Package devcluster is a whole Tocsin on one machine. A Site is private database
// servers and etcd, and a Fleet nodes in this process: benchmarks use them too. A
// Cluster, for `tocsin dev`, is both with a small HTTP receiver, sample tasks, and
// a record of every delivery that handler and receiver saw.
//
// It is the authority for nothing that production relies on. Nothing outlives
// Stop but what the caller's own folder keeps; a start that fails half-way stops
// what it had started.
package devcluster
