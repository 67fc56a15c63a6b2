package outbox

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/name"
)

// What a row asks for.
const (
	Add        = "add"
	Cancel     = "cancel"
	Reschedule = "reschedule"
)

// DefaultTable is the name of the table if nobody chose another.
const DefaultTable = "tocsin_outbox"

// Comment is how the comment of an outbox's table begins. Its identity follows: random, it tells the outbox from all others.
const Comment = "tocsin outbox "

// identityForm is the form of an identity. Relays write identities between quotes into statements on Tocsin's servers.
var identityForm = regexp.MustCompile(`^[0-9A-Za-z._-]{1,64}$`)

// Identity returns the identity in the comment of a table; "": it has none.
func Identity(comment string) string {
	identity, ok := strings.CutPrefix(comment, Comment)
	if !ok || !identityForm.MatchString(identity) {
		return ""
	}
	return identity
}

// Key identifies a row of one outbox. An outbox that was emptied may give an id again, so the id alone does not.
type Key struct {
	ID      uint64
	Created time.Time // by the outbox's server, UTC, whole microseconds
}

// Row is one row of an outbox.
type Row struct {
	Key
	Op        string
	BizType   string
	BizID     uint64         // of the key, if there is one
	BizKey    string         // "": BizID is the key
	Both      bool           // biz_id and biz_key are given
	Due       time.Time      // when to act, UTC; zero: see Delay
	Delay     *time.Duration // after Created; nil: see Due
	Dedup     string         // "": none
	Headers   string         // a JSON object of texts; "": none
	Payload   string
	Attempts  int           // of a relay, that failed
	LastError string        // why it was set aside; "": it was not
	Age       time.Duration // since Created when it was read, by the outbox's server
	Read      time.Time     // before it was read, by this process
	Answered  time.Time     // after that, by this process
	Again     bool          // it was tried before, met a delivery, and changed other tasks that were pending then
	Locked    bool          // it met a lock when it was tried last, perhaps of another row
	Unfit     string        // why it is no row at all; "": it is one
}

// rowBytes is about what a row takes in memory without its texts.
const rowBytes = 400

// Size returns about how many bytes the row takes in memory.
func (r Row) Size() int {
	return rowBytes + len(r.Payload) + len(r.Dedup) + len(r.Headers) + len(r.BizKey)
}

// SinceRead returns how long ago the row was read, at least. The monotonic clock stands still while a virtual machine is
// paused, and the other one may be set back, so the larger difference counts.
func (r Row) SinceRead() time.Duration {
	now := time.Now()
	return max(now.Sub(r.Read), now.Round(0).Sub(r.Read.Round(0)))
}

// Left returns how much is left of the row's delay at a time, at least: no task may be early.
func (r Row) Left(at time.Time) time.Duration { return *r.Delay - r.Age - at.Sub(r.Answered) }

// Place gives a row that was read the biz_id of its key, if it has one.
func (r *Row) Place() {
	if r.BizKey != "" {
		r.Both, r.BizID = r.BizID != 0, name.KeyID(r.BizKey)
	}
}

// Problem returns what is wrong with the row in itself; "": nothing.
func (r Row) Problem() string {
	switch {
	case r.Unfit != "":
		return r.Unfit
	case r.Both:
		return "give either biz_id or biz_key"
	case r.Created.IsZero():
		return "created is 0: leave it out"
	case r.BizKey != "":
		if err := name.CheckKey(r.BizKey); err != nil {
			return err.Error()
		}
	case r.BizID == 0:
		return "biz_id is 0"
	}
	switch {
	case r.Op == Cancel:
		return ""
	case r.Op != Add && r.Op != Reschedule:
		return fmt.Sprintf("op %q: use %s, %s or %s", r.Op, Add, Cancel, Reschedule)
	case r.Due.IsZero() == (r.Delay == nil):
		return "give either due_time or delay_ms"
	}
	return ""
}

// MaxDelay is more than any task may be ahead, in milliseconds. A Driver reads a longer delay as this one.
const MaxDelay = 100 * 365 * 24 * 3600 * 1000

// DelayOf is the Delay of a row with this number of milliseconds.
func DelayOf(ms int64) *time.Duration {
	d := time.Duration(min(max(ms, 0), MaxDelay)) * time.Millisecond
	return &d
}

// AgeOf is the Age of a row that was made so many microseconds ago, by its server's clock. One that was made centuries ago, or ahead, has an
// age that can be added to a delay.
func AgeOf(micros int64) time.Duration {
	return time.Duration(min(max(micros, -1000*MaxDelay), 1000*MaxDelay)) * time.Microsecond
}

// maxReason is the size of last_error, in characters.
const maxReason = 255

// Reason returns why a row was set aside, as its column takes it.
func Reason(text string) string { return name.Text(text, maxReason) }

// Fate is what became of a row that was to be moved.
type Fate uint8

// The fates.
const (
	Moved      Fate = iota // it is stored, now or before
	Refused                // it can't be stored as it is
	InDelivery             // a delivery is under way: try again after it
	Stale                  // it was read too long ago: read it again
	Failed                 // it may be stored later
)

// Result is the fate of one row. Err is nil if it was moved.
type Result struct {
	Fate    Fate
	Err     error
	Changed bool // of InDelivery: tasks that were pending are changed
}

// tableForm is a name, with its database or without.
var tableForm = regexp.MustCompile(`^([A-Za-z0-9_$][A-Za-z0-9_$-]{0,63}\.)?[A-Za-z0-9_$][A-Za-z0-9_$-]{0,63}$`)

// CheckTable returns what is wrong with the name of an outbox table, "shop.tocsin_outbox" or "tocsin_outbox".
func CheckTable(table string) error {
	if !tableForm.MatchString(table) {
		return fmt.Errorf("outbox table %q: use database.table, of letters, digits, '_', '$' and '-'", table)
	}
	return nil
}

// Split divides a table's name at the point; without one the database is "".
func Split(table string) (database, name string) {
	database, name, found := strings.Cut(table, ".")
	if !found {
		return "", table
	}
	return database, name
}

// QuotedPostgreSQL writes a valid name as an identifier of PostgreSQL.
func QuotedPostgreSQL(table string) string { return `"` + strings.ReplaceAll(table, ".", `"."`) + `"` }

// Quoted returns a valid table name in MySQL's quotes.
func Quoted(table string) string { return "`" + strings.ReplaceAll(table, ".", "`.`") + "`" }
