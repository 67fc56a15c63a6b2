// Package top is the authority for what `tocsin top` shows: what the nodes of a cluster deliver now, by biz type.
//
//	metrics of each node, now and an interval ago --> Between --> View: types, nodes, totals, notes
//
// It is pure arithmetic over what others have read. A rate is the growth of a counter between two samples of the same
// process. A node with one sample, or whose counters fell because it was restarted, has no rate yet. A node that does not
// answer is in the View with its error, and adds to no sum.
package top
