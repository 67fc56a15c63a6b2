package model

// OutboxGuard is a rule of outboxes. Each can be switched off to show what it prevents.
type OutboxGuard uint8

// The guards.
const (
	Ledger        OutboxGuard = iota // what stands in the ledger is not moved
	LedgerKey                        // the ledger knows a row by its id and its time of creation
	LedgerLooks                      // the ledger's row stays while the row is in the outbox
	LedgerStays                      // ... and for a while after it
	Fresh                            // what was read long ago is read again before it is moved
	FreshAll                         // ... with all that was read
	CommittedOnly                    // a poll reads what is committed
	Snapshot                         // a poll is one snapshot
	Gaps                             // a poll reads gaps too
	GapsLocked                       // a gap is closed if no transaction has a row in it
	GapsOld                          // ... and a minute after: a statement that takes an id has inserted its row by then
	Whole                            // all ids are read from time to time
	RowFirst                         // a business locks its own row first and writes the outbox last
	DeleteList                       // what was moved is deleted by a list, not by a range
	DeleteKey                        // ... of ids and times of creation
	Aside                            // behind a row that can't be moved its biz_id waits
	AfterDelivery                    // a cancel that meets a delivery is tried again after it
	NoteClosed                       // a note ends at a gap that is not closed
	NoteNext                         // a turn begins at the note if the next id is not below it
	NoteOpen                         // ... and no transaction is open there
	NoteRows                         // ... and no row is there
	NoteLowest                       // ... and no database has a lower note, or none
	NoteVoid                         // notes are void once ids are seen to be given again
	outboxGuards
)

var outboxGuardNames = [outboxGuards]string{
	"what stands in the ledger is not moved", "the ledger tells rows with one id apart", "the ledger remembers what is in the outbox",
	"the ledger remembers a while longer", "what was read long ago is read again", "all of it is", "polls read what is committed",
	"a poll is one snapshot", "polls read gaps", "a gap with a row of an open transaction is not closed",
	"a gap is not closed before its statement has ended", "all ids are read now and then",
	"writers lock their own row first", "moved rows are deleted by a list", "deletes tell rows with one id apart",
	"a biz_id waits behind a row that can't be moved", "a cancel is tried again after a delivery",
	"notes end at a gap that is not closed", "no turn begins at a note above the next id", "no turn begins above an open transaction",
	"no turn begins above a row", "the lowest note counts", "notes are void once ids are given again",
}
