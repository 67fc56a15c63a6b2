// Package ddl is the authority for the shape of Tocsin's tables. It holds the
// SQL files, plans and applies them, verifies what stands on the servers, and
// hands databases over from one server to another.
//
//	sql/*.sql --+--> Plan ----> one reviewable file per server
//	            +--> Apply ---> the servers: look, then create what is missing
//	            +--> Verify --> what is missing or differs
//	two configs ---> Move ----> retire the old copy, compare, activate the new one
//
// Nothing here drops a table or alters its shape; Move gives tables other names,
// and back. Apply only creates, so it may be run again at any time, and two at
// once do no harm. It looks at all servers before it
// writes to any, and refuses a layout or a cluster id that differs from a
// stored one.
//
// On failure (a server down, a right missing, killed half-way) everything
// created so far stays, and the next Apply goes on from there.
package ddl
