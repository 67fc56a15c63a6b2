package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"
)

// Row is a task that is ready to be stored, or why it can't be.
type Row struct {
	Out Added // its fate

	id      uint64
	table   int
	bizID   uint64
	bizKey  string // "": bizID is the key
	bizType uint64
	name    string // of the biz type
	when    When
	dedup   []byte // nil: none
	payload []byte // never nil
	headers []byte // nil: none
	unique  Unique
	origin  *origin // of Move: the row of the outbox; nil of others
}

// Added is what became of a row; see tocsin.Added.
type Added struct {
	JobID       uint64
	Existing    bool
	Rescheduled bool
	Status      uint8
	Relayed     bool
	Err         error
}

// Row checks a task and gives it a place, a number for its biz type and an id.
func (c *Client) Row(ctx context.Context, t Task) (Row, error) {
	now := time.Now()
	if err := t.valid(now); err != nil {
		return Row{bizID: t.BizID}, err
	}
	number, err := c.Types.number(ctx, t.BizType)
	if err != nil {
		return Row{bizID: t.BizID}, err
	}
	table := c.layout.TableOf(t.BizID)
	r := Row{
		id:      c.IDs.Next(now, table),
		table:   table,
		bizID:   t.BizID,
		bizKey:  t.BizKey,
		unique:  t.Unique,
		bizType: number,
		name:    t.BizType,
		when:    t.When,
		payload: []byte(t.Payload),
	}
	if t.Dedup != "" {
		r.dedup = []byte(t.Dedup)
	}
	r.when = r.spread(c.spreads[t.BizType])
	if t.bare() {
		return r, nil
	}
	headers, err := t.storedHeaders()
	if headers != "" {
		r.headers = []byte(headers)
	}
	return r, err
}

// spread returns when the task acts, given the window of its biz type. It is pure.
func (r *Row) spread(window time.Duration) When {
	w := r.when
	if window == 0 || !w.absolute() || !w.at.Truncate(time.Minute).Equal(w.at) {
		return w
	}
	seed := make([]byte, 0, 8+MaxDedupKey)
	if r.dedup == nil {
		seed = binary.BigEndian.AppendUint64(seed, r.id)
	} else {
		seed = append(binary.BigEndian.AppendUint64(seed, r.bizID), r.dedup...)
	}
	hash := sha256.Sum256(seed)
	w.at = w.at.Add(time.Duration(binary.BigEndian.Uint64(hash[:])%uint64(window/time.Millisecond)) * time.Millisecond)
	return w
}

// stored reports whether an AddMany has stored the row, or found that it was.
func (r *Row) stored() bool { return r.Out.JobID != 0 && r.Out.Err == nil }

// addArgs are the parameters of an add; those of its times and others follow.
func (r *Row) addArgs(others ...any) []any {
	args := append(make([]any, 0, 16), r.id, r.bizID, r.bizType, nullable(r.dedup), r.payload, nullable(r.headers), []byte(r.bizKey))
	return append(args, others...)
}

// nullable keeps a nil slice from being taken for an empty text.
func nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// stored is what is read back of a row.
type stored struct {
	id      uint64
	bizID   uint64
	bizType uint64
	status  uint8
	dedup   []byte
	payload []byte
	headers []byte
	bizKey  string
	strict  bool // of holder: claimed, and its biz type is strict
}

// made reports whether s is r as this client wrote it. A cancel, or an add with a unique
// key, may have taken the dedup_key away.
func (r *Row) made(s stored) bool {
	return s.id == r.id && s.bizID == r.bizID && s.bizType == r.bizType &&
		bytes.Equal(s.payload, r.payload) && bytes.Equal(s.headers, r.headers) && s.bizKey == r.bizKey &&
		(s.dedup == nil || bytes.Equal(s.dedup, r.dedup))
}

// sameKey reports whether s holds r's dedup_key. It may be another business key's.
func (r *Row) sameKey(s stored) bool {
	return r.dedup != nil && s.dedup != nil && s.bizID == r.bizID && s.bizType == r.bizType &&
		bytes.Equal(s.dedup, r.dedup)
}

// stranger refuses a task as another key's task stands in its place.
func (r *Row) stranger(id uint64, key string) error {
	return Refuse(ErrKeyCollision, "biz_id %d is that of %s and of %s: task %d of the latter has the same dedup_key, the new task is not stored",
		r.bizID, subject(r.bizID, r.bizKey), subject(r.bizID, key), id)
}

// subject names what a task is about.
func subject(bizID uint64, key string) string {
	if key == "" {
		return "number " + strconv.FormatUint(bizID, 10)
	}
	return "key " + strconv.Quote(key)
}

// existing is what an add returns that met a task with its dedup_key.
func (r *Row) existing(s *stored) (Added, error) {
	if s.bizKey != r.bizKey {
		return Added{}, r.stranger(s.id, s.bizKey)
	}
	return Added{JobID: s.id, Existing: true, Status: s.status}, nil
}
