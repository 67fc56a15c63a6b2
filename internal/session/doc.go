// Package session is the authority for the right of one process to claim rows: it keeps a session in each database, shows that the process
// lives, and sees which other processes do.
//
//	           open            beats fail 3 s             beats succeed
//	no session ----> trusted ----------------> not trusted ----------> trusted
//	    ^                |                           |
//	    +----------------+---------------------------+
//	      zero rows changed: others ended it. A new one, with another id
//
// A Keeper beats all its sessions of a server twice a second, in one packet on a connection of its own, and reads all sessions twice a second,
// in one statement: when idle, two round trips every half second and server, whatever the number of databases. What processes say of
// themselves is read only when its number has grown. A change of it, an open and an end are transactions of their own.
//
// The process trusts its session for TrustFor from the moment the last successful beat began, by its monotonic and by its wall clock. Nothing is
// trusted after a jump of a server's clock or a move to another address until a later beat.
//
// Nobody judges by a server's clock. A watch notes when reads by this process showed each beat change, and says which sessions may be
// ended: those that stood still for StandFor, while this process read and beat without a gap.
//
// On failure: a database whose beat or read failed is beaten or read apart from the others until that succeeds, so that a locked table
// slows no other. If the server as a whole fails, all wait for it. A missing table is an error: only a beat that changed no row
// means that the session was ended.
package session
