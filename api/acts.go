package api

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// pastActs registers the operation that lists who did what.
func (a *API) pastActs() {
	register(a, operation{
		id: "list_acts", method: http.MethodGet, path: "/acts", tag: "cluster", needs: apitoken.Read, allTypes: true, connects: true, summary: "Say who changed what",
		about: "The newest first: changes by commands, by a console, and by this API, but for tasks that a program adds, cancels or reschedules. They are written after the " +
			"change, as far as that succeeds at once, and kept for 90 days. A page may be short or empty although more follow.",
	}, a.listActs)
}

// actsQuery says which acts to list.
type actsQuery struct {
	From      time.Time `query:"from" doc:"No earlier ones"`
	To        time.Time `query:"to" doc:"Earlier ones only"`
	Person    string    `query:"person" maxLength:"64" doc:"By this one only"`
	Operation string    `query:"operation" maxLength:"64" doc:"Of this kind only" example:"pause_biz_type"`
	Object    string    `query:"object" maxLength:"255" doc:"About what begins so, with or without the words biz type, schedule or task before a name" example:"biz type order.close"`
	Limit     int       `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"Acts of a page at most"`
	Cursor    string    `query:"cursor" maxLength:"200" doc:"next_cursor of the page before"`
}

// PastAct is one change that somebody asked for.
type PastAct struct {
	Time      Time   `json:"time" doc:"By the clock of the process that wrote it"`
	Person    string `json:"person" doc:"Name of the token, or user of the console or of the host" example:"alice@ops-1"`
	Via       string `json:"via" enum:"api,console,command"`
	Operation string `json:"operation" example:"pause_biz_type"`
	Object    string `json:"object" example:"biz type order.close"`
	Reason    string `json:"reason,omitempty"`
	Outcome   string `json:"outcome" doc:"What came of it: ok, or a word or a line" example:"ok"`
}

// Acts is a page of acts.
type Acts struct {
	Acts       []PastAct `json:"acts"`
	NextCursor string    `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last page"`
	Incomplete []string  `json:"incomplete,omitempty" doc:"Servers that could not be asked"`
}

func (a *API) listActs(ctx context.Context, c *call, in *actsQuery) (page Acts, err error) {
	q := operator.ActsQuery{From: in.From, To: in.To, Person: in.Person, Operation: in.Operation, Object: in.Object, Limit: in.Limit}
	filter := strings.Join([]string{"acts", in.From.UTC().String(), in.To.UTC().String(), in.Person, in.Operation, in.Object}, "\x00")
	after, err := readCursor(in.Cursor, filter)
	if err != nil {
		return page, err
	}
	if after != nil {
		q.Before = after.Type
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return page, err
	}
	acts, next, err := people.Acts(ctx, q)
	if page.Incomplete, err = c.incomplete(err, len(acts) > 0); err != nil {
		return page, err
	}
	page.Acts = []PastAct{}
	for _, act := range acts {
		page.Acts = append(page.Acts, PastAct{Time{act.At}, act.Person, act.Via, act.Operation, act.Object, act.Reason, act.Outcome})
	}
	if next > 0 {
		page.NextCursor = cursor(operator.Place{Type: next}, filter)
	}
	return page, nil
}

// byPrograms are writes that programs send again and again: the log has them, and no act is written.
var byPrograms = map[string]bool{
	"add_task": true, "add_tasks": true, "cancel_tasks": true, "reschedule_tasks": true, "cancel_task": true, "reschedule_task": true,
}

// What may wait to be written, and for how long.
const (
	actsWaiting = 1000
	actWithin   = 5 * time.Second
)

// notebook writes acts down behind the requests, which do not wait for it. If more come than it can write, they are left out.
type notebook struct {
	people *opened[*operator.Operator]
	begin  sync.Once
	end    sync.Once
	waits  chan operator.PastAct
	ended  chan struct{} // nil: nothing was written yet
}

func newNotebook(people *opened[*operator.Operator]) *notebook {
	return &notebook{people: people, waits: make(chan operator.PastAct, actsWaiting)}
}

// note has an act written soon. No note may come after close.
func (n *notebook) note(act operator.PastAct) {
	n.begin.Do(func() {
		n.ended = make(chan struct{})
		go n.write()
	})
	select {
	case n.waits <- act:
	default: // the servers are away, and the log has it
	}
}

// close writes what waits, and ends.
func (n *notebook) close() {
	n.end.Do(func() {
		n.begin.Do(func() {})
		close(n.waits)
		if n.ended != nil {
			<-n.ended
		}
	})
}

// write writes until close. What a failing server makes wait is given up after actWithin.
func (n *notebook) write() {
	defer close(n.ended)
	for act := range n.waits {
		some := []operator.PastAct{act}
		for more := true; more && len(some) < operator.MaxPastActs; {
			select {
			case next, open := <-n.waits:
				if more = open; open {
					some = append(some, next)
				}
			default:
				more = false
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), actWithin)
		if people, err := n.people.get(ctx); err == nil {
			_ = people.Note(ctx, some) // as far as it succeeds at once: the log has them
		}
		cancel()
	}
}

type consoleKey struct{}

// byConsole is what ByConsole keeps.
type byConsole struct {
	user  string
	login *apitoken.Token
}

// ByConsole returns a context for the requests of a console: their acts are those of its user, not of the token, and have all changes. login is
// what the user may do if a proxy has logged him in, and then a request needs no token; nil: it does.
func ByConsole(ctx context.Context, user string, login *apitoken.Token) context.Context {
	return context.WithValue(ctx, consoleKey{}, byConsole{user, login})
}

// noteAct writes down what a request has changed, or may have.
func (a *API) noteAct(c *call, status int) {
	changed := status < http.StatusBadRequest || c.code == "outcome_unknown"
	if !changed || c.dry || c.operation == "" || !c.needs.Allows(apitoken.Write) || c.console == "" && byPrograms[c.operation] {
		return
	}
	act := operator.PastAct{
		At: time.Now(), Person: c.token.Name, Via: operator.ViaAPI, Operation: c.operation, Object: c.object, Reason: c.reason, Outcome: cmp.Or(c.code, c.outcome, "ok"),
	}
	if c.console != "" {
		act.Person, act.Via = c.console, operator.ViaConsole
	}
	a.notebook.note(act)
}
