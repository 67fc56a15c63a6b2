package layoutrow

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// A mark is a time in the life of a database, in Unix milliseconds. Nodes and sweepers raise the mark in the layout row
// of each database, and then keep it in the other databases, in etcd and in memory. So no mark that is kept is above that
// of its database, unless the database was replaced by an older copy of itself:
//
//	layout row, mark 02:00   <-- restored from a dump
//	kept elsewhere   14:30   --> the copy lacks what happened since 02:00: it is refused
//
// A mark only grows, whatever the clocks do.
const (
	MarkEvery = 10 * time.Second // how often a mark is raised, and by how much at least
	// Tolerated is how far a mark may lag: a fail-over to a replica, or a crash of a server that does not flush each commit,
	// may lose some seconds. Their tasks are delivered again.
	Tolerated = time.Minute
	// ripe is how long a mark in a layout row waits before it counts, if it is more than Tolerated above the one that
	// counts: so long a replica has to get it. While marks are raised none waits. After a time without any, the first
	// mark is ahead of every healthy replica by that whole time.
	ripe = 30 * time.Second
)

// Marks are the highest marks known of databases. Marks of different identities are kept apart. The zero value is empty.
// It is safe for concurrent use.
type Marks struct {
	mu      sync.Mutex
	by      map[marked]int64   // those that count
	waiting map[marked]waiting // at most one a database
}

// waiting is a mark that does not count yet.
type waiting struct {
	mark  int64
	since time.Time
}

type marked struct {
	identity string
	database int
}

// Note keeps a mark that was kept elsewhere, if it is higher than the one that is known. It counts at once. Without an
// identity it keeps nothing: databases without one can't be told from those of another cluster.
func (m *Marks) Note(identity string, database int, mark int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(marked{identity, database}, mark)
}

func (m *Marks) count(of marked, mark int64) {
	if of.identity == "" || mark == 0 {
		return
	}
	if m.by == nil {
		m.by = make(map[marked]int64)
	}
	m.by[of] = max(mark, m.by[of])
}

// see keeps the mark of a layout row. A leap waits until it was first seen, or by this machine's clock was made, long
// enough ago, and the database still has it. While one waits, it stands for those that follow it, and it is dropped if the
// database goes back behind it. Time alone lets none count: a fail-over to a healthy replica may take longer.
func (m *Marks) see(of marked, mark int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w, one := m.waiting[of]; one && (mark < w.mark || time.Since(w.since) >= ripe) {
		if mark >= w.mark {
			m.count(of, w.mark)
		}
		delete(m.waiting, of)
	}
	if !Lags(m.by[of], mark) || time.Since(time.UnixMilli(mark)) >= ripe {
		m.count(of, mark)
		return
	}
	if _, one := m.waiting[of]; one {
		return
	}
	if m.waiting == nil {
		m.waiting = make(map[marked]waiting)
	}
	m.waiting[of] = waiting{mark, time.Now()}
}

// Of returns the highest marks that count of the databases with an identity, by number.
func (m *Marks) Of(identity string) map[int]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make(map[int]int64)
	for of, mark := range m.by {
		if of.identity == identity {
			found[of.database] = mark
		}
	}
	return found
}

// Known are the marks that counted at one moment.
type Known map[marked]int64

// Known returns the marks that count now. Take them before a layout row is read that is compared with them: a mark
// which is raised and noted after the row was read would make the row look older than it was.
func (m *Marks) Known() Known {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.by)
}

// Refuse returns why a database is an older copy of itself; "" if it is none. where is "toc_0 on db1".
func (k Known) Refuse(r Row, where string) string {
	known := k[marked{r.Identity, r.Asked}]
	if !Lags(r.Mark, known) {
		return ""
	}
	if r.Mark == 0 {
		return fmt.Sprintf("%s was made anew or is an older copy: it has no mark, and what is known of it ends at %s: run `tocsin ddl restore-check`",
			where, markText(known))
	}
	return fmt.Sprintf("%s is an older copy: it ends at %s, and what is known of it %s later, at %s: run `tocsin ddl restore-check`",
		where, markText(r.Mark), Between(r.Mark, known), markText(known))
}

// Compare adds the databases that are older copies of themselves to the problems that Judge found, and keeps the marks of
// those without a problem. known was taken before the rows were read.
func (m *Marks) Compare(known Known, rows map[int]Row, problems map[int]Problem, where func(database int) string) {
	for database, row := range rows {
		problem, wrong := problems[database]
		if wrong && !problem.Older {
			continue
		}
		if why := known.Refuse(row, where(database)); why != "" {
			problems[database] = Problem{Why: why, Differs: true, Older: true}
		} else if !wrong {
			m.see(marked{row.Identity, database}, row.Mark)
		}
	}
}

// Lags reports whether a mark shows an older copy, if another one is known.
func Lags(mark, known int64) bool { return known-mark > Tolerated.Milliseconds() }

// Between is the time between two marks, in whole seconds.
func Between(mark, known int64) time.Duration {
	return (time.Duration(known-mark) * time.Millisecond).Round(time.Second)
}

// markText is a mark for people.
func markText(mark int64) string { return time.UnixMilli(mark).UTC().Format("2006-01-02 15:04:05 UTC") }
