// Package pullers is workers that ask nodes for tasks over HTTP and settle them at once, for programs that measure.
//
//	worker --POST /v1/pull:settle, with reserve--> API of a node
//
// On failure: a worker that gets an answer which it can't use ends, and its error ends the wait of its fleet. A node that does not
// run yet, or no longer, is asked again.
package pullers
