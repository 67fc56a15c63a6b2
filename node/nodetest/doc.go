// Package nodetest is for the tests of programs that run a node. It works on a
// cluster of package tocsintest, and needs no etcd.
//
// RunDue does, now, all that nodes do until a time: a test of a three-day chain, or of a schedule's year, takes seconds. It
// uses the program's own Handlers, with batches, middleware and CompleteTx, and real rows. Config is the config of a node that
// a test runs itself. Receiver stands in for a program that gets HTTP callbacks.
//
// On failure both end the test with one line.
package nodetest
