// Package health knows which databases this node can use, and is the authority
// for what is said of those that it can't.
//
//	usable      its server answers, and its layout row is as the config says
//	wrong       its layout row is gone, another's, or can't be read: the store
//	            refuses every statement to it, and its neighbours go on
//	unreachable its server does not answer, twice in a row
//
// Each server is looked at every 2 s, all of them at once, so that one that
// hangs delays what is known of no other. What changes is published whole. A
// database that is usable again is used again.
//
// A database may be usable and lack something beside the tasks, an owner table
// say: that is said as well.
//
// On failure: a fault is told at once in the log, and once a minute as long as
// it lasts. A row that is locked changes nothing.
package health
