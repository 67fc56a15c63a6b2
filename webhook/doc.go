// Package webhook is for Go programs that receive Tocsin's HTTP callbacks.
//
// A Receiver is an http.Handler. It checks the signature and the age of a callback,
// hands the task to a function, and answers as the function's error asks:
//
//	nil                       204   the task is done
//	tocsin.Bury(err)          410   the task is dead
//	tocsin.RetryIn(d, err)    500   retried after d, by Retry-After
//	tocsin.Snooze(d)          500   the same: over HTTP it counts as an attempt
//	any other error           500   retried by the policy of the biz type
//
// An error with a method RestFor() time.Duration that returns more than 0 is answered with 503 and Retry-After: all tasks of the biz
// type wait for so long, at most 30 s, as if a Go handler had returned it. In a batch it is any other error.
//
// A webhook with a batch in its policy sends several tasks in one request. NewBatch hands
// them over together, and answers with a result for each; there, tocsin.Snooze counts no attempt.
//
// A copy of a signed callback, within the five minutes in which its signature is valid, is refused with 409, also
// while the first one is being handled. Each process remembers what it got; Config.Seen shares that among several.
//
// A callback may come more than once, like every delivery of Tocsin, each time with
// the same Key. Config.Done keeps a Receiver from handling one again that it has
// handled. Only a write in the same transaction as the function's own makes that
// certain: store the Key there.
//
// docs/http.md describes the callback itself, for receivers in any language. The
// signature is that of Standard Webhooks (https://www.standardwebhooks.com).
package webhook
