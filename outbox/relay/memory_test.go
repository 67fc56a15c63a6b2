package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin/outbox"
)

// fillRows writes n rows of size bytes into the outbox, each with its id as biz_id.
func (s *shop) fillRows(n, size int) {
	s.TB.Helper()
	text := strings.Repeat("x", size)
	for from := 1; from <= n; from += 100 {
		var rows []string
		for id := from; id < min(from+100, n+1); id++ {
			rows = append(rows, fmt.Sprintf("(%d, 'order.close', %d, 86400000, '%s')", id, id, text))
		}
		s.Exec("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms, attribute) VALUES " + strings.Join(rows, ","))
	}
}

// polls reads until a page is not full.
func (t *turn) polls(s *shop) {
	s.TB.Helper()
	for last := -1; last != len(t.hand)+len(t.known); {
		last = len(t.hand) + len(t.known)
		for range 20 {
			if err := t.poll(s.TB.Context()); err != nil {
				s.TB.Fatal(err)
			}
			t.weigh()
		}
	}
}

func TestAPageIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fillRows(1000, 8000)
	from := s.Outbox()
	rows, err := from.List(t.Context(), 0, 1000, false)
	if err != nil {
		t.Fatal(err)
	}
	if most := outbox.PageBytes/8000 + 1; len(rows) < 100 || len(rows) > most || !outbox.Full(rows, 1000) {
		t.Errorf("%d rows of 8,000 bytes in a page, want at most %d", len(rows), most)
	}
}

func TestLanesAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const rows = 3000
	s.fillRows(rows, 8000) // 24 MB
	turn := s.turn()
	turn.polls(s)
	if turn.known[0].Last != rows {
		t.Fatalf("read %v", turn.known)
	}
	for _, l := range turn.lanes {
		if l.bytes < laneBytes || l.bytes > laneBytes+outbox.PageBytes || len(l.parked) == 0 {
			t.Errorf("a lane holds %d bytes", l.bytes)
		}
	}
	if turn.page > outbox.PageBytes/8000 {
		t.Errorf("pages of %d rows", turn.page)
	}
	if held := turn.memory.Load(); held != int64(turn.held) || held > 2*(laneBytes+outbox.PageBytes) {
		t.Errorf("holds %d bytes", held)
	}
	turn.release()
	if held := turn.memory.Load(); held != 0 {
		t.Errorf("%d bytes are held in the end", held)
	}
	s.relay(s.config())
	s.Rows(0)
	if n := s.tasksOf(); n != rows {
		t.Errorf("%d tasks, want %d", n, rows)
	}
}

// tasksOf counts all tasks.
func (s *shop) tasksOf() (n int) {
	s.TB.Helper()
	for table := range s.Config.Layout.Total() {
		n += s.Number("SELECT COUNT(*) FROM " + s.Config.Layout.Table(table))
	}
	return n
}

// Other outboxes of the process may have all the memory: each lane still goes on with a few rows.
func TestAllLanesTogetherAreBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fillRows(500, 10)
	turn := s.turn()
	turn.memory.Store(allBytes)
	turn.polls(s)
	for _, l := range turn.lanes {
		if len(l.queue) != probeRows || len(l.parked) == 0 {
			t.Errorf("a lane holds %d rows", len(l.queue))
		}
	}
	done := s.Run(func(ctx context.Context) { _ = turn.run(ctx) })
	s.Rows(0)
	done()
	if n, held := s.tasksOf(), turn.memory.Load(); n != 500 || held != allBytes {
		t.Errorf("%d tasks, %d bytes held", n, held)
	}
}

// Rows of lanes lie side by side: they are read once for all that may take them.
func TestParkedRowsOfSeveralLanesAreReadTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before uint64 // parked rows of the other lane that are not read
		joint  bool
	}{
		"side by side":                        {0, true},
		"the other lane has earlier rows too": {10, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.fillRows(200, 10)
			turn := s.turn()
			lanes := [2]*lane{{database: 0}, {database: 1}}
			turn.lanes = map[int]*lane{0: lanes[0], 1: lanes[1]}
			turn.known.addRange(outbox.Range{First: 0, Last: 200})
			lanes[0].parked.addRange(outbox.Range{First: c.before + 1, Last: 200})
			lanes[1].parked.addRange(outbox.Range{First: 1, Last: 200})
			if err := turn.refill(t.Context(), lanes[0]); err != nil {
				t.Fatal(err)
			}
			for i, l := range lanes {
				read := i == 0 || c.joint
				if (len(l.queue) > 0) != read || (len(l.parked) == 0) != read {
					t.Errorf("lane %d: %d rows in memory, %v parked", i, len(l.queue), l.parked)
				}
				if !slices.IsSortedFunc(l.queue, func(a, b outbox.Row) int { return int(a.ID) - int(b.ID) }) {
					t.Errorf("lane %d is out of order", i)
				}
			}
			if c.joint && len(lanes[0].queue)+len(lanes[1].queue) != 200 {
				t.Errorf("%d and %d rows", len(lanes[0].queue), len(lanes[1].queue))
			}
		})
	}
}

// The next rows of a lane are read while others of it are in flight.
func TestParkedRowsAreReadAhead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fillRows(100, 10)
	turn := s.turn()
	l := &lane{database: 0, flight: []outbox.Row{{Key: outbox.Key{ID: 1000}}}}
	turn.lanes[0] = l
	turn.known.addRange(outbox.Range{First: 0, Last: 100})
	l.parked.addRange(outbox.Range{First: 1, Last: 100})
	if err := turn.launch(t.Context(), t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if len(l.queue) == 0 || len(l.parked) > 0 || len(l.flight) != 1 || turn.flying != 0 {
		t.Errorf("%d rows in memory, %v parked, %d in flight", len(l.queue), l.parked, len(l.flight))
	}
}

// A lane that is away keeps nothing in memory.
func TestALaneThatIsAwayParksItsRows(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fillRows(100, 10)
	turn := s.turn()
	turn.polls(s)
	l := turn.lanes[0]
	l.flight = l.next()
	results := make([]outbox.Result, len(l.flight))
	for i := range results {
		results[i] = outbox.Result{Fate: outbox.Failed, Err: mysql.ErrInvalidConn}
	}
	turn.flying = 1
	turn.settle(landing{l, results})
	turn.weigh()
	if l.away == 0 || l.bytes != 0 || len(l.parked) != 1 || len(l.queue) != 0 {
		t.Errorf("%d bytes, %d rows in memory, parked %v", l.bytes, len(l.queue), l.parked)
	}
}
