// Package doctor is the authority for what a healthy cluster looks like: which settings of a server Tocsin's promises
// rest on, and what to change where they are not met.
//
//	facts of a server ----> Server --+
//	stored layout, types -----------+--> []Check: ok, warn or fail; what is; what to change
//	etcd, config -------------------+
//
// A check fails where a promise does not hold (a task could be lost, or nothing works), and warns where all is right but
// slow, or will be under load. The judgements are pure functions over what was read; Examine reads, and only reads.
//
// On failure (a server down, a right missing) the check that could not be made fails and says why; all others are made.
package doctor
