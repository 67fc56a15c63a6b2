// Package pull hands due tasks to workers that ask for them, and takes their outcomes: for programs that can't be called back.
//
//	worker --Reserve--> Hub <--Deliver-- dispatcher     the rows are claimed for the time of a lease
//	worker --Settle, Extend--> Hub ----> the row        at any node: the lease is the row's claim in MySQL
//
// It is the authority for which worker gets which task, and for what a lease may do. Workers are served first come, first served, and each gets at most
// its share of the tasks that have come. While no worker waits, a biz type has no demand: its lanes load and claim nothing.
//
// What happens on failure:
//
//	nobody takes a claimed task    it goes back after half a second, and no attempt is counted
//	a worker goes while it waits   it gets nothing; one that has tasks by then gives them back
//	an answer gets lost            the lease runs out; 5 s later the task is due again, after a failed attempt
//	a worker is late               a complete still counts; all else finds the lease lost
//	the node stops                 those who wait get an empty answer; leases go on, and any other node takes what ends them
package pull
