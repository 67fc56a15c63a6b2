package tocsin

import (
	"strconv"

	"github.com/tocsinhq/tocsin/internal/bizkey"
)

// MaxKey is the longest business key, in bytes.
const MaxKey = 64

// KeyID returns the biz_id of a business key that is no number, 63 bits of its SHA-256. Two keys may have the same: see
// ErrKeyCollision.
func KeyID(key string) uint64 { return bizkey.ID(key) }

// checkKey is bizkey.Check as an ErrInvalid.
func checkKey(key string) error {
	if err := bizkey.Check(key); err != nil {
		return refuse(ErrInvalid, "%s", err)
	}
	return nil
}

// checkKey names the biz type in the error too.
func (b BizType[T]) checkKey(key string) error {
	if err := bizkey.Check(key); err != nil {
		return refuse(ErrInvalid, "biz type %q: %s", b.name, err)
	}
	return nil
}

// NewKey is New for a business key that is no number, "ord_01J8Z3" for instance: 1 to MaxKey bytes of UTF-8, compared as they
// are. The task's biz_id is KeyID(key), and its Info.BizKey is the key. Tasks of a key and tasks of a number
// never meet, even if their biz_ids are the same.
func (b BizType[T]) NewKey(key string, payload T, when When) NewTask {
	t := b.New(KeyID(key), payload, when)
	t.bizKey = key
	if err := b.checkKey(key); err != nil {
		t.err = err
	}
	return t
}

// BizKey returns the business key of the task; "": it has none, and its biz_id is the key.
func (t NewTask) BizKey() string { return t.bizKey }

// OfKey means all pending tasks of this biz type that act on behalf of a business key; see NewKey.
func (b BizType[T]) OfKey(key string) Ref {
	return Ref{bizType: b.name, bizID: KeyID(key), bizKey: key, err: b.checkKey(key)}
}

// stranger refuses a task as another key's task stands in its place.
func (r *row) stranger(id JobID, key string) error {
	return refuse(ErrKeyCollision, "biz_id %d is that of %s and of %s: task %s of the latter has the same dedup_key, the new task is not stored",
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
func (r *row) existing(s *stored) (Added, error) {
	if s.bizKey != r.bizKey {
		return Added{}, r.stranger(s.id, s.bizKey)
	}
	return Added{JobID: s.id, Existing: true, Status: s.status}, nil
}
