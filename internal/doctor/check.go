package doctor

import (
	"fmt"
	"strconv"
)

// Level says how bad it is.
type Level uint8

// The levels, from good to bad.
const (
	OK   Level = iota
	Warn       // slow, or will be; nothing is lost
	Fail       // a promise does not hold, or nothing works
)

var levelNames = [...]string{"ok", "warn", "fail"}

// String gives the lower-case word.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return "level " + strconv.Itoa(int(l))
}

// MarshalText gives the word, for JSON.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Check is one thing that was looked at.
type Check struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"`       // "server db1", "etcd", "config"
	Name    string `json:"check"`         // "read-only", "durability"
	Is      string `json:"is"`            // what was found
	Fix     string `json:"fix,omitempty"` // what to change; "" where Level is OK
}

// Worst gives the highest level of the checks, OK of none.
func Worst(checks []Check) Level {
	worst := OK
	for _, c := range checks {
		worst = max(worst, c.Level)
	}
	return worst
}

// Count tells how many checks have the level.
func Count(checks []Check, level Level) int {
	n := 0
	for _, c := range checks {
		if c.Level == level {
			n++
		}
	}
	return n
}

// good is a check that passed.
func good(name, format string, args ...any) Check {
	return Check{Level: OK, Name: name, Is: fmt.Sprintf(format, args...)}
}

// bad is one that did not; fix says what to change.
func bad(level Level, name, is, fix string) Check {
	return Check{Level: level, Name: name, Is: is, Fix: fix}
}
