// Package scanner finds the rows that are nearly due: it peeks ids from the tables
// that a node owns, and offers them to the intake, which is the dispatcher.
//
//	Set                         per server
//	     |            +------------------------------+
//	     v            |  groups of up to 64 tables   |
//	owned tables ---> |  regular   each Interval     | -- entries --> Intake
//	                  |  catch-up  when there is room| -- whole rows --> Intake
//	                  |  full      each FullEvery    | <-- Wake ---
//	                  |  doorbell  many times a sec. |
//	                  +------------------------------+
//
// It is the authority for what has been read. For each group and biz type it knows
// the floor, an action time before which every row has been offered and accepted. It
// also knows whether the group is behind, that is, whether the intake refused or did
// not want a row above the floor. A refusal concerns its biz type alone.
//
//   - A regular peek reads from the floor to now + LookAhead the types that are not behind. Rows that
//     the intake has in hand don't lower the floor: it knows them. So a backlog of one type is read by its own lane alone. Sparse groups are probed before they are peeked. Groups in which three peeks in a row found nothing wait longer
//     by half for the next.
//   - A catch-up continues at the floor of the types that are behind, the group with the lowest floor first, as soon as the
//     intake wants them. So a backlog drains as fast as it is delivered, not by the scan interval. Rows that are already due
//     are streamed: whole rows, page by page, from the tables whose next row is the oldest. The intake makes room for them
//     first. They need no place in a queue and no second read, and a page is settled as it came, by few statements. A lane that
//     is too slow for that gets ids instead, in order of their action time. A peek of rows that are due later follows.
//   - A full peek has no floor. It finds rows that landed below it, such as a row whose insert took more than ten seconds to
//     commit, and recovers claims that have run out. It walks the overdue rows of all types, so those of a server take at most
//     one second in ten, and one without an answer in time is no failure of the server: its group is halved. It also notes when the next claim does: a regular peek then recovers it.
//   - Tables of an owner that lacks biz types are in groups of their own, which are read as the others, for these types
//     alone. Each row found there is claimed by the intake.
//   - The doorbell announces rows that were added to be due within the look-ahead. They are offered to full lanes too, where
//     they replace later ones. While the doorbell is silent, it is polled half as often, and only for its highest id.
//
// On failure: nothing is lost, since rows that are not offered, or are refused, are
// still in MySQL, and a floor only rises over accepted rows. A server that fails is
// left alone for growing intervals; the others have goroutines of their own. A table
// that fails on its own (locked, dropped) is peeked apart from its group, less and
// less often. A missed bell costs only time: the next peek finds the row.
package scanner
