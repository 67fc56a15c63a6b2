// Package pullers is workers that ask for tasks over HTTP, and the API that they ask, both in this process and on the loopback
// address. It is for programs that measure, and the authority for nothing: the settings of the API are the defaults of tocsin serve.
//
//	worker --POST /v1/pull:settle, with reserve--> API --> node
//
// On failure: a worker that gets an answer which it can't use ends, with an error that ends the fleet's wait. A node that does not
// run yet, or no longer, is asked again.
package pullers
