package biztype

import (
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Verdict is what Apply did with one biz type.
type Verdict string

// The verdicts.
const (
	Added     Verdict = "added"     // no database had it
	Changed   Verdict = "changed"   // its policy is new, and so is its revision
	Repaired  Verdict = "repaired"  // some databases lacked the present revision and have it now
	Unchanged Verdict = "unchanged" // nothing was written
)

// TypeResult is the verdict on one biz type of the file.
type TypeResult struct {
	Name    string  `json:"name"`
	Number  uint64  `json:"number"`
	Verdict Verdict `json:"verdict"`
}

// change is one row that must stand in every database.
type change struct {
	row     row
	verdict Verdict
}

// compare is pure. It returns how each wanted row changes the databases, or an error
// that names the row that breaks the bond of name and number. A new revision is a time, so that it is above those of deleted
// types too: watchers remember them.
func compare(databases []database, wanted []row, now time.Time) ([]change, error) {
	next := uint64(max(1, now.Sub(tocsin.Epoch).Milliseconds()))
	for _, d := range databases {
		for _, r := range d.rows {
			next = max(next, r.Revision+1)
		}
	}
	changes := make([]change, len(wanted))
	for i, r := range wanted {
		if err := conflict(databases, r); err != nil {
			return nil, err
		}
		changes[i] = compareType(databases, r, next)
	}
	return changes, nil
}

// conflict finds a stored type with the same number and another name, or the
// other way round.
func conflict(databases []database, wanted row) error {
	for _, d := range databases {
		for _, r := range d.rows {
			if r.Number == wanted.Number && r.Name != wanted.Name {
				return fmt.Errorf("biz type %s: number %d is that of %s in %s: a number never changes its name", wanted.Name, wanted.Number, r.Name, d.name)
			}
			if r.Name == wanted.Name && r.Number != wanted.Number {
				return fmt.Errorf("biz type %s: has number %d in %s, and %d is asked for: a name never changes its number", wanted.Name, r.Number, d.name, wanted.Number)
			}
		}
	}
	return nil
}

// compareType compares one wanted row. A row that says what is stored already leaves
// the stored text as it is, including fields that a newer program wrote there.
func compareType(databases []database, wanted row, next uint64) change {
	newest, everywhere := newest(databases, wanted.Number)
	switch {
	case newest.Revision == 0:
		wanted.Revision = next
		return change{wanted, Added}
	case !agrees(databases, newest, wanted):
		wanted.Revision = next
		return change{wanted, Changed}
	case !everywhere:
		return change{newest, Repaired}
	}
	return change{newest, Unchanged}
}

// newest gives the row with the highest revision, and whether all databases
// hold that revision.
func newest(databases []database, number uint64) (newest row, everywhere bool) {
	everywhere = true
	for i, d := range databases {
		r := d.rows[number]
		everywhere = everywhere && (i == 0 || r.Revision == newest.Revision)
		if r.Revision > newest.Revision {
			newest = r
		}
	}
	return newest, everywhere
}

// agrees reports whether every row of the newest revision says what is wanted.
// Rows of one revision that differ come from two applies at once on servers
// that could not see each other.
func agrees(databases []database, newest, wanted row) bool {
	for _, d := range databases {
		if r, ok := d.rows[newest.Number]; ok && r.Revision == newest.Revision && !r.same(wanted) {
			return false
		}
	}
	return true
}

// due gives the changes that a database does not have yet.
func (d database) due(changes []change) []change {
	var due []change
	for _, c := range changes {
		if d.rows[c.row.Number].Revision < c.row.Revision {
			due = append(due, c)
		}
	}
	return due
}
