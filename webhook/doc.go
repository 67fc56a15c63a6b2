// Package webhook is the authority for Tocsin's HTTP callbacks, signed by the Standard
// Webhooks scheme (https://www.standardwebhooks.com): a Sink sends them, a Receiver
// gets them. docs/http.md describes them for receivers in any language.
//
//	POST <url>
//	webhook-id: <job_id>.<version>       the idempotency key: the same for every attempt
//	webhook-timestamp: <unix seconds>
//	webhook-signature: v1,<base64> ...   one for each active secret
//
//	{"type":"coupon.remind","timestamp":"...","data":{"job_id":"...","biz_id":"...", ...}}
//
// The batch form has several tasks in data, each with its key, and an id of its own.
// Its answer is a list with a result for each task.
//
// For a Sink, 2xx completes and 410 buries. 429 and 503 say "later": no attempt is counted, and the receiver
// gets fewer requests. Any other answer, redirects included, and a connection that breaks under a request are failed
// attempts; a request that did not arrive is none. Retry-After may put off the next attempt, but makes it no sooner than the policy has it. Private, loopback and link-local addresses are refused when they are
// dialled, unless the policy allows them.
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
// type wait for so long, at most 30 s, as if a Go handler had returned it. In a batch its task's result is "later".
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
package webhook
