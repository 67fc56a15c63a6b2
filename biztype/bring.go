package biztype

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Bring stores policies that a program's code brings along, see tocsin.Define, as Apply does. A policy that is stored already
// changes only if a program has stored it, with a lower Edition, and nobody has applied another one since:
//
//	stored                              the code's policy
//	nothing                             is stored
//	the same                            its Edition is stored, if it is higher
//	another one of a lower Edition      is stored
//	another one of the same Edition     is not used: somebody has changed the code and not the Edition
//	another one of a higher Edition     is not used: it is that of an older program
//	another one without an Edition      is not used: people have applied it
//
// So programs of two versions may start in any order, again and again. Paused says how a new biz type begins; later it stays
// as it is stored.
//
// The number of a new biz type is one that no biz type has or had. Two programs can't both take it: it stands in the lowest
// database before it stands in others. So a new biz type needs all databases, unless its policy has a Number.
func Bring(ctx context.Context, cfg tocsin.Config, policies []Policy) (Result, error) {
	if err := Validate(policies); err != nil {
		return Result{}, err
	}
	var kept map[string]string
	needed := true // something beside an edition is to be stored, for all that is known
	res, err := apply(ctx, cfg, false, func(databases []database, missing error) (rows []row, err error) {
		kept, needed = map[string]string{}, true
		news := false
		var used []Policy
		for _, p := range policies {
			r, why, err := bring(databases, p, rows)
			switch {
			case err != nil:
				return nil, err
			case why != "":
				kept[p.Name] = why
				continue
			case r.given && missing != nil:
				return nil, fmt.Errorf("biz type %s is new, and its number needs every database: %w", p.Name, missing)
			}
			rows, used = append(rows, r), append(used, p)
			was, _ := newest(databases, r.Number)
			old, _ := was.decode()
			p.Number, p.Paused = r.Number, old.Paused
			news = news || !alike(old, p)
		}
		err = checkAlarms(databases, used)
		needed = news || err != nil
		return rows, err
	})
	res.Kept = kept
	if !needed && (mysql.ClassOf(err) == mysql.Denied || res.Databases == 0) {
		err = nil // the databases that can be read agree
	}
	return res, err
}

// bring returns the row that is to be stored for a policy, or why the stored one stays. Numbers of others are in use beside those
// in the databases.
func bring(databases []database, p Policy, others []row) (r row, why string, err error) {
	old, err := stored(databases, p.Name)
	if errors.Is(err, tocsin.ErrUnknownBizType) {
		given := p.Number == 0
		if given {
			p.Number = nextNumber(databases, others, time.Now())
		}
		r, err = newRow(p)
		r.given = given
		return r, "", err
	}
	if err != nil {
		return row{}, "", err
	}
	was, err := old.decode()
	if err != nil {
		return row{}, "", err
	}
	if p.Number == 0 {
		p.Number = was.Number
	}
	p.Paused = was.Paused
	switch same := alike(was, p); {
	case same && was.Edition >= p.Edition:
		return old, "", nil // databases that lack it get it all the same
	case same || was.Edition != 0 && was.Edition < p.Edition:
		r, err = newRow(p)
		return r, "", err
	case was.Edition == 0:
		return row{}, "people have applied another one: change it with `tocsin biz apply`, or have the code say the same", nil
	case was.Edition == p.Edition:
		return row{}, fmt.Sprintf("it has edition %d too, and differs: raise Edition in the code", p.Edition), nil
	}
	return row{}, fmt.Sprintf("it is of edition %d, and that of the code of edition %d", was.Edition, p.Edition), nil
}

// nextNumber returns a number that no biz type has: the seconds since 2026 began, or the next that is free. So it is not that of
// a type that was deleted before, whatever higher numbers people have chosen.
func nextNumber(databases []database, others []row, now time.Time) uint64 {
	taken := map[uint64]bool{}
	for _, r := range others {
		taken[r.Number] = true
	}
	for _, d := range databases {
		for n := range d.rows {
			taken[n] = true
		}
	}
	next := uint64(max(1, now.Sub(tocsin.Epoch)/time.Second))
	for taken[next] {
		next++
	}
	return next
}

// alike reports whether two policies say the same, apart from their editions.
func alike(a, b Policy) bool {
	a.Edition, b.Edition = 0, 0
	was, errA := newRow(a)
	now, errB := newRow(b)
	return errA == nil && errB == nil && was == now
}

// withEdition gives a policy the edition of the stored one, if it says the same.
func withEdition(databases []database, p Policy) Policy {
	newest, _ := newest(databases, p.Number)
	if was, err := newest.decode(); err == nil && newest.Revision != 0 && alike(was, p) {
		p.Edition = was.Edition
	}
	return p
}
