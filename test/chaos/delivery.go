package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// delivery is one attempt as its process saw it.
type delivery struct {
	record
	End time.Time // zero: it never ended there, or the process was killed
	OK  bool
}

// String is for a breach's trace.
func (d delivery) String() string {
	end := "no end"
	if !d.End.IsZero() {
		end = "ended " + d.End.UTC().Format(clockForm)
		if d.OK {
			end += " well"
		}
	}
	return fmt.Sprintf("delivered %s by %s attempts %d version %d %s", d.At.UTC().Format(clockForm), d.Node, d.Attempts, d.Version, end)
}

// deliveries pairs begins and ends, by job_id, each in order of time.
func deliveries(records []record) map[tocsin.JobID][]delivery {
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Or(a.At.Compare(b.At), rank(a)-rank(b)) })
	all := map[tocsin.JobID][]delivery{}
	for _, r := range records {
		if r.Begin {
			all[r.JobID] = append(all[r.JobID], delivery{record: r})
			continue
		}
		of := all[r.JobID]
		for i := range of {
			if d := &of[i]; d.End.IsZero() && d.Node == r.Node && d.Version == r.Version && d.Attempts == r.Attempts {
				d.End, d.OK = r.At, r.OK
				break
			}
		}
	}
	return all
}

// rank puts a begin before an end of the same microsecond.
func rank(r record) int {
	if r.Begin {
		return 0
	}
	return 1
}

// seatOf is the seat's name in that of a process: n2-7 sat in n2.
func seatOf(node string) string {
	seat, _, _ := strings.Cut(node, "-")
	return seat
}

// second is a delivery of an attempt that had been delivered before.
type second struct {
	first, again delivery
	ranOut       bool // a claim of the task ran out
}

// seconds finds them: the same task, version and attempt, started again.
func seconds(of []delivery) (all []second) {
	type key struct {
		version  uint32
		attempts int
	}
	last := map[key]delivery{}
	for _, d := range of {
		k := key{d.Version, d.Attempts}
		if before, seen := last[k]; seen {
			all = append(all, second{first: before, again: d})
		}
		last[k] = d
	}
	return all
}
