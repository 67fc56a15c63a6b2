package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/assign"
)

func TestClusterNodesNamesThePayloadsThatAreLeft(t *testing.T) {
	t.Parallel()
	old := assign.NodeState{ID: "old-1", Info: assign.NodeInfo{Types: []string{"order.ship"}, Newer: map[string]int{"order.ship": 2}}}
	other := assign.NodeState{ID: "new-1", Info: assign.NodeInfo{Types: []string{"order.ship"}, Versions: map[string]int{"order.ship": 2}}}
	for want, nodes := range map[string][]assign.NodeState{
		"note: old-1 leaves tasks of order.ship whose payload has version 2, as it reads 1 at most; no node of its group reads it: such tasks wait\n": {old},
		"note: old-1 leaves tasks of order.ship whose payload has version 2, as it reads 1 at most; others of its group do\n":                         {old, other},
	} {
		var out strings.Builder
		writeNodes(&out, nodes, time.Now())
		if !strings.Contains(out.String(), want) || strings.Count(out.String(), "note:") != 1 {
			t.Errorf("%s, want %s", out.String(), want)
		}
	}
}

func TestTablesOfADatabaseThatNoNodeReachesWait(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	writeNodes(&out, []assign.NodeState{{ID: "a-1", Misses: []int{2, 3}}, {ID: "b-1", Misses: []int{3}}}, time.Now())
	for _, line := range []string{
		"note: a-1 can't use the databases 2: their tables go to nodes that can;", "note: a-1 can't use the databases 3: no node of its group can, so their tables wait;",
		"note: b-1 can't use the databases 3: no node of its group can, so their tables wait;",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
}
