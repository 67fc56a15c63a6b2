package chaos

import (
	"regexp"
	"slices"
	"strconv"
	"time"
)

// looks is when each table was peeked, in order of time, as its server logged it.
type looks map[int][]time.Time

// logPeeks has all servers note what they are asked, until the end of the test.
func (s *scenario) logPeeks() {
	s.t.Helper()
	for _, d := range s.databases {
		if err := d.exec(s.t.Context(), logSQL); err != nil {
			s.t.Fatal(err)
		}
	}
}

// peekedTable finds the table numbers in a statement that peeks.
var peekedTable = regexp.MustCompile(`/\* tocsin peek \*/\s+(\d+),`)

// peeks ends the log and reads it.
func (s *scenario) peeks() looks {
	s.t.Helper()
	all := looks{}
	for _, d := range s.databases {
		if err := d.exec(s.t.Context(), unlogSQL); err != nil {
			s.t.Fatal(err)
		}
		if err := all.read(s, d); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, at := range all {
		slices.SortFunc(at, time.Time.Compare)
	}
	return all
}

func (l looks) read(s *scenario, d *database) error {
	found, err := d.direct.QueryContext(s.t.Context(), peeksSQL)
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		var micros int64
		var text string
		if err := found.Scan(&micros, &text); err != nil {
			return err
		}
		for _, m := range peekedTable.FindAllStringSubmatch(text, -1) {
			table, _ := strconv.Atoi(m[1])
			l[table] = append(l[table], time.UnixMicro(micros))
		}
	}
	return found.Err()
}

// unpeeked gives for each of the tables how long after begin its next owner looked
// at it for the first time. Those that nobody looked at fail the test.
func (s *scenario) unpeeked(h *history, l looks, tables map[int]bool, begin time.Time) Lateness {
	s.t.Helper()
	var waits Lateness
	owned := h.tenures()
	for table := range tables {
		taken := slices.IndexFunc(owned[table], func(t tenure) bool { return t.from.After(begin) })
		if taken < 0 {
			s.t.Errorf("table %d has no new owner", table)
			continue
		}
		// The server's log and this process share a clock, but the key is seen here
		// after its owner has seen it.
		from := owned[table][taken].from.Add(-50 * time.Millisecond)
		i := slices.IndexFunc(l[table], from.Before)
		if i < 0 {
			s.t.Errorf("table %d: its new owner never looked at it", table)
			continue
		}
		waits = append(waits, l[table][i].Sub(begin))
	}
	slices.Sort(waits)
	return waits
}
