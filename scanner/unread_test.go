package scanner

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/internal/store"
)

// Whatever is noted as unread stays so until a pull has read it, and pulls come about in the order of time.
func TestWhatIsUnreadStaysSo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const tables, end = 4, 40
		l := &lane{spans: make(map[int]*span)}
		var unread [tables][end + 1]bool
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "note") {
				table, from := rapid.IntRange(0, tables-1).Draw(t, "table"), rapid.IntRange(0, end).Draw(t, "from")
				until := rapid.IntRange(from, end).Draw(t, "until")
				l.add(span{Place: store.Place{Table: table, Due: int64(from)}, until: int64(until)})
				for due := from; due <= until; due++ {
					unread[table][due] = true
				}
			} else {
				now := rapid.Int64Range(0, end).Draw(t, "now")
				taken := l.take(rapid.IntRange(1, tables).Draw(t, "n"), now)
				if len(taken) > 0 {
					l.done(taken)
				}
				for _, s := range taken { // each is read up to now
					for due := s.Due; due <= now; due++ {
						unread[s.Table][due] = false
					}
					if s.until > now {
						l.add(span{Place: store.Place{Table: s.Table, Due: now + 1}, until: s.until})
					}
				}
			}
			for table, dues := range unread {
				for due, is := range dues {
					if s := l.spans[table]; is && (s == nil || s.Due > int64(due) || s.until < int64(due)) {
						t.Fatalf("table %d at %d is forgotten: %+v", table, due, s)
					}
				}
			}
			if len(l.oldest) != len(l.spans) {
				t.Fatalf("%d in the heap, %d by table", len(l.oldest), len(l.spans))
			}
		}
	})
}

// What is much newer than a span that is being read waits for it.
func TestAPullOfWhatIsNewerWaitsForWhatIsOlder(t *testing.T) {
	l := &lane{spans: make(map[int]*span)}
	for table, due := range []int64{0, 10, 80} {
		l.add(span{Place: store.Place{Table: table, Due: due}, until: 100})
	}
	old := l.take(2, 100)
	if len(old) != 2 || l.ready(100) {
		t.Fatalf("%d taken, the newer one ready: %t", len(old), l.ready(100))
	}
	if l.done(old); !l.ready(100) {
		t.Error("nothing is older, and it is not ready")
	}
}
