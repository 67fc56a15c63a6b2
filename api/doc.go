// Package api serves the HTTP API: tasks, schedules, biz types, the cluster and counts, as
// openapi.yaml describes them.
//
//	request --> Host and Origin --> token --> rate --> body --> route --> scope --> operation --> package tocsin, schedule or operator
//	               403              401       429     400 413    404      403      404 409 412          503
//	                                                    415      405               422 428
//
// It is the authority for what a request may look like and which token may send it. Packages tocsin, schedule and
// operator decide what an operation does; nothing is repeated here. Every refusal is an RFC 9457 problem (Problem) with a
// stable code, and repeats no payload.
//
// On failure: without a database server the API answers with 503 and opens the server later. A panic is a 500 and a line
// in the log. A result that lacks some servers names them.
package api
