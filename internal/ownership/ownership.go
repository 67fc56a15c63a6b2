// Package ownership is the authority for how it is told, in short, who owns which tables and what waits in them: an
// operator does not read 8192 lines.
//
//	owner of each table (etcd) --+
//	                             +--> Shares: node, tables "0-511 517", pending, overdue
//	counts of each table (MySQL)-+
//
// It is pure arithmetic over what others have read. Tables that nobody owns are a share of their own, without a node;
// tables whose counts are not known count as empty, so the caller says which server did not answer.
package ownership

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/store"
)

// Tally is what waits in some tables.
type Tally struct {
	Pending int     `json:"pending"`
	Claimed int     `json:"claimed"`
	Dead    int     `json:"dead"`
	Overdue float64 `json:"oldest_overdue_seconds"` // of the oldest pending task whose type is not paused; 0: none is overdue
}

// Add adds another tally to t.
func (t *Tally) Add(other Tally) {
	t.Pending += other.Pending
	t.Claimed += other.Claimed
	t.Dead += other.Dead
	t.Overdue = max(t.Overdue, other.Overdue)
}

// Part is how the tasks of a biz type count in a tally.
type Part uint8

// The parts.
const (
	Not    Part = iota // the type is of another group
	Waits              // the type is paused: its tasks count, but none of them is overdue
	Counts             // the tasks count
)

// Tallies sums up the counts of the biz types according to their part, by table number. now is the clock of the server
// that holds the tables, in Unix ms.
func Tallies(counts []store.Count, now int64, part func(bizType uint64) Part) map[int]Tally {
	tallies := make(map[int]Tally)
	for _, c := range counts {
		sum := Tally{Pending: c.Pending, Claimed: c.Claimed, Dead: c.Dead}
		switch part(c.Type) {
		case Not:
			continue
		case Counts:
			sum.Overdue = overdue(c, now)
		}
		t := tallies[c.Table]
		t.Add(sum)
		tallies[c.Table] = t
	}
	return tallies
}

func overdue(c store.Count, now int64) float64 {
	if c.Oldest == 0 {
		return 0
	}
	return (time.Duration(max(now-c.Oldest, 0)) * time.Millisecond).Seconds()
}

// Share is what one node owns.
type Share struct {
	Node   string   `json:"node"` // its id; "": nobody owns these
	Tables int      `json:"tables"`
	Ranges []string `json:"ranges"` // table numbers, see Ranges
	Tally
}

// Shares divides all tables by their owner, "" is nobody, ordered by node with nobody last. tallies may lack tables.
func Shares(owners []string, tallies map[int]Tally) []Share {
	tables := make(map[string][]int)
	waiting := make(map[string]Tally)
	for table, owner := range owners {
		tables[owner] = append(tables[owner], table)
		sum := waiting[owner]
		sum.Add(tallies[table])
		waiting[owner] = sum
	}
	shares := make([]Share, 0, len(tables))
	for _, node := range slices.SortedFunc(maps.Keys(tables), nobodyLast) {
		shares = append(shares, Share{Node: node, Tables: len(tables[node]), Ranges: Ranges(tables[node]), Tally: waiting[node]})
	}
	return shares
}

func nobodyLast(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	return cmp.Compare(a, b)
}

// Ranges writes ascending numbers in short: "0-511", "517".
func Ranges(numbers []int) []string {
	ranges := []string{}
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		text := strconv.Itoa(numbers[i])
		if end > i {
			text += "-" + strconv.Itoa(numbers[end])
		}
		ranges = append(ranges, text)
		i = end + 1
	}
	return ranges
}
