// Package backlog measures what waits in all tables of a cluster, for metrics. It is the authority for nothing: it changes
// no row, and no delivery waits for it.
//
// It is slow on purpose. Two walks go over the tables of each server, all servers side by side, one statement at a time for
// 64 tables together:
//
//	overdue   once a minute: the oldest overdue task of each biz type and database, and how many there are. Tables are
//	          first asked by a prepared probe whether they have any. Of those that have, at most 10,000 index entries each
//	          are read, so the number is a lower bound where there are more: overdue_capped_tables says in how many tables.
//	count     every ten minutes: pending, claimed and dead tasks, counted exactly, from one index.
//
// After each statement comes a pause of 19 times what it took, so a server spends at most a twentieth of one connection on
// it; large backlogs make the walks slower, not heavier. The figures are those of the last whole walk, and their age is a
// metric too. Tables that can't be read are left out and counted.
//
// One node of a group measures the group's biz types: the one that has table 0, or looks at it first where nobody owns
// tables. While etcd is away the tables stay where they are, and so does this. When the table moves, the new owner begins
// at once.
package backlog
