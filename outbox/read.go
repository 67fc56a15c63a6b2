package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Range is a range of ids; both ends belong to it.
type Range struct{ First, Last uint64 }

// ranges is the condition for ids in any of the ranges, which must not be empty.
func ranges(all []Range) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, r := range all {
		if i > 0 {
			b.WriteString(" OR ")
		}
		switch {
		case r.First == r.Last:
			fmt.Fprintf(&b, "id = %d", r.First)
		case r.Last == 1<<64-1:
			fmt.Fprintf(&b, "id >= %d", r.First)
		default:
			fmt.Fprintf(&b, "id BETWEEN %d AND %d", r.First, r.Last)
		}
	}
	return b.String() + ")"
}

// list is the condition for the ids of a list, which may be empty.
func list(ids []uint64) string {
	var b strings.Builder
	b.WriteString("id IN (NULL")
	for _, id := range ids {
		b.WriteString("," + strconv.FormatUint(id, 10))
	}
	return b.String() + ")"
}

// queryer is a pool or a connection.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// read reads rows in the order of their ids, up to PageBytes, and leaves out the ids in skip.
func (o *onMySQL) read(ctx context.Context, over queryer, where string, limit int, skip func(id uint64) bool) ([]Row, error) {
	begin := time.Now() // before the read: a row is at least as old
	found, err := over.QueryContext(ctx, o.render(readSQL, where), limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	var rows []Row
	var answered time.Time
	for bytes := 0; bytes < PageBytes && found.Next(); {
		if answered.IsZero() {
			answered = time.Now()
		}
		row, err := scan(found, begin, answered)
		if err != nil {
			return nil, err
		}
		if skip == nil || !skip(row.ID) {
			rows = append(rows, row)
			bytes += row.Size()
		}
	}
	return rows, found.Err()
}

func scan(found *sql.Rows, read, answered time.Time) (Row, error) {
	r := Row{Read: read, Answered: answered}
	var due, created sql.NullString
	var delay sql.Null[uint64]
	var age int64
	err := found.Scan(&r.ID, &r.Op, &r.BizType, &r.BizID, &due, &delay, &r.Dedup, &r.Headers, &r.BizKey, &r.Payload,
		&created, &age, &r.Attempts, &r.LastError)
	if err != nil {
		return r, err
	}
	r.Place()
	r.Age = time.Duration(age) * time.Microsecond
	if delay.Valid {
		d := time.Duration(min(delay.V, maxDelay)) * time.Millisecond
		r.Delay = &d
	}
	if due.Valid {
		if r.Due, err = time.Parse(timeForm, due.String); err != nil { // 0000-00-00, say
			r.Due = time.Time{}
		}
	}
	r.Created, err = parse(created.String)
	return r, err
}

// maxDelay is more than any task may be ahead, in milliseconds.
const maxDelay = 100 * 365 * 24 * 3600 * 1000

// timeForm is a time as text, with as many digits of the second as there are.
const timeForm = "2006-01-02 15:04:05.999999"
