package store

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
)

// statement is a text of this package, cut at its {slots} once, so that rendering is
// copying. Its name, as in metrics and in the server's process list, is the
// word behind "tocsin" in its comment.
type statement struct {
	name  string
	texts []string // one more than slots
	slots []string
}

// filler appends what stands in a slot.
type filler func(b []byte, slot string) []byte

// prepare cuts a text at its slots and takes out the line breaks.
func prepare(text string) statement {
	text = strings.Join(strings.Fields(text), " ")
	_, rest, _ := strings.Cut(text, "/* tocsin ")
	name, _, _ := strings.Cut(rest, " */")
	st := statement{name: name}
	for {
		before, after, found := strings.Cut(text, "{")
		st.texts = append(st.texts, before)
		if !found {
			return st
		}
		slot, rest, _ := strings.Cut(after, "}")
		st.slots = append(st.slots, slot)
		text = rest
	}
}

// render appends the text to b.
func (st statement) render(b []byte, fill filler) []byte {
	for i, slot := range st.slots {
		b = append(b, st.texts[i]...)
		b = fill(b, slot)
	}
	return append(b, st.texts[len(st.slots)]...)
}

// slots are what stands in the slots of a statement, by name. Texts are SQL; what users have written is an argument instead.
type slots map[string]any

// instant is a time as Unix ms: a literal in a statement, and read from a column of a row.
type instant int64

// Scan reads a DATETIME.
func (i *instant) Scan(column any) error {
	at, ok := column.(time.Time)
	if !ok {
		return fmt.Errorf("%T is no time", column)
	}
	*i = instant(at.UnixMilli())
	return nil
}

// micros is a duration that a column of a row gives in microseconds.
type micros time.Duration

// Scan reads a number.
func (m *micros) Scan(column any) error {
	var n sql.NullInt64
	err := n.Scan(column)
	*m = micros(n.Int64) * micros(time.Microsecond)
	return err
}

// fill appends the value of a slot.
func (in slots) fill(b []byte, slot string) []byte {
	switch value := in[slot].(type) {
	case string:
		return append(b, value...)
	case []byte:
		return append(b, value...)
	case int:
		return appendInt(b, value)
	case int64:
		return strconv.AppendInt(b, value, 10)
	case uint32:
		return strconv.AppendUint(b, uint64(value), 10)
	case uint64:
		return strconv.AppendUint(b, value, 10)
	case tocsin.JobID:
		return strconv.AppendUint(b, uint64(value), 10)
	case tocsin.Status:
		return strconv.AppendUint(b, uint64(value), 10)
	case instant:
		return appendTime(b, int64(value))
	case []int:
		return appendList(b, value)
	case []uint64:
		return appendList(b, value)
	case []tocsin.JobID:
		return appendList(b, value)
	}
	panic("store: nothing stands in the slot " + slot)
}

// ofDatabase fills a statement about one database.
func (s *Store) ofDatabase(database int, in slots) filler {
	return func(b []byte, slot string) []byte {
		switch slot {
		case "database":
			return append(b, s.layout.Database(database)...)
		case "database_no":
			return appendInt(b, database)
		}
		return in.fill(b, slot)
	}
}

// ofTable fills a statement about one table. A list by table number, or a function of it, gives what stands there for the table.
func (s *Store) ofTable(table int, in slots) filler {
	database := s.ofDatabase(s.layout.DatabaseOf(table), in)
	return func(b []byte, slot string) []byte {
		switch slot {
		case "table":
			return append(b, s.names[table]...)
		case "table_no":
			return appendInt(b, table)
		}
		switch by := in[slot].(type) {
		case map[int][]uint64:
			return appendList(b, by[table])
		case map[int][]tocsin.JobID:
			return appendList(b, by[table])
		case func(table int) []byte:
			return append(b, by(table)...)
		}
		return database(b, slot)
	}
}

// The instants that a DATETIME(3) of ours may hold.
const (
	minMilli = 0               // 1970-01-01
	maxMilli = 253402300799999 // 9999-12-31 23:59:59.999
)

// appendTime appends a literal of the instant, in UTC with milliseconds; one
// beyond what the column holds is moved to the nearest it does.
func appendTime(b []byte, milli int64) []byte {
	return append(appendInstant(append(b, "TIMESTAMP'"...), milli), '\'')
}

// appendInstant is appendTime for an argument of a prepared statement.
func appendInstant(b []byte, milli int64) []byte {
	milli = min(max(milli, minMilli), maxMilli)
	return time.UnixMilli(milli).UTC().AppendFormat(b, "2006-01-02 15:04:05.000")
}

// appendList appends the numbers, separated by commas, or 0, which is none, if there are none: an empty list is no SQL.
func appendList[N ~uint64 | ~int](b []byte, numbers []N) []byte {
	if len(numbers) == 0 {
		return append(b, '0')
	}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	return b
}

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }

// roundUp gives the milliseconds that d lasts, a started one counting whole: a
// deadline must never come earlier than promised.
func roundUp(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// cut makes s fit last_error.
func cut(s string) string { return name.Text(s, tocsin.MaxError) }
