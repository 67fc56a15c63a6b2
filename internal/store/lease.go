package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base32"
	"encoding/binary"
	"strings"

	"github.com/tocsinhq/tocsin"
)

// A lease is the claim of a row for a worker that pulls. Its claimer is leasePrefix and 26 characters: when it began, in Unix ms by
// the server's clock, and 80 random bits. So nobody ends the lease of somebody else, and a lease that was lost is not taken for the next one.
const leasePrefix = "lease:"

// LeaseSize is the length of what follows leasePrefix.
const LeaseSize = 26

const leaseBytes = 16

var leaseText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding) // as ULID, in the order of time

// NewLease makes the claimer of leases that begin now.
func NewLease(now int64) string {
	var b [leaseBytes]byte
	_, _ = rand.Read(b[6:]) // never fails
	binary.BigEndian.PutUint32(b[0:], uint32(now>>16))
	binary.BigEndian.PutUint16(b[4:], uint16(now))
	return leasePrefix + leaseText.EncodeToString(b[:])
}

// LeaseBegan returns the text of a lease without its prefix, and when it began, in Unix ms. False: the claimer is none.
func LeaseBegan(by string) (text string, began int64, ok bool) {
	text, ok = strings.CutPrefix(by, leasePrefix)
	b, err := leaseText.DecodeString(text)
	if !ok || err != nil || len(text) != LeaseSize || len(b) != leaseBytes { // the decoder skips line breaks
		return "", 0, false
	}
	return text, int64(binary.BigEndian.Uint64(b) >> 16), true
}

// LeaseOf returns the claimer of a lease with that text.
func LeaseOf(text string) string { return leasePrefix + text }

// recoverLease gives back the rows of one table whose leases ran out: a failed attempt, since a worker that is gone says nothing of the
// task, and no crash.
var recoverLease = prepare(`
UPDATE /* tocsin recover */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    attempts = attempts + 1,
    last_error = 'the lease ran out: its worker has neither settled nor extended it',
    claimed_by = '',
    action_time = UTC_TIMESTAMP(3),
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 1
  AND claimed_by LIKE '` + leasePrefix + `%'
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND;`)

// Ring rings the doorbell for those rows of a server that are pending and due within the doorbell's horizon.
func (s *Store) Ring(ctx context.Context, server int, ids []tocsin.JobID) error {
	near := ringNear.render(nil, slots{"horizon": s.horizon.Load()}.fill)
	err := s.around(ctx, server, sortIDs(ids), func(parts []idsOf) error {
		var text []byte
		for _, part := range parts {
			text = ring.render(text, s.ofTable(part.table, slots{"ids": part.ids, "near": near}))
		}
		return s.transact(ctx, s.servers[server], tablesOf(parts), func(conn *sql.Conn) error {
			_, err := s.write(ctx, conn, ring.name, text)
			return err
		})
	}, func(int, error) {}) // the next scan finds what does not ring
	return s.wrap(err, "ring for tasks in", s.servers[server])
}
