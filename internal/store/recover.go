package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// expired finds claims of one table that ran out at least 5 s ago: their
// claimers have had the time to settle late. From idx_due alone.
var expired = prepare(`
(SELECT /* tocsin expired */
    {table_no},
    job_id,
    '',
    0,
    1
FROM {table} FORCE INDEX (idx_due)
WHERE status = 1
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND
ORDER BY action_time
LIMIT {limit})`)

// nextRunOut finds the claim of one table that runs out first, and how many microseconds its claimer still has, of which it may
// use 5 s to settle late. By idx_due; {kind} is leases, whose rows are read too, or nothing.
var nextRunOut = prepare(`
(SELECT /* tocsin next_run_out */
    {table_no},
    TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), action_time) + 5000000
FROM {table} FORCE INDEX (idx_due)
WHERE status = 1{kind}
ORDER BY action_time
LIMIT 1)`)

// leases is {kind} of tables whose other claims end with their sessions.
const leases = ` AND claimed_by LIKE '` + leasePrefix + `%'`

// recoverLease, recoverBury and recoverBack end run-out claims of one table; sent in this
// order, each row meets one of them.
var (
	recoverBury = prepare(`
UPDATE /* tocsin recover */ {table} FORCE INDEX (PRIMARY)
SET status = 4,
    crashes = crashes + 1,
    last_error = CONCAT('crashed ', crashes, ' times, last on ', claimed_by),
    action_time = UTC_TIMESTAMP(3),
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 1
  AND crashes >= {crashes}
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND;`)
	recoverBack = prepare(`
UPDATE /* tocsin recover */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    crashes = crashes + 1,
    claimed_by = '',
    action_time = UTC_TIMESTAMP(3),
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 1
  AND crashes < {crashes}
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND;`)
)

// RecoverAfter is how long after its end a claim can be recovered: its claimer may settle late until then. The statements above have it too.
const RecoverAfter = 5 * time.Second

// How many claims of a task may end without an outcome before it is buried: it seems to kill its process.
const (
	MaxCrashes        = 5 // where claims run out
	MaxCrashesSession = 6 // where they end with their sessions
)

// Recover ends claims of the tables that nobody will settle, at most limit of them (500 at most). Where it did limit of them, there may be more.
//
// Where others own tables (ByEtcd), these are claims whose deadline passed 5 s ago or more: the task is pending again, due at once, or dead where
// this was its fifth. Where claims are made under sessions (ByRows), these are claims whose session does not exist, and claims by nobody: the task is
// pending again at its own time, or dead where this was its sixth. nodes names nodes by their sessions' ids for last_error, which has the token
// of others; nil: none. A claim of another kind is named in the error and left as it is.
//
// In both, a lease ends 5 s after its deadline, which is a failed attempt. A table that cannot be read or written, or has rows that another
// transaction holds, is named in the error; all other rows are recovered. The counts stand beside the error.
func (s *Store) Recover(ctx context.Context, server int, tables []int, limit int, nodes map[string]string) (Recovered, error) {
	sv := s.servers[server]
	r := &recovery{store: s, server: server, limit: min(limit, maxIDs), nodes: nodes, found: make(map[tocsin.JobID]endedClaim)}
	err := s.readOwnership(ctx, sv)
	for group := range slices.Chunk(s.allowed(sv, tables, r.fail), maxTables) {
		if err == nil {
			err = apart(group, func(tables []int) error { return r.recover(ctx, tables) }, r.fail)
		}
	}
	return r.total, Join(append(r.errs, s.wrap(err, "recover", sv, tables...))...)
}

// NextRunOut returns in how long the first claim of the tables can be recovered, 0 if it can be now; some is false if there is no
// claim. Of claims that end with their sessions it knows nothing. Tables that can't be read are named in the error, beside the result of the others.
func (s *Store) NextRunOut(ctx context.Context, server int, tables []int) (in time.Duration, some bool, err error) {
	sv := s.servers[server]
	if err := s.readOwnership(ctx, sv); err != nil {
		return 0, false, s.wrap(err, "look for claims in", sv, tables...)
	}
	kind := func(table int) []byte {
		if s.bySession(table) {
			return []byte(leases)
		}
		return nil
	}
	left, failed, err := across(ctx, s, sv, tables, question[time.Duration]{
		verb: "look for claims in", statement: nextRunOut, in: slots{"kind": kind},
		scan: into(func(left *time.Duration) []any { return []any{new(int), (*micros)(left)} }),
	})
	if len(left) > 0 {
		in, some = max(slices.Min(left), 0), true
	}
	return in, some, joined(failed, err)
}

// recovery is one call of Recover.
type recovery struct {
	store  *Store
	server int
	limit  int
	nodes  map[string]string

	total Recovered
	errs  []error
	found map[tocsin.JobID]endedClaim // where claims end with their sessions
	kind  string                      // of ended
}

func (r *recovery) fail(table int, err error) {
	r.errs = append(r.errs, r.store.wrap(err, "recover", r.store.servers[r.server], table))
}

// recover recovers claims of some tables, until total has limit of them. Tables that fail hide no claims of the others, however many they have.
func (r *recovery) recover(ctx context.Context, tables []int) error {
	s := r.store
	for r.kind = ""; ; {
		most, kind, failed := r.limit-r.total.All(), r.kind, make(map[int]bool)
		ids, full, err := r.find(ctx, tables, most)
		if err != nil {
			return err
		}
		before := r.total.All()
		err = s.around(ctx, r.server, ids, func(parts []idsOf) error { return r.write(ctx, parts) }, func(table int, err error) {
			failed[table] = true
			r.total.Held = r.total.Held || s.bySession(table) && mysql.ClassOf(err) == mysql.Contended
			r.fail(table, err)
		})
		if err != nil {
			return err
		}
		if ring := slices.DeleteFunc(ids, func(id tocsin.JobID) bool { return !s.bySession(id.Table()) }); r.total.All() > before {
			err = s.Ring(ctx, r.server, ring)
		}
		if err != nil || !full || len(failed) == 0 && kind == r.kind {
			return err
		}
		tables = slices.DeleteFunc(slices.Clone(tables), func(table int) bool { return failed[table] })
	}
}

// write adds what one transaction recovers, or nothing if it fails.
func (r *recovery) write(ctx context.Context, parts []idsOf) error {
	var text []byte
	var args []any
	var counts []*int // where the statements' counts go
	var total Recovered
	for _, part := range parts {
		fill := r.store.ofTable(part.table, slots{"ids": part.ids, "crashes": MaxCrashes - 1})
		text, counts = recoverLease.render(text, fill), append(counts, &total.Leases)
		if !r.store.bySession(part.table) {
			text, counts = recoverBack.render(recoverBury.render(text, fill), fill), append(counts, &total.Buried, &total.Back)
			continue
		}
		for c, ids := range r.byToken(part.ids) {
			st, count := endedBack, &total.Back
			if c.last {
				st, count = endedBury, &total.Buried
			}
			text, counts = st.render(text, r.store.ofTable(part.table, slots{"ids": ids})), append(counts, count)
			args = append(args, r.claimer(c.token), c.token, c.token[:min(SessionSize, len(c.token))])
		}
	}
	err := r.store.transact(ctx, r.store.servers[r.server], tablesOf(parts), func(conn *sql.Conn) error {
		total = Recovered{}
		changed, err := r.store.write(ctx, conn, recoverBack.name, text, args...)
		if err == nil && len(changed) != len(counts) {
			err = fmt.Errorf("%d counts for %d statements", len(changed), len(counts))
		}
		for i := range changed {
			*counts[i] += int(changed[i])
		}
		return err
	})
	if err == nil {
		r.total.Back, r.total.Leases, r.total.Buried = r.total.Back+total.Back, r.total.Leases+total.Leases, r.total.Buried+total.Buried
	}
	return err
}

// find returns the ids of claims to recover, by table, at most limit. It locks nothing: the update checks again. full reports whether there may be more.
func (r *recovery) find(ctx context.Context, tables []int, limit int) (ids []tocsin.JobID, full bool, err error) {
	type claim struct {
		table int
		id    tocsin.JobID
		endedClaim
		crashes int  // before it
		over    bool // its action_time has passed by 5 s, which is a deadline if an owner has claimed it
	}
	if limit <= 0 || len(tables) == 0 {
		return nil, false, nil
	}
	s, sv := r.store, r.store.servers[r.server]
	text := func(b []byte, table int) []byte {
		if s.bySession(table) {
			return ended.render(b, s.ofTable(table, slots{"limit": limit, "kind": r.kind}))
		}
		return expired.render(b, s.ofTable(table, slots{"limit": limit}))
	}
	scan := into(func(c *claim) []any { return []any{&c.table, &c.id, &c.token, &c.crashes, &c.over} })
	claims, err := question[claim]{statement: expired, text: text, scan: scan}.ask(ctx, s.gated(sv), s.databasesIn(tables), tables, s.ofTable)
	for _, c := range claims {
		switch lease := strings.HasPrefix(c.token, leasePrefix); {
		case c.id.Table() != c.table || len(ids) == limit: // a misplaced row is Peek's to report
			continue
		case !s.bySession(c.table), lease:
		case c.token != "" && !IsToken(c.token) && !c.over:
			r.kind = knownKinds
			r.fail(c.table, fmt.Errorf("job_id %s is claimed by %q, which is neither a session's claim nor a lease", c.id, c.token))
			continue
		default:
			c.last = c.crashes+1 >= MaxCrashesSession
			r.found[c.id] = c.endedClaim
		}
		ids = append(ids, c.id)
	}
	return sortIDs(ids), len(claims) >= limit, err
}

// Prolonged is a claim that is to last longer.
type Prolonged struct {
	JobID   tocsin.JobID
	Version uint32 // as claimed
	By      string // the claimer
	Until   int64  // the new deadline by the server's clock, Unix ms
}

// prolong moves the deadline of a claim that stands. Primary key. Its argument is the claimer. Zero rows: the claim ran out, or the task
// was cancelled.
var prolong = prepare(`
UPDATE /* tocsin prolong */ {table} FORCE INDEX (PRIMARY)
SET action_time = {until},
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = {job_id}
  AND version = {version}
  AND status = 1
  AND action_time < {until}
  AND claimed_by = ?;`)

// Prolong has claims of one server last longer. What is no longer claimed is left as it is: its outcome will say so. Tables that can't be
// written, or have rows that another transaction holds, are named in the error; all other claims last longer.
func (s *Store) Prolong(ctx context.Context, server int, claims []Prolonged) error {
	sv, byID := s.servers[server], make(map[tocsin.JobID]Prolonged, len(claims))
	for _, c := range claims {
		byID[c.JobID] = c
	}
	var errs []error
	err := s.around(ctx, server, sortIDs(slices.Collect(maps.Keys(byID))), func(parts []idsOf) error {
		var text []byte
		var args []any
		for _, part := range parts {
			for _, id := range part.ids {
				c := byID[id]
				text = prolong.render(text, s.ofTable(part.table, slots{"until": instant(c.Until), "version": c.Version, "job_id": id}))
				args = append(args, c.By)
			}
		}
		return s.transact(ctx, sv, tablesOf(parts), func(conn *sql.Conn) error {
			_, err := s.write(ctx, conn, prolong.name, text, args...)
			return err
		})
	}, func(table int, err error) { errs = append(errs, s.wrap(err, "prolong claims in", sv, table)) })
	return Join(append(errs, s.wrap(err, "prolong claims", sv))...)
}
