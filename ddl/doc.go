// Package ddl is the authority for the shape of Tocsin's tables. It holds the
// SQL files, plans and applies them, and verifies what stands on the servers.
//
//	sql/*.sql --+--> Plan ----> one reviewable file per server
//	            +--> Apply ---> the servers: look, then create what is missing
//	            +--> Verify --> what is missing or differs
//
// Nothing here drops or alters: Apply only creates, so it may be run again at
// any time, and two at once do no harm. It looks at all servers before it
// writes to any, and refuses a layout or a cluster id that differs from a
// stored one.
//
// On failure (a server down, a right missing, killed half-way) everything
// created so far stays, and the next Apply goes on from there.
package ddl
