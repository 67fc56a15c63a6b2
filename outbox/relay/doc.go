// Package relay moves the rows of outboxes to the tables of their tasks. It is the authority for their order: the rows of
// one biz_id are moved in the order of their ids, each once.
//
//	outbox --poll--> lane of a database --Move--> task and ledger, one transaction --> delete from the outbox
//	                  |  \--parked: ranges of ids, while its database is away or its queue is full
//	                  \--aside: rows that can't be moved, and what follows them of the same biz_id
//
// A turn is the time for which one process holds the lock of an outbox. It begins at the id that an earlier
// turn has noted, below which all rows are gone, or at the first one, and follows these rules:
//
//   - No gap between ids is assumed to be empty, since a transaction may stay open for minutes. Each poll reads, as one
//     snapshot, all gaps and what is above them. Writers lock their own row first and write the outbox last, so a reader
//     that sees a row sees the earlier ones of its biz_id too. A gap leaves the polls when the server says that no open
//     transaction has a row in it; all ids are still read every few seconds.
//   - An emptied outbox may give ids again. A row where none should be ends the turn, and the next one reads everything.
//   - The lock only saves work. The ledger records what was moved, so relays that are active at the same time, or a relay
//     that hung, repeat nothing. A row that was read a minute ago is read again, since the ledger would refuse it.
//   - A row that its server refuses, or whose biz type is unknown, is set aside with the reason until an operator retries
//     or drops it. A cancel that meets a delivery is tried again after it. Rows of the same biz_id wait behind both.
//   - A server that is away costs its own rows only, and they are remembered as ranges.
//
// Every error of the outbox's server ends the turn; a relay never decides anything from memory after it.
package relay
