package chaos

import (
	"strings"
	"time"
)

// stableFor is how long nothing may be written before a database counts as closed: longer than the 2 s after which a node reads the
// layout rows again. A doorbell that says so earlier tells of one connection only.
const stableFor = 2500 * time.Millisecond

// closing tells which databases take no write while a fault lasts.
type closing int

const (
	open    closing = iota
	noticed         // the sick database, once the running node has noticed
	foreign         // databases of the other server, from the start
)

// untouched is the content of databases that must take no write.
type untouched struct {
	of    *database
	names []string
	was   map[string]string // checksum by table
}

// closeAtOnce records the databases that the fault closes from its start.
func (m *matrix) closeAtOnce(f fault) *untouched {
	m.t.Helper()
	if f.closed != foreign {
		return nil
	}
	m.startOther()
	if f.another {
		m.makeForeign(m.t.Context())
	}
	u := &untouched{of: m.other}
	var err error
	u.names, err = readAll[string](m.t.Context(), m.other.direct, m.other.String(), "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'chaos%'")
	m.orFail(err)
	u.was = m.contents(u)
	return u
}

// closeLater records the databases that the fault has closed by now: earlier
// statements may still end.
func (m *matrix) closeLater(f fault) *untouched {
	m.t.Helper()
	if f.closed != noticed {
		return nil
	}
	u := &untouched{of: m.databases[sickServer], names: []string{m.opts.Layout.Database(sickDatabase)}}
	m.until(noticeWithin, func() bool {
		u.was = m.contents(u)
		m.pause(stableFor)
		return len(changed(u.was, m.contents(u))) == 0
	})
	return u
}

// stayed expects unchanged content.
func (m *matrix) stayed(r *matrixRow, all ...*untouched) {
	m.t.Helper()
	for _, u := range all {
		if u == nil {
			continue
		}
		if tables := changed(u.was, m.contents(u)); len(tables) > 0 {
			r.cells[runningNode].failf("somebody wrote to %s", strings.Join(tables, ", "))
		}
	}
}

// contents returns the current checksums of all tables.
func (m *matrix) contents(u *untouched) map[string]string {
	m.t.Helper()
	all := map[string]string{}
	for _, name := range u.names {
		sums, err := u.of.sums(m.t.Context(), name)
		m.orFail(err)
		for table, sum := range sums {
			all[name+"."+table] = sum
		}
	}
	return all
}

// startOther starts the server that does not belong to the cluster.
func (m *matrix) startOther() {
	m.t.Helper()
	if m.other != nil {
		return
	}
	d, err := startDatabase(m.t.Context(), 2, m.opts.Dir, m.opts.Layout.Prefix, "", m.tls.args())
	m.orFail(err)
	m.other = d
}
