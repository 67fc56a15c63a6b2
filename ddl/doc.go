// Package ddl is the authority for the shape of Tocsin's tables. It holds the
// SQL files, plans and applies them, verifies what stands on the servers, hands
// databases over from one server to another, and puts restored ones into use.
//
//	sql/*.sql --+--> Plan ----> one reviewable file per server
//	            +--> Apply ---> the servers: look, create what is missing, migrate
//	            +--> Verify --> what is missing or differs
//	an outbox -----> PlanOutbox, ApplyOutbox, VerifyOutbox: the same for its one table
//	two configs ---> Move ----> retire the old copy, compare, activate the new one
//	a dump --------> HoldDatabases, CheckRestored, AcceptRestored: what counts as settled, into use
//	all databases -> SetOwnership, SetSweepGrace: with all nodes stopped
//	roles ---------> Grants --> one reviewable file per server
//
// The SQL files describe the newest schema version. additions lists what came with
// the versions after the oldest that programs work with:
//
//	version 2 --Apply--> version 3 that works with programs for 2 --Finish--> for 3 only
//
// Nothing here drops a table or copies a row. Apply only creates and adds; Move
// renames tables, and back. Apply may be run again at any time, and two at once do
// no harm: it reads from the servers what they lack. It looks at all servers before
// it writes to any, and refuses a layout or a cluster id that differs from a stored
// one, and a newer schema.
//
// On failure (a server down, a right missing, a table in use, killed half-way)
// everything made so far stays, and the next Apply goes on from there.
package ddl
