package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
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

// tallies sums up the counts of a group's biz types, by table number. Tasks of a paused type count, but none of them is
// overdue. now is the clock of the server that holds the tables, in Unix ms.
func tallies(counts []store.Count, now int64, types map[uint64]biztype.Policy, group string) map[int]Tally {
	all := make(map[int]Tally)
	for _, c := range counts {
		p, known := types[c.Type]
		if !known || p.Group != group {
			continue
		}
		sum := Tally{Pending: c.Pending, Claimed: c.Claimed, Dead: c.Dead}
		if !p.Paused && c.Oldest != 0 {
			sum.Overdue = (time.Duration(max(now-c.Oldest, 0)) * time.Millisecond).Seconds()
		}
		t := all[c.Table]
		t.Add(sum)
		all[c.Table] = t
	}
	return all
}

// Share is what one node owns.
type Share struct {
	Node   string   `json:"node"` // its id; "": nobody owns these
	Tables int      `json:"tables"`
	Ranges []string `json:"ranges"` // table numbers, see Ranges
	Tally
}

// shares divides all tables by their owner, "" is nobody, ordered by node with nobody last. tallies may lack tables.
func shares(owners []string, tallies map[int]Tally) []Share {
	tables := make(map[string][]int)
	waiting := make(map[string]Tally)
	for table, owner := range owners {
		tables[owner] = append(tables[owner], table)
		sum := waiting[owner]
		sum.Add(tallies[table])
		waiting[owner] = sum
	}
	all := make([]Share, 0, len(tables))
	for _, node := range slices.SortedFunc(maps.Keys(tables), nobodyLast) {
		all = append(all, Share{Node: node, Tables: len(tables[node]), Ranges: Ranges(tables[node]), Tally: waiting[node]})
	}
	return all
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
