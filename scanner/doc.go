// Package scanner finds the rows that are due, or nearly so, in the tables that a node looks at, and passes them on to the
// intake, which is the dispatcher.
//
//	Set                         per server
//	     |            +------------------------------+
//	     v            |  groups of up to 64 tables   |
//	tables ---------> |  peek      each Interval     | -- entries ---> Intake.Offer
//	                  |  full look each FullEvery    | <- no room ----+
//	                  |  doorbell  many times a sec. |
//	                  +------------------------------+
//	                  |  lanes, one a biz type       |
//	                  |  pull      while it has      | -- whole rows -> Intake.Take
//	                  |            demand            | <- demand ----- Intake.Reserve, Wake
//	                  +------------------------------+
//
// It is the authority for what has been read. A row that is due is known to the intake, or stands in a span, or will be seen by
// the next peek. A group knows, for each biz type, until when its tables were peeked. A lane has the spans of its tables: the parts
// that the intake may not know. Groups know nothing of lanes, so they are merged and split freely.
//
//   - A peek reads from ten seconds before the last one to now + LookAhead the types whose queues have room. So a backlog of one type
//     is not read with the others. Sparse groups are probed before they are peeked. Groups in which three peeks in a row found nothing
//     wait longer by half for the next.
//   - What finds no room in the intake, or is pushed out there by something nearer, becomes a span, and so does what falls due while
//     the peeks leave its type out. Backlogs become spans too: a table whose page comes back full of due rows, and a type with a few
//     due rows in each of many tables.
//   - A pull reads the oldest due rows of a lane's spans, whole, as many as the lane has demand for. They need no place in a queue and
//     no second read, and a page is settled as it came, by few statements. A lane without demand, since its slots are taken, its
//     target is away or it is paused, costs no statement.
//   - Where every row is claimed under a session (Config.Claims), a pull reads ids alone, as many as Intake.Room has room for, and Intake.Fetched queues
//     them: the claim brings the rows.
//   - A full look reads from the beginning. It finds rows that landed before all that was read, such as a row whose insert took more
//     than ten seconds to commit, and recovers claims that have run out. It walks the overdue rows of all types, so those of a server
//     take at most one second in ten, and one without an answer in time is no failure of the server: its group is halved. It also
//     notes when the next claim runs out: a regular peek then recovers it.
//   - Tables of an owner that lacks biz types are in groups of their own, which are read as the others, for these types
//     alone. Each row found there is claimed by the intake.
//   - The doorbell announces rows that were added to be due within the look-ahead. They are offered to full lanes too, where
//     they replace later ones. While the doorbell is silent, it is polled half as often, and only for its highest id.
//
// Claims of sessions that have gone (Gone) are recovered at once, and twice more, as one may commit late.
//
// On failure: nothing is lost, since rows that are not offered, or are refused, are still in MySQL. A server that fails is
// left alone for growing intervals; the others have goroutines of their own. A table
// that fails on its own (locked, dropped) is peeked apart from its group, less and
// less often. A missed bell costs only time: the next peek finds the row.
package scanner
