package client

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestTimesAreRoundedUpToTheMillisecond(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("here", 8*3600)
	rapid.Check(t, func(t *rapid.T) {
		asked := time.Unix(0, rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "ns")).In(zone)
		got := At(asked).at
		if got.Before(asked) || got.Sub(asked) >= time.Millisecond || got.Nanosecond()%1e6 != 0 || got.Location() != time.UTC {
			t.Fatalf("%s became %s", asked, got)
		}
		d := time.Duration(rapid.Int64().Draw(t, "d"))
		in := In(d).in
		if in < 0 || in%time.Millisecond != 0 || d < forever && in < d || d > 0 && d < forever && in-d >= time.Millisecond {
			t.Fatalf("%d became %d", d, in)
		}
	})
}

// drawRow draws a row whose time At is before or after a whole minute, or on it, and the window of a spread.
func drawRow(t *rapid.T) (r Row, window time.Duration) {
	minute := time.Unix(60*rapid.Int64Range(-1e8, 1e9).Draw(t, "minute"), 0)
	at := minute.Add(time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 999, 59_999}).Draw(t, "ms")) * time.Millisecond)
	r = Row{id: rapid.Uint64().Draw(t, "job_id"), bizID: rapid.Uint64().Draw(t, "biz_id"), when: At(at)}
	if rapid.Bool().Draw(t, "has a key") {
		r.dedup = []byte(rapid.StringN(1, 16, MaxDedupKey).Draw(t, "key"))
	}
	return r, time.Duration(rapid.Int64Range(0, time.Hour.Milliseconds()).Draw(t, "window")) * time.Millisecond
}

func TestASpreadIsNeverEarlyAndBelowItsWindowAndTheSameForTheSameTask(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, window := drawRow(t)
		moved, asked := r.spread(window), r.when.at
		by := moved.at.Sub(asked)
		onMinute := asked.Second() == 0 && asked.Nanosecond() == 0
		if by < 0 || by > 0 && (by >= window || !onMinute) || by%time.Millisecond != 0 || !moved.set || !moved.absolute() || moved.at.Location() != time.UTC {
			t.Fatalf("%s moved by %s, window %s", asked, by, window)
		}
		after := Row{id: r.id, bizID: r.bizID, dedup: r.dedup, when: In(time.Minute)}
		if after.spread(window) != after.when {
			t.Fatal("a delay was moved")
		}
		again := r
		if r.dedup != nil { // added again it has another job_id, and perhaps another minute
			again.id, again.when = r.id+1, At(r.when.at.Add(time.Hour))
		}
		if then := again.spread(window).at.Sub(again.when.at); by != then {
			t.Fatalf("moved by %s, then by %s", by, then)
		}
	})
}

// Programs of all versions must agree on it, and nobody's times may move with an upgrade.
func TestASpreadStaysWhatItWas(t *testing.T) {
	t.Parallel()
	minute := At(time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC))
	for want, r := range map[string]Row{
		"13.73s":  {id: 1, bizID: 42, when: minute},
		"27.498s": {id: 1, bizID: 42, dedup: []byte("close"), when: minute},
	} {
		if by := r.spread(30 * time.Second).at.Sub(minute.at); by.String() != want {
			t.Errorf("%+v is moved by %s, want %s", r, by, want)
		}
	}
}

func TestASpreadIsEven(t *testing.T) {
	t.Parallel()
	const tasks, parts, window = 30_000, 30, 30 * time.Second
	minute := At(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	var maker ids.Maker
	for name, made := range map[string]func(i int) Row{
		"job_ids of one moment": func(i int) Row { return Row{id: maker.Next(ids.Epoch.Add(time.Hour), i%4), when: minute} },
		"one key, many biz_ids": func(i int) Row { return Row{bizID: uint64(i), dedup: []byte("close"), when: minute} },
		"many keys, one biz_id": func(i int) Row { return Row{bizID: 7, dedup: fmt.Append(nil, i), when: minute} },
	} {
		var count [parts]int
		for i := range tasks {
			r := made(i)
			count[r.spread(window).at.Sub(minute.at)/(window/parts)]++
		}
		for part, n := range count { // 1000 each; the standard deviation is 31
			if n < 800 || n > 1200 {
				t.Errorf("%s: %d of %d tasks are in second %d of %d", name, n, tasks, part, parts)
			}
		}
	}
}

func TestAFullSplitKeepsOrderAndBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 3000).Draw(t, "sizes")
		rows := make([]*Row, len(sizes))
		for i, n := range sizes {
			rows[i] = &Row{id: uint64(i), payload: make([]byte, n)}
		}
		const limit = 100_000
		next := 0
		for _, chunk := range split(rows, limit) {
			size := 0
			for _, r := range chunk {
				if r.id != uint64(next) {
					t.Fatalf("row %d where %d was to come", r.id, next)
				}
				next++
				size += r.size()
			}
			if len(chunk) == 0 || len(chunk) > chunkRows || size > limit && len(chunk) > 1 {
				t.Fatalf("a chunk of %d rows and %d bytes", len(chunk), size)
			}
		}
		if next != len(rows) {
			t.Fatalf("%d of %d rows", next, len(rows))
		}
	})
}

func TestAddManySaysDoubtAlsoWhereOthersAreSurelyNotStored(t *testing.T) {
	t.Parallel()
	home := &server{Server: &mysql.Server{Name: "db1"}}
	c := &Client{layout: Layout{Databases: 1, Tables: 1}, home: []*server{home}}
	doubt := (&tries{maybe: true}).failure(7, "toc_0.task_0000 on db1", errors.New("cut off"))
	err := c.missed([]Row{
		{bizID: 1, Out: Added{Err: errors.New("locked")}},
		{bizID: 2, Out: Added{JobID: 7, Err: doubt}},
		{bizID: 3, Out: Added{JobID: 8}},
	})
	want := "2 of 3 tasks are not stored: 1 in doubt on server db1 (add task 7 to toc_0.task_0000 on db1: it may or may not be stored: cut off), 1 on server db1 (locked)"
	if !errors.Is(err, ErrUnknownOutcome) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
