package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// ended finds claims of one table that have no session, or leases that ran out. {kind} is knownKinds, or nothing. By idx_due, and the rows' sessions by
// primary key.
var ended = prepare(`
(SELECT /* tocsin ended */
    {table_no},
    job_id,
    claimed_by,
    crashes,
    action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND
FROM {table} FORCE INDEX (idx_due)
WHERE status = 1
  AND IF(claimed_by LIKE '` + leasePrefix + `%',
      action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND,
      NOT EXISTS (SELECT 1 FROM {database}.session FORCE INDEX (PRIMARY) WHERE id = LEFT(claimed_by, 12))){kind}
ORDER BY action_time
LIMIT {limit})`)

// knownKinds leaves out claims whose tokens are of no known kind, until their deadlines are over: the claims of owners, from before the ownership
// was changed.
const knownKinds = `
  AND (claimed_by LIKE '` + leasePrefix + `%' OR CHAR_LENGTH(claimed_by) IN (0, 24) OR action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND)`

// ofEnded is the condition that a claim still stands, under the token that is the last argument but one, and that its session, which the last one names,
// does not exist. A session's id is never used again, so it will not exist later either. The id is no part of the row: MySQL would join all sessions.
const ofEnded = `
WHERE job_id IN ({ids})
  AND status = 1
  AND claimed_by = ?
  AND NOT EXISTS (SELECT 1 FROM {database}.session FORCE INDEX (PRIMARY) WHERE id = ?);`

// endedBack and endedBury end claims of one table and token whose session does not exist. Their first argument is who claimed.
// Primary key. Zero rows: the row was settled or recovered, or the session exists.
var (
	endedBack = prepare(`
UPDATE /* tocsin recover */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    crashes = crashes + 1,
    last_error = CONCAT('its process ended: ', ?),
    claimed_by = '',
    gmt_modified = UTC_TIMESTAMP(3)` + ofEnded)
	endedBury = prepare(`
UPDATE /* tocsin recover */ {table} FORCE INDEX (PRIMARY)
SET status = 4,
    crashes = crashes + 1,
    last_error = CONCAT('crashed ', crashes, ' times, last on ', ?),
    claimed_by = '',
    action_time = UTC_TIMESTAMP(3),
    gmt_modified = UTC_TIMESTAMP(3)` + ofEnded)
)

// bySession reports whether claims of a table end with their sessions.
func (s *Store) bySession(table int) bool {
	ownership := s.ownerships[s.layout.DatabaseOf(table)].Load()
	return ownership != nil && *ownership == layoutrow.ByRows
}

// readOwnership reads the layout rows of a server unless all were read before, so that bySession knows.
func (s *Store) readOwnership(ctx context.Context, sv *server) error {
	unread := func(database int) bool { return s.ownerships[database].Load() == nil }
	if !slices.ContainsFunc(sv.refused().without(sv.Databases), unread) {
		return nil
	}
	conn, err := s.conn(ctx, sv, nil)
	if err != nil {
		return err
	}
	return conn.Close()
}

// endedClaim is a claim without a session, or by nobody.
type endedClaim struct {
	token string
	last  bool // its task has crashed too often
}

// byToken groups rows of one table whose claims end with their sessions.
func (r *recovery) byToken(ids []tocsin.JobID) map[endedClaim][]tocsin.JobID {
	groups := make(map[endedClaim][]tocsin.JobID)
	for _, id := range ids {
		if c, ok := r.found[id]; ok { // else it is a lease
			groups[c] = append(groups[c], id)
		}
	}
	return groups
}

// claimer names who made a claim.
func (r *recovery) claimer(token string) string {
	if token == "" {
		return "nobody knows which"
	}
	return cmp.Or(r.nodes[token[:min(SessionSize, len(token))]], token)
}

// ownClaims reads which rows of one table are claimed under a session. By idx_due, and the rows.
var ownClaims = prepare(`
(SELECT /* tocsin own_claims */
    {table_no},
    job_id,
    claimed_by
FROM {table} FORCE INDEX (idx_due)
WHERE status = 1
  AND LEFT(claimed_by, 12) = '{session}')`)

// OwnClaims reads which rows of tables of one server are claimed under the given sessions, by database, and returns their tokens: for the process of these
// sessions to compare with what it holds. Tables that can't be read are named in the error, beside the claims of the others.
func (s *Store) OwnClaims(ctx context.Context, server int, tables []int, sessions map[int]string) (map[tocsin.JobID]string, error) {
	type claim struct {
		table int
		id    tocsin.JobID
		token string
	}
	session := func(table int) []byte { return []byte(sessions[s.layout.DatabaseOf(table)]) }
	tables = slices.DeleteFunc(slices.Clone(tables), func(table int) bool { return len(session(table)) == 0 })
	claims, failed, err := across(ctx, s, s.servers[server], tables, question[claim]{
		verb: "look for this process's claims in", statement: ownClaims, in: slots{"session": session},
		scan: into(func(c *claim) []any { return []any{&c.table, &c.id, &c.token} }),
	})
	tokens := make(map[tocsin.JobID]string, len(claims))
	for _, c := range claims {
		if c.id.Table() == c.table { // a misplaced row is Peek's to report
			tokens[c.id] = c.token
		}
	}
	return tokens, joined(failed, err)
}
