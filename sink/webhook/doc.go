// Package webhook delivers tasks as HTTP callbacks, signed by the Standard
// Webhooks scheme (https://www.standardwebhooks.com).
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
// It is the authority for the body, and for what an answer means: 2xx completes,
// 410 buries, 408, 429, 5xx and a broken connection are tried again, honouring
// Retry-After; any other answer, redirects included, is a failed attempt too.
// Private, loopback and link-local addresses are refused when they are dialled,
// unless the policy allows them.
package webhook
