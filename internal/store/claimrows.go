package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// SessionSize is the length of a session's id, with which the tokens of its claims begin.
const SessionSize = 12

// Token is who has claimed a row: a session, and a number that tells its claims apart. So an outcome whose answer was lost
// can't settle a later claim of the same process.
func Token(session string, claim uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], claim)
	return session + leaseText.EncodeToString(b[:])[1:]
}

// IsToken reports whether a claimer is a Token.
func IsToken(by string) bool { return len(by) == 2*SessionSize }

// RowsClaim asks one server for rows to be claimed.
type RowsClaim struct {
	Server  int
	Rows    []duequeue.Entry
	Session map[int]string // by database: the session under which its rows are claimed
	Number  uint64         // of the claim: see Token
	Ahead   time.Duration  // rows that are due within it are claimed too; whole milliseconds
	Special bool           // also rows that have ended processes, and runs of schedules, which an ordinary claim refuses
	Newest  int            // of an ordinary claim: rows whose payload has a newer version than this are refused, and those whose version can't be told; 0: none
	PerKey  int            // rows of one biz type and biz_id that may be claimed at once, by anybody, in the order of (action_time, job_id); 0: any number
	Lease   string         // the claimer's text instead of Token: a worker's lease; "": none
	Hold    time.Duration  // of a lease: its end is the server's now and this, and stands in action_time; it takes only rows whose time is still the Due of their entry
	NoWait  bool           // leave out rows that other transactions hold, instead of waiting for them for a second
}

// ClaimedRows is the answer of a RowsClaim.
type ClaimedRows struct {
	Rows    []Row          // claimed; Action of a lease is its end
	Crowded []tocsin.JobID // of Rows: beside them, more rows of their key are claimed than PerKey; they are to be given back
	Refused []Row          // pending and not claimed: due later, special, locked, not their turn, or the session has ended
	Now     int64          // the server's clock behind the claim
	Failed  map[int]error  // by table number: nothing was claimed there; nil if all is well
}

// hasSession notes whether a session exists, for the claims that follow in the packet. It stands in every packet: a value that
// is left on the connection would make a blind claim. It takes no lock, as a SET from a subquery would: beats and claims don't wait for each other.
var hasSession = prepare(`
SELECT /* tocsin claim */ COUNT(*) INTO @s{database_no} FROM {database}.session WHERE id = '{session}';`)

// inTurn notes which rows of one table have their turn, for the claimFree behind it. It takes no locks: within an UPDATE of two tables it would. Two claims may
// pass it both: see crowdedRows.
var inTurn = prepare(`
SELECT /* tocsin claim */ GROUP_CONCAT(job_id) INTO @turn
FROM {table} AS t FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 0
  AND action_time <= UTC_TIMESTAMP(3){ahead} {turn};`)

// readable refuses rows whose payload has a newer version than {newest}, a number of {digits} digits: see client.TakeVersion. Texts are
// compared, as a number that can't be read would end the statement in strict mode.
var readable = prepare(` AND (headers IS NULL
    OR LOCATE('` + client.VersionHeader + `', headers) = 0
    OR (LEFT(headers, {length}) = '{mark}'
      AND (LENGTH({version}) < {digits} OR (LENGTH({version}) = {digits} AND {version} <= '{newest}'))))`)

// versionText is {version}: what stands in the mark.
var versionText = fmt.Sprintf("SUBSTRING_INDEX(SUBSTRING(headers, %d), '\"', 1)", len(client.MarkedStart)+1)

// claimRows and claimFree claim rows of one table by primary key; claimFree leaves out those that other transactions hold, and with {in_turn} those that
// inTurn has not noted. Its derived table is read first, and can't be merged for its LIMIT: an IN of the same would scan the whole table on MariaDB 10.11,
// and wait for each locked row. {time} sets the end of a lease or nothing. Zero rows: they are claimed, settled, or not due, {ordinary} refuses them, or
// the session has ended.
var (
	claimRows = prepare(`
UPDATE /* tocsin claim */ {table} FORCE INDEX (PRIMARY)` + claimSet + `
WHERE job_id IN ({ids})
  AND` + claimIf)
	claimFree = prepare(`
UPDATE /* tocsin claim */ (
    SELECT job_id AS free_id
    FROM {table} AS t FORCE INDEX (PRIMARY)
    WHERE job_id IN ({ids})
      AND status = 0
      AND action_time <= UTC_TIMESTAMP(3){ahead}{in_turn}
    LIMIT 500
    FOR UPDATE SKIP LOCKED) AS free
STRAIGHT_JOIN {table} AS r FORCE INDEX (PRIMARY) ON job_id = free_id` + claimSet + `
WHERE` + claimIf)
)

const (
	claimSet = `
SET status = 1,
    claimed_by = '{token}',{time}
    gmt_modified = UTC_TIMESTAMP(3)`
	claimIf = `
      status = 0
  AND action_time <= UTC_TIMESTAMP(3){ahead}{ordinary}
  AND @s{database_no} = 1;`
)

// ordinary refuses rows that have ended a process before, and runs of schedules, whose keys begin with a zero byte.
const ordinary = ` AND crashes = 0 AND (dedup_key IS NULL OR dedup_key >= 0x01)`

// rowsClaimed reads what a claim in the same packet has got of one table, behind its commit, and what is still pending.
var rowsClaimed = prepare(`
(SELECT /* tocsin claim */` + rowColumns + `
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND (status = 0 OR (status = 1 AND claimed_by = '{token}')))`)

// crowdedRows reads which rows of one table that a claim has got have more claimed rows of their key beside them than may be. The condition of
// the claim does not see rows that appear meanwhile with an earlier place in the order, such as those of a transaction that commits
// late: two claims may then have passed it. Behind its commit one of them sees the other.
var crowdedRows = prepare(`
(SELECT /* tocsin claim */
    job_id
FROM {table} AS t FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 1
  AND claimed_by = '{token}'
  AND (SELECT COUNT(*)
       FROM {table} AS k FORCE INDEX (uk_biz)
       WHERE k.biz_id = t.biz_id
         AND k.biz_type = t.biz_type
         AND k.status = 1) > {per_key})`)

// ClaimRows claims rows by one packet for each 500: it marks them with the claim's token, commits, and reads them. Nothing is held
// by a process that freezes in the middle of it. Rows in any order; those that are neither claimed nor pending are left out.
//
// It waits for locks of other transactions for a second, and then leaves the rows that they hold to Refused. A table that has a fault hides
// no other. If a packet got no answer, the error is *Unanswered, beside the rows of the packets before; another error says that nothing more was claimed.
func (s *Store) ClaimRows(ctx context.Context, c RowsClaim) (ClaimedRows, error) {
	sv := s.servers[c.Server]
	var got ClaimedRows
	fail := func(group []duequeue.Entry, err error) {
		addFailed(&got.Failed, group[0].JobID.Table(), s.wrap(err, "claim in", sv, group[0].JobID.Table()))
	}
	for chunk := range slices.Chunk(sortEntries(c.Rows), maxIDs) {
		groups := slices.DeleteFunc(entriesByTable(chunk), func(group []duequeue.Entry) bool {
			table := group[0].JobID.Table()
			err := cmp.Or(s.refuse(c.Server, table), sv.refused().first(s.databasesIn([]int{table})))
			if err != nil {
				fail(group, err)
			}
			return err != nil
		})
		err := apart(groups, func(groups [][]duequeue.Entry) error {
			p := claimPacket{store: s, server: sv, RowsClaim: c, groups: groups}
			err := p.send(ctx, &got)
			if lost := (*Unanswered)(nil); mysql.ClassOf(err) == mysql.Contended && !c.NoWait && !errors.As(err, &lost) {
				c.NoWait, p.NoWait = true, true
				err = p.send(ctx, &got)
			}
			return err
		}, fail)
		if err != nil {
			return got, s.wrap(err, "claim rows", sv)
		}
	}
	return got, nil
}

// claimPacket is one claim in one transaction, sent as one packet.
type claimPacket struct {
	RowsClaim
	store  *Store
	server *server
	groups [][]duequeue.Entry // each of one table
}

// send adds what the packet claims to got, or nothing if it fails.
func (p *claimPacket) send(ctx context.Context, got *ClaimedRows) error {
	tables := tablesOfEntries(slices.Concat(p.groups...))
	start := time.Now()
	conn, err := p.store.conn(ctx, p.server, p.store.databasesIn(tables))
	if err != nil {
		p.store.metrics.observe("claim", start, 0, err)
		return err
	}
	defer func() { _ = conn.Close() }()
	connection := connectionOf(ctx, conn)
	text, crowd, clock := p.text(p.store.databasesIn(tables))
	before, beside, amid := len(got.Rows), len(got.Refused), len(got.Crowded)
	taken, marked := p.server.asking(), false
	err = p.store.read(ctx, conn, "claim", text, func(set int, rows *sql.Rows) (err error) {
		switch {
		case set == 0:
			marked = true
		case set == clock:
			taken.micro, err = scanMicro(rows)
		case set < crowd:
			err = p.scan(rows, got)
		default:
			got.Crowded = append(got.Crowded, 0)
			err = rows.Scan(&got.Crowded[len(got.Crowded)-1])
		}
		return err
	})
	p.server.full.note(err)
	if err == nil {
		taken.answered = time.Now()
		p.store.note(p.server, taken)
		got.Now = taken.micro / 1000
		return nil
	}
	got.Rows, got.Refused, got.Crowded = got.Rows[:before], got.Refused[:beside], got.Crowded[:amid]
	mysql.Rollback(ctx, conn)
	if !marked && !mysql.InDoubt(err) { // the server has refused something before the commit
		return err
	}
	return &Unanswered{Connection: Connection{connection, taken.term}, IDs: idsOfEntries(slices.Concat(p.groups...)), Err: err}
}

// scan takes a row in.
func (p *claimPacket) scan(rows *sql.Rows, got *ClaimedRows) error {
	row, err := p.store.scanRow(rows)
	if row.Status == tocsin.Claimed {
		got.Rows = append(got.Rows, row)
	} else {
		got.Refused = append(got.Refused, row)
	}
	return err
}

// beforeCommit is a row that comes if all claims of the packet were made: what fails then may have been committed.
const beforeCommit = "SELECT /* tocsin claim */ 1;COMMIT;"

// text is the packet. Its result sets are beforeCommit's, the rows', from number crowd on those of crowdedRows, and with number clock the clock's.
func (p *claimPacket) text(databases []int) (b []byte, crowd, clock int) {
	for _, database := range databases {
		b = hasSession.render(b, p.store.ofDatabase(database, slots{"session": p.Session[database]}))
	}
	b = append(b, "BEGIN;"...)
	claim := claimRows
	if p.NoWait || p.PerKey > 0 {
		claim = claimFree
	}
	for _, group := range p.groups {
		if p.PerKey > 0 {
			b = p.one(b, inTurn, group)
		}
		b = p.one(b, claim, group)
	}
	b = append(b, beforeCommit...)
	b, crowd = p.union(b, rowsClaimed, 1)
	clock = crowd
	if p.PerKey > 0 {
		b, clock = p.union(b, crowdedRows, crowd)
	}
	return now.render(b, nil), crowd, clock
}

// union renders a statement for each 64 tables, and counts their result sets on.
func (p *claimPacket) union(b []byte, st statement, sets int) ([]byte, int) {
	for groups := range slices.Chunk(p.groups, maxTables) {
		for i, group := range groups {
			if i > 0 {
				b = append(b, unionAll...)
			}
			b = p.one(b, st, group)
		}
		b = append(b, ';')
		sets++
	}
	return b, sets
}

// one renders a statement about a group.
func (p *claimPacket) one(b []byte, st statement, group []duequeue.Entry) []byte {
	table := group[0].JobID.Table()
	database := p.store.layout.DatabaseOf(table)
	fill := func(b []byte, slot string) []byte { // no map of slots: each claim passes here
		switch slot {
		case "table":
			return append(b, p.store.names[table]...)
		case "database_no":
			return appendInt(b, database)
		case "token":
			return append(b, p.Claimer(database)...)
		case "ids":
			return appendList(b, idsOfEntries(group))
		case "turn":
			return itsTurn.render(b, p.store.ofTable(table, slots{"per_key": p.PerKey}))
		case "in_turn":
			if p.PerKey > 0 {
				return append(b, " AND FIND_IN_SET(job_id, @turn)"...)
			}
		case "per_key":
			return appendInt(b, p.PerKey)
		case "ahead":
			if p.Ahead > 0 {
				return append(appendInt(append(b, " + INTERVAL "...), int(p.Ahead.Microseconds())), " MICROSECOND"...)
			}
		case "ordinary":
			if p.Lease != "" { // it is written over
				b = append(appendPairs(append(b, " AND (job_id, action_time) IN ("...), group), ')')
			}
			if !p.Special {
				b = append(b, ordinary...)
			}
			if p.Newest > 0 {
				newest := strconv.Itoa(p.Newest)
				return readable.render(b, slots{"length": len(client.MarkedStart), "mark": client.MarkedStart, "version": versionText, "digits": len(newest), "newest": newest}.fill)
			}
		case "time":
			return p.leaseEnd(b)
		}
		return b
	}
	return st.render(b, fill)
}

// leaseEnd sets the end of a lease.
func (p *claimPacket) leaseEnd(b []byte) []byte {
	if p.Lease == "" {
		return b
	}
	b = append(b, " action_time = UTC_TIMESTAMP(3) + INTERVAL "...)
	return append(appendInt(b, int(p.Hold.Microseconds())), " MICROSECOND,"...)
}

// Claimer is what claimed_by says of rows of a database that the claim has got.
func (c RowsClaim) Claimer(database int) string {
	if c.Lease != "" {
		return c.Lease
	}
	return Token(c.Session[database], c.Number)
}
