package chaos

import (
	"regexp"
	"slices"
	"strconv"
	"time"
)

// The log of a server.
const (
	// logSQL has a server note every statement that it gets; unlogSQL ends that.
	logSQL   = `SET GLOBAL log_output = 'TABLE', general_log = 1`
	unlogSQL = `SET GLOBAL general_log = 0`

	// peeksSQL reads the peeks that were noted, with their times in microseconds.
	peeksSQL = `SELECT /* tocsin chaos */
    CAST(UNIX_TIMESTAMP(event_time) * 1000000 AS UNSIGNED) AS micros,
    argument
FROM mysql.general_log
WHERE argument LIKE '(SELECT /* tocsin peek */%'`
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

// peeksWithin bounds the wait for a new owner's first look at a table that it has.
const peeksWithin = time.Minute

// peeks reads the log when each of the tables has been looked at by its owner after begin, and ends it.
func (s *scenario) peeks(h *history, tables map[int]bool, begin time.Time) looks {
	s.t.Helper()
	all := s.looks()
	for end := time.Now().Add(peeksWithin); time.Now().Before(end) && !all.have(h, tables, begin); all = s.looks() {
		s.pause(500 * time.Millisecond)
	}
	for _, d := range s.databases {
		if err := d.exec(s.t.Context(), unlogSQL); err != nil {
			s.t.Fatal(err)
		}
	}
	return all
}

// looks reads the log.
func (s *scenario) looks() looks {
	s.t.Helper()
	all := looks{}
	for _, d := range s.databases {
		found, err := readAll[struct {
			Micros   int64
			Argument string
		}](s.t.Context(), d.direct, d.String(), peeksSQL)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, is := range found {
			for _, m := range peekedTable.FindAllStringSubmatch(is.Argument, -1) {
				table, _ := strconv.Atoi(m[1])
				all[table] = append(all[table], time.UnixMicro(is.Micros))
			}
		}
	}
	for _, at := range all {
		slices.SortFunc(at, time.Time.Compare)
	}
	return all
}

// have reports whether the next owner after begin has looked at each of the tables.
func (l looks) have(h *history, tables map[int]bool, begin time.Time) bool {
	owned := h.tenures()
	for table := range tables {
		if i, _, _ := l.first(table, owned[table], begin); i < 0 {
			return false
		}
	}
	return true
}

// first finds the first look at a table by its next owner after begin, below zero: there is none, and when the last one's key had
// gone. False: there is no such owner.
func (l looks) first(table int, owned []tenure, begin time.Time) (look int, freed time.Time, taken bool) {
	next := slices.IndexFunc(owned, func(t tenure) bool { return t.from.After(begin) })
	if next < 0 {
		return -1, freed, false
	}
	from, freed := owned[next].seenBy(owned[:next])
	return slices.IndexFunc(l[table], from.Before), freed, true
}

// unpeeked gives for each of the tables how long after begin its next owner looked
// at it for the first time, and how long after its last owner's key had gone. Those
// that nobody looked at fail the test.
func (s *scenario) unpeeked(h *history, l looks, tables map[int]bool, begin time.Time) (waits, gaps Lateness) {
	s.t.Helper()
	owned := h.tenures()
	for table := range tables {
		i, freed, taken := l.first(table, owned[table], begin)
		switch {
		case !taken:
			s.t.Errorf("table %d has no new owner", table)
			continue
		case i < 0:
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
