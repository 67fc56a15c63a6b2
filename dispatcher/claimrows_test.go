package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// sessions are a process's sessions in memory: one in each database, and every table of a rig is a database of its own.
type sessions struct {
	mu         sync.Mutex
	opened     int
	ids        map[int]string
	distrusted map[int]bool
	ended      map[string]bool // that others have ended; nothing is claimed under them
}

func newSessions() *sessions {
	return &sessions{ids: make(map[int]string), distrusted: make(map[int]bool), ended: make(map[string]bool)}
}

func (s *sessions) Session(database int) (id string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[database] == "" {
		s.opened++
		s.ids[database] = fmt.Sprintf("s%02d%09d", database, s.opened)
	}
	return s.ids[database], !s.distrusted[database]
}

func (s *sessions) Trusts(database int, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[database] == id && !s.distrusted[database]
}

func (s *sessions) distrust(database int, distrusted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.distrusted[database] = distrusted
}

// end ends the session of a database, as another process does, and returns it. The next one is opened when it is asked for.
func (s *sessions) end(database int) string {
	id, _ := s.Session(database)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[id] = true
	delete(s.ids, database)
	return id
}

func (s *sessions) exists(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id != "" && !s.ended[id]
}

// ClaimRows claims what store.ClaimRows does. A fault of the statement "commit" loses the answer of a claim that stands.
func (m *memory) ClaimRows(ctx context.Context, c store.RowsClaim) (store.ClaimedRows, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := idsOf(c.Rows, func(e duequeue.Entry) tocsin.JobID { return e.JobID })
	if len(ids) == 0 {
		return store.ClaimedRows{}, nil
	}
	m.asked = append(m.asked, c)
	if err := m.fault("claim", ids); err != nil {
		return store.ClaimedRows{}, err
	}
	got := store.ClaimedRows{Now: time.Now().UnixMilli()}
	for _, e := range c.Rows {
		table := e.JobID.Table()
		if err := m.fault("claim_table", []tocsin.JobID{e.JobID}); err != nil {
			if got.Failed == nil {
				got.Failed = make(map[int]error)
			}
			got.Failed[table] = err
			continue
		}
		switch row := m.rows[e.JobID]; {
		case row == nil || row.Status != tocsin.Pending:
		case m.fault("claim_row", []tocsin.JobID{e.JobID}) != nil, !m.mayClaim(&c, e, row):
			got.Refused = append(got.Refused, *row)
		default:
			row.Status, row.ClaimedBy = tocsin.Claimed, c.Claimer(table)
			if c.Lease != "" {
				row.ActionTime = time.Now().Add(c.Hold)
				row.Action = row.ActionTime.UnixMilli()
			}
			got.Rows = append(got.Rows, *row)
			m.claims++
		}
	}
	for _, id := range m.crowded {
		if slices.Contains(idsOfRows(got.Rows), id) {
			got.Crowded = append(got.Crowded, id)
		}
	}
	m.crowded = nil
	if err := m.fault("commit", ids); err != nil {
		return store.ClaimedRows{}, &store.Unanswered{IDs: ids, Err: err}
	}
	return got, ctx.Err()
}

// mayClaim is the condition of a claim of a pending row.
func (m *memory) mayClaim(c *store.RowsClaim, e duequeue.Entry, row *store.Row) bool {
	switch {
	case !m.exists(c.Session[e.JobID.Table()]):
	case row.Action > time.Now().Add(c.Ahead).UnixMilli():
	case !c.Special && (row.Crashes > 0 || len(row.DedupKey) > 0 && row.DedupKey[0] == 0):
	case !c.Special && c.Newest > 0 && row.PayloadVersion > c.Newest:
	case c.PerKey > 0 && m.before(row) >= c.PerKey:
	case c.Lease != "" && row.Action != e.Due:
	default:
		return true
	}
	return false
}

// exists reports whether a session has not been ended.
func (m *memory) exists(id string) bool {
	return !slices.ContainsFunc(m.sessions, func(s *sessions) bool { return !s.exists(id) })
}

// ReleaseDoubtful gives rows back by their claimers.
func (m *memory) ReleaseDoubtful(_ context.Context, _ int, by map[tocsin.JobID]string) (released int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releases++
	if err := m.fault("release", slices.Collect(maps.Keys(by))); err != nil {
		return 0, err
	}
	for id, claimer := range by {
		if row := m.rows[id]; row != nil && row.Status == tocsin.Claimed && row.ClaimedBy == claimer {
			row.Status, row.ClaimedBy = tocsin.Pending, ""
			released++
		}
	}
	return released, nil
}

// OwnClaims returns what is claimed under sessions.
func (m *memory) OwnClaims(_ context.Context, _ int, tables []int, sessions map[int]string) (map[tocsin.JobID]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := make(map[tocsin.JobID]string)
	for id, row := range m.rows {
		session := sessions[id.Table()]
		if slices.Contains(tables, id.Table()) && session != "" && row.Status == tocsin.Claimed && strings.HasPrefix(row.ClaimedBy, session) {
			own[id] = row.ClaimedBy
		}
	}
	return own, nil
}

// EndConnection says that a connection is gone once it was killed, unless "kill" has a fault.
func (m *memory) EndConnection(_ context.Context, _ int, c store.Connection) (gone bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kills++
	if err := m.fault("kill", nil); err != nil {
		return false, err
	}
	return m.kills > 1, nil
}
