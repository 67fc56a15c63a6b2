package assign

import "time"

// Moves of tables are logged in one line for all that move together, and in few lines while servers or nodes come and
// go.
const (
	movesRest  = time.Second      // without a move, before the line
	movesApart = 10 * time.Second // between two lines
)

// moves counts the tables that have moved since the last line about them. The zero moves is ready.
type moves struct {
	took, gaveUp int
	last         time.Time // of the last move
	told         time.Time // of the last line
}

func (m *moves) add(took, gaveUp int) {
	if took+gaveUp > 0 {
		m.took, m.gaveUp, m.last = m.took+took, m.gaveUp+gaveUp, time.Now()
	}
}

// due returns when to log the moves; the zero time if nothing has moved.
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

// noteMoves logs the moves if that is due, or else requests a round for when it is.
func (s *session) noteMoves() {
	switch due := s.moves.due(); {
	case due.IsZero():
	case time.Now().Before(due):
		s.wake(due)
	default:
		s.tellMoves()
	}
}

// tellMoves logs the moves, if there are any.
func (s *session) tellMoves() {
	if s.moves.took+s.moves.gaveUp == 0 {
		return
	}
	s.metrics.rebalances.Inc()
	s.log.Info("tables have moved", "took", s.moves.took, "gave_up", s.moves.gaveUp, "tables", len(s.held))
	s.moves = moves{told: time.Now()}
}
