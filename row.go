package tocsin

import (
	"bytes"
	"context"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin/internal/payloadmark"
	"github.com/tocsinhq/tocsin/internal/runkey"
)

// row is a task that is ready to be stored.
type row struct {
	id      JobID
	table   int
	bizID   uint64
	bizKey  string // "": bizID is the key
	bizType uint64
	when    When
	dedup   []byte // nil: none
	payload []byte // never nil
	headers []byte // nil: none
	unique  uniqueness
	out     *Added  // of AddMany: where its fate goes
	origin  *origin // of Move: the row of the outbox; nil of others
}

// row validates a task and gives it a place, a number for its biz type and an id.
func (c *Client) row(ctx context.Context, t NewTask) (row, error) {
	now := time.Now()
	if err := t.valid(now); err != nil {
		return row{}, err
	}
	number, err := c.types.number(ctx, t.bizType)
	if err != nil {
		return row{}, err
	}
	table := c.layout.TableOf(t.bizID)
	r := row{
		id:      c.ids.next(now, table),
		table:   table,
		bizID:   t.bizID,
		bizKey:  t.bizKey,
		unique:  t.unique,
		bizType: number,
		when:    t.when,
		payload: []byte(t.payload),
	}
	if t.dedup != "" {
		r.dedup = []byte(t.dedup)
	}
	r.when = r.spread(c.inserts[t.bizType].Spread)
	if t.headers == nil && t.version < payloadmark.First {
		return r, nil
	}
	headers, err := t.storedHeaders()
	if headers != "" {
		r.headers = []byte(headers)
	}
	return r, err
}

// valid says what is wrong with the task, but for its biz type's name.
func (t NewTask) valid(now time.Time) error {
	if err := t.when.valid(now); err != nil {
		return err
	}
	if err := t.unique.valid(t.dedup); err != nil {
		return err
	}
	switch {
	case t.err != nil:
		return t.err
	case t.bizID == 0:
		return refuse(ErrInvalid, "biz type %q: biz_id is 0", t.bizType)
	case len(t.dedup) > MaxDedupKey:
		return refuse(ErrInvalid, "dedup_key has %d bytes: at most %d", len(t.dedup), MaxDedupKey)
	case runkey.Reserved(t.dedup):
		return refuse(ErrInvalid, "dedup_key begins with a zero byte: such keys are reserved for runs of schedules")
	case !utf8.ValidString(t.payload):
		return refuse(ErrInvalid, "payload is not UTF-8")
	case utf8.RuneCountInString(t.payload) > MaxPayload:
		return refuse(ErrInvalid, "payload has %d characters: at most %d", utf8.RuneCountInString(t.payload), MaxPayload)
	}
	return nil
}

// stored reports whether an AddMany has stored the row, or found that it was.
func (r *row) stored() bool { return r.out.JobID != 0 && r.out.Err == nil }

// addArgs are the parameters of an add; those of its times and others follow.
func (r *row) addArgs(others ...any) []any {
	args := append(make([]any, 0, 16), uint64(r.id), r.bizID, r.bizType, nullable(r.dedup), r.payload, nullable(r.headers), []byte(r.bizKey))
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
	id      JobID
	bizID   uint64
	bizType uint64
	status  Status
	dedup   []byte
	payload []byte
	headers []byte
	bizKey  string
	strict  bool // of holder: claimed, and its biz type is strict
}

// made reports whether s is r as this client wrote it. A cancel, or an add with a unique
// key, may have taken the dedup_key away.
func (r *row) made(s *stored) bool {
	return s.id == r.id && s.bizID == r.bizID && s.bizType == r.bizType &&
		bytes.Equal(s.payload, r.payload) && bytes.Equal(s.headers, r.headers) && s.bizKey == r.bizKey &&
		(s.dedup == nil || bytes.Equal(s.dedup, r.dedup))
}

// sameKey reports whether s holds r's dedup_key. It may be another business key's.
func (r *row) sameKey(s *stored) bool {
	return r.dedup != nil && s.dedup != nil && s.bizID == r.bizID && s.bizType == r.bizType &&
		bytes.Equal(s.dedup, r.dedup)
}
