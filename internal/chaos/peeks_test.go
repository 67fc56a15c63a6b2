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
// at it for the first time, and how long after its last owner's key had gone. Those
// that nobody looked at fail the test.
func (s *scenario) unpeeked(h *history, l looks, tables map[int]bool, begin time.Time) (waits, gaps Lateness) {
	s.t.Helper()
	owned := h.tenures()
	for table := range tables {
		taken := slices.IndexFunc(owned[table], func(t tenure) bool { return t.from.After(begin) })
		if taken < 0 {
			s.t.Errorf("table %d has no new owner", table)
			continue
		}
		from, freed := owned[table][taken].seenBy(owned[table][:taken])
		i := slices.IndexFunc(l[table], from.Before)
		if i < 0 {
			s.t.Errorf("table %d: its new owner never looked at it", table)
			continue
		}
		waits, gaps = append(waits, l[table][i].Sub(begin)), append(gaps, max(l[table][i].Sub(freed), 0))
	}
	slices.Sort(waits)
	slices.Sort(gaps)
	return waits, gaps
}

// seenBy gives from when on a look at the table is its owner's, and when the last
// one's key had gone. The servers' logs and this process share a clock, but the key is
// seen here after its owner has seen it; that the last one's had gone was seen before,
// and who had it had ceased to look by then.
func (t tenure) seenBy(before []tenure) (from, freed time.Time) {
	from, freed = t.from.Add(-50*time.Millisecond), t.from
	if len(before) == 0 {
		return from, freed
	}
	if freed = before[len(before)-1].to; freed.After(from) && freed.Before(t.from) {
		from = freed
	}
	return from, freed
}
