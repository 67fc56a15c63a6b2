package tablewalk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func measured(context.Context, int) (store.Offset, error) { return store.Offset{}, nil }

func TestServersWorkAtTheSameTime(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	all.Add(3)
	seen := make([]bool, 3)
	Servers(3, func(server int) {
		all.Done()
		all.Wait() // waits for the other two
		seen[server] = true
	})
	if slices.Contains(seen, false) {
		t.Errorf("worked on %v", seen)
	}
}

func TestAWalkSeesEachTableOnce(t *testing.T) {
	t.Parallel()
	var seen, told []int
	walk := Walk{Server: 1, Tables: numbers(150), Measure: measured, Progress: func(server, tables int) { told = append(told, server, tables) }}
	err := walk.Run(t.Context(), func(tables []int) error {
		seen = append(seen, tables...)
		return nil
	})
	if err != nil || !slices.Equal(seen, walk.Tables) || fmt.Sprint(told) != "[1 64 1 64 1 22]" {
		t.Errorf("%v; saw %d tables, progress %v", err, len(seen), told)
	}
}

func TestAWalkEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	away := errors.New("the server is away")
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		walk  Walk
		look  func([]int) error
		want  error
		looks int
	}{
		"of the clock": {Walk{Tables: numbers(70), Measure: func(context.Context, int) (store.Offset, error) { return store.Offset{}, away }},
			func([]int) error { return nil }, away, 0},
		"of a look":      {Walk{Tables: numbers(70), Measure: measured}, func([]int) error { return away }, away, 1},
		"of its context": {Walk{Tables: numbers(70), Measure: measured}, func([]int) error { cancel(); return nil }, context.Canceled, 1},
	} {
		looks := 0
		err := c.walk.Run(ctx, func(tables []int) error { looks++; return c.look(tables) })
		if !errors.Is(err, c.want) || looks != c.looks {
			t.Errorf("%s: %v after %d looks, want %v after %d", name, err, looks, c.want, c.looks)
		}
		ctx, cancel = context.WithCancel(t.Context())
	}
	cancel()
}

func TestACursorBeginsTablesInChunks(t *testing.T) {
	t.Parallel()
	cursor := Over(numbers(70))
	first, _ := cursor.Next()
	cursor.More(3, duequeue.Entry{JobID: 9})
	fork := cursor.Fork()
	if len(first.Tables) != Together || cursor.Left() != 7 {
		t.Errorf("began %d tables, %d left", len(first.Tables), cursor.Left())
	}
	for range cursor.Steps() {
	}
	if cursor.Left() != 0 || fork.Left() != 7 {
		t.Errorf("%d left, and %d of the fork", cursor.Left(), fork.Left())
	}
	again, _ := fork.Next()
	rest, _ := fork.Next()
	if fork.Back(rest); fork.Left() != 6 {
		t.Errorf("%d left of the fork after a step back", fork.Left())
	}
	rest, _ = fork.Next()
	if fmt.Sprint(again.Tables, again.After.JobID) != "[3] 9" || fmt.Sprint(rest.Tables) != "[64 65 66 67 68 69]" {
		t.Errorf("the fork gives %v and %v", again, rest)
	}
}

func TestACursorReadsTablesTogetherAndThenEachFullOneAlone(t *testing.T) {
	t.Parallel()
	const page = 2
	rows := map[int]int{1: 0, 2: 1, 3: 2, 4: 5} // by table
	read := map[int]int{}
	cursor, steps := Over([]int{1, 2, 3, 4}), ""
	for step := range cursor.Steps() {
		steps += fmt.Sprint(step.Tables, step.Alone(), " ")
		for _, table := range step.Tables {
			n := min(page, rows[table]-int(step.After.JobID))
			read[table] += n
			if n == page {
				cursor.More(table, duequeue.Entry{JobID: step.After.JobID + tocsin.JobID(n)})
			}
		}
	}
	if want := "[1 2 3 4] false [3] true [4] true [4] true "; steps != want {
		t.Errorf("steps %s, want %s", steps, want)
	}
	for table, n := range rows {
		if read[table] != n {
			t.Errorf("read %d rows of table %d, want %d", read[table], table, n)
		}
	}
	if _, more := Over(nil).Next(); more {
		t.Error("there is a step without a table")
	}
}

func TestErrorsOfOneDatabaseAreSaidOnce(t *testing.T) {
	t.Parallel()
	wrong, other := errors.New("toc_1 is of another cluster"), errors.New("table 7 is locked")
	got := Join(nil, wrong, other, fmt.Errorf("%w", wrong), wrong)
	if want := "toc_1 is of another cluster\ntable 7 is locked"; got == nil || got.Error() != want || !errors.Is(got, wrong) || !errors.Is(got, other) {
		t.Errorf("joined %q, want %q", got, want)
	}
	if Join(nil, nil) != nil {
		t.Error("no error is joined to one")
	}
}
