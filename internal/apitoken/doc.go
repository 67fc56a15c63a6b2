// Package apitoken is the authority for the tokens of the HTTP API: their form, what the config keeps of them, and what they
// allow.
//
//	toc_ID_SECRET    given once to whoever calls the API
//	SHA-256 of it    in the config, beside the id, a name, the scope, the biz types and the expiry
//
// A token that is wrong in any way is not found; nothing says why.
package apitoken
