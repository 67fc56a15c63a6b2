package store

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin"
)

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

// appendList appends the numbers, separated by commas.
func appendList[N ~uint64 | ~int](b []byte, numbers []N) []byte {
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

// cut makes s fit last_error: valid UTF-8, at most MaxError characters.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if utf8.RuneCountInString(s) <= tocsin.MaxError {
		return s
	}
	runes := 0
	for i := range s {
		if runes == tocsin.MaxError {
			return s[:i]
		}
		runes++
	}
	return s
}
