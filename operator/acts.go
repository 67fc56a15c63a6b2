package operator

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/store"
)

// PastAct is one change that somebody asked for.
type PastAct = store.PastAct

// What a PastAct came by.
const (
	ViaAPI     = "api"
	ViaConsole = "console"
	ViaCommand = "command"
)

// MaxPastActs is the largest number of acts that Acts returns, and Note takes.
const MaxPastActs = 100 // that of store.NoteActs

// How many acts Acts reads of each database at once, and how often for one answer.
const (
	actsAtOnce  = 500
	actsLookups = 4
)

// Note writes down acts, at most MaxPastActs, with their times, where the first server that can takes them. Nobody should wait for it: the
// change is made, and stays.
func (o *Operator) Note(ctx context.Context, acts []PastAct) error {
	return o.tables.NoteActs(ctx, acts)
}

// ActsQuery says which acts to return.
type ActsQuery struct {
	From, To  time.Time // of the acts, To exclusive; zero: no bound
	Person    string    // ""; any, as of the next
	Operation string
	Object    string // how it begins, with or without the words biz type, schedule or task before a name
	Before    uint64 // ID, exclusive; 0: from the newest on
	Limit     int    // 1 to MaxPastActs
}

func (q ActsQuery) means(a PastAct) bool {
	return (q.Person == "" || a.Person == q.Person) && (q.Operation == "" || a.Operation == q.Operation) &&
		(strings.HasPrefix(a.Object, q.Object) || strings.HasPrefix(nameOf(a.Object), q.Object))
}

// nameOf is the object of an act without the kind in front of its name.
func nameOf(object string) string {
	for _, kind := range []string{"biz type ", "schedule ", "task "} {
		if name, ok := strings.CutPrefix(object, kind); ok {
			return name
		}
	}
	return object
}

// Acts returns acts, the newest first, and the ID before which to go on; 0: there are no more. It reads about 2,000 acts of each database
// at most, so it may return few although more follow.
func (o *Operator) Acts(ctx context.Context, q ActsQuery) (acts []PastAct, next uint64, err error) {
	if q.Limit < 1 || q.Limit > MaxPastActs {
		return nil, 0, client.Refuse(tocsin.ErrInvalid, "limit %d: use 1 to %d", q.Limit, MaxPastActs)
	}
	if err := client.CheckSpan("from", q.From, "to", q.To); err != nil {
		return nil, 0, err
	}
	from, before := uint64(0), uint64(math.MaxInt64)
	if !q.From.IsZero() {
		from = store.ActAt(q.From)
	}
	if !q.To.IsZero() {
		before = store.ActAt(q.To)
	}
	if q.Before > 0 {
		before = min(before, q.Before)
	}
	acts = []PastAct{}
	for range actsLookups {
		page, failed := o.tables.Acts(ctx, from, before, actsAtOnce)
		if failed != nil {
			err = failed
		}
		for _, a := range page.Acts {
			if !q.means(a) {
				continue
			}
			if len(acts) == q.Limit {
				return acts, acts[q.Limit-1].ID, err
			}
			acts = append(acts, a)
		}
		if page.Next == 0 {
			return acts, 0, err
		}
		before = page.Next
	}
	return acts, before, err
}
