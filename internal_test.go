package tocsin

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestJobIDsOfOneProcessNeverRepeatAndGrow(t *testing.T) {
	t.Parallel()
	var g jobIDs
	now := time.Now()
	const makers, each = 8, 5000
	made := make([][]JobID, makers)
	var group sync.WaitGroup
	for m := range makers {
		group.Go(func() {
			for range each {
				made[m] = append(made[m], g.next(now, m))
			}
		})
	}
	group.Wait()
	seen := map[JobID]bool{}
	for m, ids := range made {
		for i, id := range ids {
			if seen[id] || id.Table() != m || i > 0 && id <= ids[i-1] {
				t.Fatalf("id %d of maker %d: table %d, seen %t", id, m, id.Table(), seen[id])
			}
			seen[id] = true
		}
	}
}

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

func TestAFullSplitKeepsOrderAndBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 3000).Draw(t, "sizes")
		rows := make([]*row, len(sizes))
		for i, n := range sizes {
			rows[i] = &row{id: JobID(i), payload: make([]byte, n)}
		}
		const limit = 100_000
		next := 0
		for _, chunk := range split(rows, limit) {
			size := 0
			for _, r := range chunk {
				if r.id != JobID(next) {
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

func TestPayloads(t *testing.T) {
	t.Parallel()
	type name string
	type point struct{ X, Y int }
	for what, c := range map[string]struct{ got, want string }{
		"a string goes as it is":             {Define[string]("a").New(1, `say "hi"`, In(0)).payload, `say "hi"`},
		"and so does a named one":            {Define[name]("a").New(1, "ü", In(0)).payload, "ü"},
		"a struct goes as JSON":              {Define[point]("a").New(1, point{1, 2}, In(0)).payload, `{"X":1,"Y":2}`},
		"JSON for people, not for browsers":  {Define[[]string]("a").New(1, []string{"a<b&c"}, In(0)).payload, `["a<b&c"]`},
		"a nil pointer is null":              {Define[*point]("a").New(1, nil, In(0)).payload, "null"},
		"what does not marshal has no bytes": {Define[float64]("a").New(1, math.NaN(), In(0)).payload, ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
}

func TestDecodeGivesThePayloadBack(t *testing.T) {
	t.Parallel()
	type name string
	named, err := Define[name]("a").Decode(Info{JobID: 5, Payload: "ü"})
	if err != nil || named.Payload != "ü" || named.JobID != 5 {
		t.Errorf("got %+v, %v", named, err)
	}
	list, err := Define[[]int]("a").Decode(Info{Payload: "[1,2]"})
	if err != nil || len(list.Payload) != 2 {
		t.Errorf("got %+v, %v", list, err)
	}
	_, err = Define[[]int]("a").Decode(Info{JobID: 5, Payload: "hello"})
	if err == nil || !strings.Contains(err.Error(), "payload of task 5 is not a []int") {
		t.Errorf("got %v", err)
	}
}

func TestAddManySaysDoubtAlsoWhereOthersAreSurelyNotStored(t *testing.T) {
	t.Parallel()
	home := &server{Server: &mysql.Server{Name: "db1"}}
	c := &Client{layout: Layout{Databases: 1, Tables: 1}, home: []*server{home}}
	text := Define[string]("a")
	tasks := []NewTask{text.New(1, "", In(0)), text.New(2, "", In(0)), text.New(3, "", In(0))}
	doubt := (&tries{maybe: true}).failure(7, "toc_0.task_0000 on db1", errors.New("cut off"))
	err := c.missed(tasks, []Added{{Err: errors.New("locked")}, {JobID: 7, Err: doubt}, {JobID: 8}})
	want := "2 of 3 tasks are not stored: 1 in doubt on server db1 (add task 7 to toc_0.task_0000 on db1: it may or may not be stored: cut off), 1 on server db1 (locked)"
	if !errors.Is(err, ErrUnknownOutcome) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
