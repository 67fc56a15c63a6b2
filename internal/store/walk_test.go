package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// numbered returns the numbers of the first n tables.
func numbered(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestServersWorkAtTheSameTime(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	all.Add(3)
	seen := make([]bool, 3)
	EachServer(3, func(server int) {
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
	var seen, chunks []int
	err := Walk(t.Context(), numbered(150), func(tables []int) error {
		seen, chunks = append(seen, tables...), append(chunks, len(tables))
		return nil
	})
	if err != nil || !slices.Equal(seen, numbered(150)) || !slices.Equal(chunks, []int{64, 64, 22}) {
		t.Errorf("%v; saw %d tables in %v", err, len(seen), chunks)
	}
}

func TestAWalkEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	away := errors.New("the server is away")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		look func() error
		want error
	}{
		"of a look":      {t.Context(), func() error { return away }, away},
		"of its context": {ctx, func() error { cancel(); return nil }, context.Canceled},
	} {
		looks := 0
		err := Walk(c.ctx, numbered(70), func([]int) error { looks++; return c.look() })
		if !errors.Is(err, c.want) || looks != 1 {
			t.Errorf("%s: %v after %d looks, want %v after one", name, err, looks, c.want)
		}
	}
}

func TestACursorBeginsTablesInChunks(t *testing.T) {
	t.Parallel()
	cursor := Over(numbered(70))
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
