package store

import (
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// All instants here are Unix milliseconds by the clock of the server that holds
// the row. Servers are named by their index in the config, databases and tables
// by their numbers.

// PeekQuery asks one server for the entries of some of its tables, of one status
// and some biz types, in order of action time.
type PeekQuery struct {
	Server int
	Status tocsin.Status  // the zero value is Pending
	Tables []int          // table numbers, all of this server
	Types  []uint64       // numbers of biz types
	Any    bool           // of any biz type, also of those that no policy names; Types is not read
	From   int64          // lower bound of action_time, inclusive; 0: from the beginning
	Until  int64          // upper bound, inclusive
	After  duequeue.Entry // with one table only: go on behind this entry (see FullTable)
	Limit  int            // entries per table
	Sparse bool           // expects entries in few tables, if any: which is asked first, as that costs less
	Full   bool           // may read all that is overdue: the server does not hang if that takes long
}

// Page is what a peek found. Entries are grouped by table and in order of
// (action_time, biz_type, job_id) within each.
type Page struct {
	Entries []duequeue.Entry
	Full    []FullTable
	Failed  map[int]error // by table number: what could not be read, or be trusted; nil if all is well
}

// FullTable is a table whose page came back full. The next page begins behind Last, which may be a row that belongs to another table.
type FullTable struct {
	Table int
	Last  duequeue.Entry
}

// Row is a whole task, as loaded or claimed.
type Row struct {
	tocsin.Info        // BizType is empty here: the store knows numbers only
	Type        uint64 // number of the biz type
	Action      int64  // ActionTime in Unix ms; of a claimed row: its deadline
}

// Loaded is the answer of Load.
type Loaded struct {
	Rows   []Row         // those that are still pending, in any order
	Now    int64         // the server's clock when it had read them
	Failed map[int]error // by table number: tables that could not be read; nil if all is well
}

// Claim asks for rows to be taken until a deadline.
type Claim struct {
	Server int
	Rows   []duequeue.Entry // Due is the action_time as it was read; a row that has changed is not taken
	By     string           // the claimer's node id
	Hold   time.Duration    // from the server's now to the deadline
	Fence  *Fence           // nil: no fence

	// Known are the rows as they were read, by job_id; nil: not known. Rows that are
	// known are not read again, and are claimed by one packet, unless there is a fence.
	Known  map[tocsin.JobID]*Row
	PerKey int  // rows of one biz type and biz_id that may be claimed at once, by anybody, in the order of (action_time, job_id); 0: any number. Rows that others hold are left out without an error
	NoWait bool // don't wait for rows that other transactions hold, as they are likely to hold them for long
}

// Fence lets a claim succeed only for tables that the claimer owned last.
type Fence struct{ Group, Node string }

// Outcome is the end of one attempt, to be settled.
type Outcome struct {
	JobID     tocsin.JobID
	Verb      tocsin.Verb
	Version   uint32 // as loaded
	Attempts  int    // as loaded
	Claimed   bool   // the row was claimed by this attempt
	By        string // Claimed: the claimer; "": not compared
	Token     bool   // Claimed: the row is By's as long as it has that in claimed_by, whatever its other columns say
	Back      bool   // Token and Snoozed: the delivery did not begin, or is not to count: the row goes back as it was, and Next is its own time
	InTx      bool   // Complete: it is probably InTx; such outcomes get a statement apart from those that hit all their rows
	Action    int64  // as loaded; claimed: the deadline
	Prolonged bool   // Claimed: the deadline may be later by now, see Prolong
	Next      int64  // Retried, Snoozed: the next action_time
	Reason    string // for last_error; cut to fit here; Snoozed: "" leaves that as it is
}

// Fate is what became of an outcome. Zero rows affected is a fate, not an error.
type Fate uint8

// The fates.
const (
	Stored      Fate = iota
	Cancelled        // cancelled in flight
	Rescheduled      // rescheduled (or redriven) in flight
	Settled          // another attempt settled it first
	ClaimLost        // the claim ran out or the row was claimed by another
	Gone             // no such row: purged
	InTx             // a handler has completed it in its own transaction, whatever it returned then
)

// Fates is the number of fates.
const Fates = int(InTx) + 1

// Bell is one ring of a database's doorbell.
type Bell struct {
	ID    uint64 // grows within its database, with gaps; commits come out of order
	Entry duequeue.Entry
}

// Unheard tells which bells of one doorbell to read.
type Unheard struct {
	After   uint64 // bells with ids above this one
	Missing []Span // and bells with these ids, all at most After: ascending and disjoint
}

// Span is a range of ids from Low to High, both included.
type Span struct{ Low, High uint64 }

// Offset is how a server's clock stands to this process's.
type Offset struct {
	Ahead     time.Duration // the server's clock minus ours, give or take half the round trip
	RoundTrip time.Duration // of the question
}

// Recovered counts what a Recover did.
type Recovered struct {
	Back   int // pending again
	Leases int // the same, of workers that pull
	Buried int // dead: one claim too many ended without an outcome

	Held bool // where claims end with their sessions: other transactions hold some of the rows, which are to be looked at again soon
}

// All is how many claims it ended.
func (r Recovered) All() int { return r.Back + r.Leases + r.Buried }

// Count says how many rows of one biz type one table holds.
type Count struct {
	Table     int
	Type      uint64 // number of the biz type
	Pending   int
	Claimed   int
	Done      int
	Cancelled int
	Dead      int
	Oldest    int64 // the earliest action_time of a pending row; 0: none pending
}

// Facts is what an operator's check wants to know of a server. A number the
// server does not have is -1.
type Facts struct {
	Version          string
	VersionComment   string
	Hostname         string
	ServerID         string // server_uuid (MySQL), server_uid or server_id (MariaDB)
	ReadOnly         string // why it takes no writes, "read_only is on"; "": it takes some
	LogBin           bool
	Unlogged         bool // it refuses writes at READ COMMITTED, as binlog_format is STATEMENT
	ReadTransactions bool // transactions are read-only unless they say otherwise
	FlushLogAtCommit int  // innodb_flush_log_at_trx_commit; 1 is durable
	SyncBinlog       int  // sync_binlog; 1 is durable
	TableOpenCache   int
	OpenInstances    int // table_open_cache_instances: MySQL divides the cache between them; MariaDB adds caches of that size when it needs them
	TableDefCache    int
	InnoDBOpenFiles  int
	OpenFilesLimit   int
	MaxConnections   int
	MaxAllowedPacket int // bytes
	Clock            Offset
	Proxy            string // why a proxy seems to stand between, "" if none does

	Replicas   int      // connected to it; -1: not known
	Unlooked   error    // why Replicas is not known
	SemiSync   bool     // its commits wait for a replica
	SemiWanted bool     // they are meant to
	Followed   bool     // it has transactions of another server: it was a replica, or is a copy
	Exempt     []string // rights by which this user may write to a read-only server
	Schemas    []Schema // of its databases in use whose layout rows could be read
}

// TakesWrites reports whether nothing that was read keeps a server from taking Tocsin's writes.
func (f Facts) TakesWrites() bool { return f.ReadOnly == "" && !f.Unlogged }

// Schema is the version of a database's tables.
type Schema struct {
	Database  string // name
	Version   int    // of its tables
	WorksWith int    // the oldest version that programs may be for
	Begun     bool   // it is older than this program, and has some of the newest tables: a migration has begun
}
