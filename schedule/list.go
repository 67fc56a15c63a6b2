package schedule

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Query says which schedules List and Page return.
type Query struct {
	App     string                    // "": any
	BizType string                    // "": any
	Sees    func(bizType string) bool // only those of biz types for which it is true; nil: any
	State   State                     // "": any
	Part    string                    // of the name; "": any
	ByNext  bool                      // in the order of NextFire, and only those that have one; false: in the order of the names
	Last    bool                      // with the last run of each
	After   string                    // names behind this one; without ByNext
	Limit   int                       // 1 to MaxListed
}

// MaxListed is the most schedules that List returns.
const MaxListed = 10_000

// MaxLast is the most schedules of a page with their last runs.
const MaxLast = 50

// looksThrough is how many schedules of each database a page looks through, if a Query names only some.
const looksThrough = 2000

// Page is some of the schedules that a Query names.
type Page struct {
	Schedules []Schedule
	Next      *Place // where the page ended; nil: there is no more
}

// Place is where a page ended: at its last schedule, or at that of an earlier page if it had none. The zero Place is before all.
type Place struct {
	Name    string       // without ByNext
	Fire    time.Time    // with ByNext, as is ID
	ID      tocsin.JobID // it has the table too
	Windows int          // pages behind it that had no schedule
}

// order is how a list is sorted, and the statements that read it.
type order struct {
	page, end   string
	first, last Place // before and behind all places
}

var (
	byName = order{page: readList, end: endOfList, last: Place{Name: "~"}} // no name has a character behind it
	byNext = order{
		page: readNext, end: endOfNext, first: Place{Fire: firstDue.Next},
		last: Place{Fire: time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC), ID: math.MaxInt64},
	}
)

func (q *Query) order() *order {
	if q.ByNext {
		return &byNext
	}
	return &byName
}

// from returns the place that a page begins behind.
func (q *Query) from(after Place) Place {
	switch {
	case q.ByNext && after.Fire.IsZero():
		return byNext.first
	case !q.ByNext && after.Name == "":
		return Place{Name: q.After}
	}
	return after
}

// some reports whether the query names only some schedules, so that a page may have to look through many others.
func (q *Query) some() bool {
	return q.App != "" || q.BizType != "" || q.Sees != nil || q.State != "" || q.Part != ""
}

// args are the parameters of a place.
func (o *order) args(p Place) []any {
	if o == &byName {
		return []any{p.Name}
	}
	fire, table := at(p.Fire), p.ID.Table()
	return []any{fire, fire, table, fire, table, uint64(p.ID)}
}

func (o *order) compare(a, b Place) int {
	if o == &byName {
		return cmp.Compare(a.Name, b.Name)
	}
	return cmp.Or(a.Fire.Compare(b.Fire), cmp.Compare(a.ID.Table(), b.ID.Table()), cmp.Compare(a.ID, b.ID))
}

func placeOf(r *row) Place { return Place{Name: r.Name, Fire: r.NextFire, ID: r.ID} }

// List returns schedules in the order of their names, or of their next fire times. It asks all servers at once, page by page.
// What was found stands beside an error, a *Partial, which names the servers and databases that could not be asked.
func (s *Schedules) List(ctx context.Context, q Query) ([]Schedule, error) {
	all := []Schedule{}
	var failed error
	for after := (Place{}); ; {
		page, err := s.Page(ctx, q, after)
		all, failed = append(all, page.Schedules...), cmp.Or(failed, err)
		q.Limit -= len(page.Schedules)
		if page.Next == nil || q.Limit == 0 {
			return all, failed
		}
		after = *page.Next
	}
}

// Page is List of the schedules behind a place. A page looks through at most 2,000 schedules of each database, so it may be short, or
// empty, although more follow; one with last runs has at most MaxLast schedules. A Place names no schedule that the
// query does not.
func (s *Schedules) Page(ctx context.Context, q Query, after Place) (page Page, err error) {
	if q.Limit < 1 || q.Limit > MaxListed {
		return page, client.Refuse(ErrInvalid, "limit %d: use 1 to %d", q.Limit, MaxListed)
	}
	types, err := s.types(ctx)
	if err != nil {
		return page, err
	}
	only, err := types.only(q)
	if err != nil {
		return page, err
	}
	limit := q.Limit
	if q.Last {
		limit = min(limit, MaxLast)
	}
	o := q.order()
	from, end, more, err := s.window(ctx, &q, after)
	if err != nil {
		return page, err
	}
	args := slices.Concat(o.args(from), o.args(end), []any{q.App, q.App, string(q.State), string(q.State), strings.ToLower(q.Part), limit + 1})
	rows, err := s.everywhere(ctx, types, "schedules list", strings.Replace(o.page, "{types}", only, 1), args...)
	slices.SortStableFunc(rows, func(a, b *row) int { return o.compare(placeOf(a), placeOf(b)) })
	if len(rows) > limit {
		rows, more = rows[:limit], true
	}
	for _, r := range rows {
		page.Schedules = append(page.Schedules, r.Schedule)
	}
	if more {
		if after.Windows++; len(rows) > 0 {
			after = placeOf(rows[len(rows)-1])
		}
		page.Next = &after
	}
	if q.Last {
		err = cmp.Or(err, s.addLast(ctx, types, &q, page.Schedules))
	}
	return page, err
}

// window returns which places a page lies between, and whether there are schedules behind the second one. It passes the windows of
// earlier pages in the index alone. A database whose window can't be read counts as one that ends in it: its rows can't be read
// either, or its server answers again, and they are as many as a page has.
func (s *Schedules) window(ctx context.Context, q *Query, after Place) (from, end Place, more bool, err error) {
	o := q.order()
	from, end = q.from(after), o.last
	if !q.some() {
		return from, end, false, nil
	}
	for passed := 0; ; passed++ {
		ends, err := askAll(ctx, s, "schedules window", o.end, scanPlace, append(o.args(from), looksThrough-1)...)
		switch more = len(ends) > 0; {
		case more:
			end = slices.MinFunc(ends, o.compare)
		case passed < after.Windows:
			return o.last, o.last, false, err
		default:
			end = o.last
		}
		if passed == after.Windows {
			return from, end, more, nil
		}
		from = end
	}
}

// scanPlace reads a row of endOfList or endOfNext.
func scanPlace(rows *sql.Rows) (p Place, err error) {
	var fire instant
	err = rows.Scan(&p.Name, &fire, &p.ID)
	p.Fire = fire.Time
	return p, err
}

// addLast adds the last runs of schedules. One of a biz type that the query does not see is left out: the schedule had another one.
func (s *Schedules) addLast(ctx context.Context, types bizTypes, q *Query, all []Schedule) error {
	of := make([][]tocsin.JobID, len(s.tables.Servers()))
	for i := range all {
		if server := s.tables.ServerOf(all[i].ID.Table()); server >= 0 {
			of[server] = append(of[server], all[i].ID)
		}
	}
	found, errs := make([][]store.Run, len(of)), make([]error, len(of))
	store.EachServer(len(of), func(server int) {
		found[server], errs[server] = s.tables.LastRuns(ctx, server, of[server])
	})
	last := map[tocsin.JobID]*LastRun{}
	for _, r := range slices.Concat(found...) {
		if q.Sees == nil || q.Sees(types.name(r.Type)) {
			last[tocsin.JobID(r.Schedule)] = &LastRun{r.JobID, r.Outcome, time.UnixMilli(r.Started).UTC(), r.Lateness, r.Took}
		}
	}
	for i := range all {
		all[i].Last = last[all[i].ID]
	}
	return store.Lacking(s.tables.Servers(), errs)
}

// only is the condition that keeps a list to the biz types that are asked for.
func (t bizTypes) only(q Query) (string, error) {
	if q.BizType != "" {
		if _, err := t.number(q.BizType); err != nil {
			return "", err
		}
	} else if q.Sees == nil {
		return "TRUE", nil
	}
	numbers := []string{"0"} // no biz type has it
	for name, number := range t {
		if (q.BizType == "" || q.BizType == name) && (q.Sees == nil || q.Sees(name)) {
			numbers = append(numbers, strconv.FormatUint(number, 10))
		}
	}
	return "biz_type IN (" + strings.Join(numbers, ", ") + ")", nil
}
