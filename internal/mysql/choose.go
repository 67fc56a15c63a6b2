package mysql

import (
	"slices"
	"strconv"
	"strings"
)

// sight is what was seen at one address of a server, when it was last looked at.
type sight struct {
	seen     bool   // it was looked at
	err      error  // it can't be asked; what follows is zero
	readOnly string // why it takes no writes: it is a replica, or was demoted; what follows is zero
	process  string // tells two servers apart
	marker   string // of the databases there, see Marker; "": none that are the config's
	position uint64 // number of transactions that it has, if that was asked
	demoted  bool   // it can't be asked, and was read-only when it last answered
	// left: it was in use and did not answer when another address took over, and was not seen
	// as a replica since. So it lacks what was written meanwhile.
	left bool
}

// writes reports whether the server at the address takes writes.
func (s sight) writes() bool { return s.seen && s.err == nil && s.readOnly == "" }

// refuses reports whether the server at the address answers, but lets this user or any further connection not in: it is
// no worse than before for the connections that it has.
func (s sight) refuses() bool {
	server := saidBy(s.err)
	if server == nil {
		return false
	}
	switch ClassOf(s.err) {
	case Barred, Denied, Missing:
		return true
	}
	return slices.Contains(fullHouse, server.Number)
}

// fits reports whether the address may be used for databases with this marker; "": any.
func (s sight) fits(marker string) bool {
	return s.writes() && !s.left && (marker == "" || s.marker == marker)
}

// choose returns the index of the address to use; -1: none. using is the one in use, -1 if
// there is none yet, and marker that of its databases.
//
// The address in use stays while it takes writes or, if it took some before, refuses connections, whatever the others
// do. But if none with databases of the config was ever in use, one that has them and takes writes is better. An address that
// does not answer stays too, unless another one takes writes: that one was promoted. Among several that take writes, databases
// of the config come first, then the server that has more transactions, then the order of the config.
func choose(using int, marker string, all []sight) int {
	well := using >= 0 && (all[using].writes() || all[using].refuses() && !all[using].demoted)
	if well && (marker != "" || all[using].marker != "") {
		return using
	}
	best := using
	for i, s := range all {
		if i != using && s.fits(marker) && (s.marker != "" || !well) && (best == using || better(s, all[best])) {
			best = i
		}
	}
	return best
}

// better reports whether a is to be preferred to b, which is before it in the config.
func better(a, b sight) bool {
	if ours := a.marker != ""; ours != (b.marker != "") {
		return ours
	}
	return a.position > b.position
}

// transactions counts the transactions of a GTID position, of MariaDB
// ("0-1-4711,1-2-5") or of MySQL ("3e11fa47-...:1-5:7,...").
func transactions(gtids string) (n uint64) {
	for part := range strings.SplitSeq(gtids, ",") {
		if uuid, ranges, found := strings.Cut(strings.TrimSpace(part), ":"); found && uuid != "" {
			n += ofRanges(ranges)
		} else if i := strings.LastIndexByte(part, '-'); i >= 0 {
			seq, _ := strconv.ParseUint(part[i+1:], 10, 64)
			n += seq
		}
	}
	return n
}

// ofRanges counts "1-5:7", in which names of tags may stand too.
func ofRanges(ranges string) (n uint64) {
	for one := range strings.SplitSeq(ranges, ":") {
		first, last, isRange := strings.Cut(one, "-")
		if !isRange {
			last = first
		}
		from, errFrom := strconv.ParseUint(first, 10, 64)
		to, errTo := strconv.ParseUint(last, 10, 64)
		if errFrom == nil && errTo == nil && to >= from {
			n += to - from + 1
		}
	}
	return n
}
