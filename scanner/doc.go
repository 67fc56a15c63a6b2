// Package scanner finds the rows that are nearly due: from the tables a node
// owns it peeks ids, and offers them to the intake, which is the dispatcher.
//
//	Own, Disown                 per server
//	     |            +------------------------------+
//	     v            |  groups of up to 64 tables   |
//	owned tables ---> |  regular   each Interval     | -- entries --> Intake
//	                  |  catch-up  when there is room| -- whole rows --> Intake
//	                  |  full      each FullEvery    | <-- Wake ---
//	                  |  doorbell  many times a sec. |
//	                  +------------------------------+
//
// It is the authority for what has been read: for each group and biz type it
// knows the floor, an action time before which every row has been offered and
// accepted, and whether the group is behind, that is, whether the intake
// refused or did not want something above the floor. A refusal concerns its biz
// type alone.
//
//   - A regular peek reads from the floor to now + LookAhead the types that are
//     not behind. The floor also stays at or below the oldest task that the
//     intake has not yet stored as settled. It skips the entries that settled
//     rows leave in the index. Groups in which few tables have anything are asked
//     first which do; those in which nothing was found for three peeks wait
//     longer by half for the next.
//   - A catch-up goes on at the floor of the types that are behind, the group with
//     the lowest floor first, as soon as the intake wants them: so a backlog drains
//     as fast as it is delivered, not by the scan interval. What is due already is
//     streamed: whole rows, page by page, from the tables whose next row is the
//     oldest, for which the intake makes room first. They need no place in a queue
//     and no second read, and a page is settled as it came, by few statements. A
//     lane too slow for that is given ids, in order of their action time. A peek
//     of what is due later follows.
//   - A full peek has no floor. It finds what landed below it, such as a row whose
//     insert took more than ten seconds to commit, and recovers run-out claims.
//   - The doorbell tells of rows that were added for less than the look-ahead. They
//     are offered to full lanes too, where they take the place of later ones.
//     While it is silent, half as many polls ask for its highest id only.
//
// On failure: nothing is lost, since what is not offered, or is refused, is still
// in MySQL, and a floor only rises over what was accepted. A server that fails is
// left alone for a growing while; the others have goroutines of their own. A
// table that fails on its own (locked, dropped) is peeked apart from its group,
// less and less often. A missed bell costs time only: the next peek finds the row.
package scanner
