package assign

import "time"

// When moves of tables are logged: one line for all that move together, and not many of them where servers or nodes come
// and go.
const (
	movesRest  = time.Second      // nothing has moved for so long
	movesApart = 10 * time.Second // between two lines
)

// moves counts the tables that have moved since the last line about them. The zero moves is ready.
type moves struct {
	took, gaveUp int
	last         time.Time // something moved
	told         time.Time // the last line
}

func (m *moves) add(took, gaveUp int) {
	if took+gaveUp > 0 {
		m.took, m.gaveUp, m.last = m.took+took, m.gaveUp+gaveUp, time.Now()
	}
}

// due is when to log what has moved; zero: nothing has.
func (m *moves) due() time.Time {
	if m.took+m.gaveUp == 0 {
		return time.Time{}
	}
	rest, apart := m.last.Add(movesRest), m.told.Add(movesApart)
	if apart.After(rest) {
		return apart
	}
	return rest
}

// noteMoves logs what has moved if it is due, or asks for a round when it is.
func (s *session) noteMoves() {
	switch due := s.moves.due(); {
	case due.IsZero():
	case time.Now().Before(due):
		s.wake(due)
	default:
		s.tellMoves()
	}
}

// tellMoves logs what has moved, if anything has.
func (s *session) tellMoves() {
	if s.moves.took+s.moves.gaveUp == 0 {
		return
	}
	s.log.Info().Int("took", s.moves.took).Int("gave_up", s.moves.gaveUp).Int("tables", len(s.held)).Msg("tables have moved")
	s.moves = moves{told: time.Now()}
}
