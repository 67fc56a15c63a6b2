// Package health knows which databases this node can use, and is the authority for
// what is reported about the others.
//
//	usable      its server answers, and its layout row is as the config says
//	wrong       its layout row is missing, not the config's, or can't be read: the store
//	            refuses every statement to it, and its neighbours go on
//	unreachable its server does not answer, twice in a row
//
// Every 2 s all servers are looked at, independently, so that one that hangs delays
// no news of another. A change is published as a whole new state. A database that is
// usable again is used again.
//
// A usable database may still have a fault in a table other than the task tables, say
// a missing owner table: that is reported too.
//
// A server that accepts statements and does not answer hangs. That is seen after 1.5 s, from the statements of all parts of
// the process, before a look has its time-out.
//
// On failure: a fault is logged at once, and then once a minute while it lasts. A
// locked row changes nothing.
package health
