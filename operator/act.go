package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/store"
)

// MaxActs is the largest number of tasks of one Act.
const MaxActs = 500

// Deed is what an Act does with each of its tasks.
type Deed = store.Deed

// The deeds. Each means for a task what the call for one task means.
const (
	DeedRedrive    Deed = "redrive"    // Redrive or RedriveSameKey
	DeedBury       Deed = "bury"       // Bury
	DeedCancel     Deed = "cancel"     // tocsin.Client.Cancel
	DeedReschedule Deed = "reschedule" // tocsin.Client.Reschedule
)

// deeds are what becomes of the task, and which tasks a deed is not for.
var deeds = map[Deed]struct {
	after tocsin.Status
	unfit string
}{
	DeedRedrive:    {tocsin.Pending, onlyDead},
	DeedBury:       {tocsin.Dead, notFinal},
	DeedCancel:     {tocsin.Cancelled, "only a task that has not ended can be cancelled"},
	DeedReschedule: {tocsin.Pending, "only a task that has not ended can be rescheduled"},
}

// Act names tasks by their ids, and what is to be done with each of them.
type Act struct {
	Deed    Deed
	IDs     []tocsin.JobID    // 1 to MaxActs, each once
	Sees    func(string) bool // the biz types whose tasks may be changed, by name; nil: all, also those without a name
	Reason  string            // of DeedBury, for the last error
	SameKey bool              // of DeedRedrive
	When    tocsin.When       // of DeedReschedule
}

// Acted is what became of one task of an Act.
type Acted struct {
	JobID      tocsin.JobID `json:"job_id"`
	BizType    string       `json:"biz_type,omitempty"`    // "": it is not known
	Status     string       `json:"status,omitempty"`      // afterwards; "": it is not known
	InDelivery bool         `json:"in_delivery,omitempty"` // of a cancel or reschedule: a delivery may be under way. It settles nothing any more

	// Err is nil if the deed was done, or the task to be cancelled was cancelled already. ErrStatus, tocsin.ErrInDelivery (it is
	// claimed, and its biz type strict) and tocsin.ErrNotFound say that nothing was changed, tocsin.ErrUnknownOutcome that it is
	// not known; others, that the task's server or table can't be used, or another transaction holds the row.
	Err error `json:"-"`
}

// check refuses what can't be meant.
func (a *Act) check() error {
	_, known := deeds[a.Deed]
	switch {
	case !known:
		return client.Refuse(tocsin.ErrInvalid, "deed %q: use redrive, bury, cancel or reschedule", a.Deed)
	case len(a.IDs) == 0 || len(a.IDs) > MaxActs:
		return client.Refuse(tocsin.ErrInvalid, "%d tasks: use 1 to %d", len(a.IDs), MaxActs)
	case a.Deed == DeedReschedule:
		return client.WhenOf(a.When).Valid(time.Now())
	}
	return nil
}

// Act does the same with up to MaxActs tasks and returns what became of each, in the order of the ids. The tasks of a server are
// changed in one transaction, in which rows that others hold, and tables that can't be written, are left out and have an error; all
// servers work at once. The error says that nothing was changed: it is tocsin.ErrInvalid, or no server has the policies.
func (o *Operator) Act(ctx context.Context, a Act) (all []Acted, err error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	run := func(ctx context.Context) (err error) {
		all, err = o.act(ctx, a)
		return err
	}
	if a.Deed == DeedCancel || a.Deed == DeedReschedule {
		err = o.cfg.Changes()(ctx, tocsin.Changing{Op: string(a.Deed)}, run)
	} else {
		err = run(ctx)
	}
	return all, err
}

func (o *Operator) act(ctx context.Context, a Act) ([]Acted, error) {
	policies, only, err := o.types(ctx, "", a.Sees)
	if err != nil {
		return nil, err
	}
	servers := o.tables.Servers()
	ids, found := make([][]tocsin.JobID, len(servers)), make([]map[tocsin.JobID]store.Acted, len(servers))
	for _, id := range a.IDs {
		if server := o.tables.ServerOf(id.Table()); server >= 0 {
			ids[server] = append(ids[server], id)
		}
	}
	store.EachServer(len(servers), func(server int) {
		if len(ids[server]) > 0 {
			found[server] = o.tables.Act(ctx, store.Act{
				Server: server, Deed: a.Deed, IDs: ids[server], Types: only, Reason: name.Reason(a.Reason, ByHand), Same: a.SameKey, When: client.WhenOf(a.When),
			})
		}
	})
	all := make([]Acted, len(a.IDs))
	for i, id := range a.IDs {
		all[i] = Acted{JobID: id, Err: client.Refuse(tocsin.ErrNotFound, "no task %s", id)}
		if server := o.tables.ServerOf(id.Table()); server >= 0 {
			if one, ok := found[server][id]; ok {
				all[i] = a.became(id, one, policies)
			}
		}
	}
	return all, nil
}

// became is what became of a task that is there, or may be.
func (a *Act) became(id tocsin.JobID, one store.Acted, policies []biztype.Policy) Acted {
	is := Acted{JobID: id}
	if one.Type != 0 { // otherwise its table could not be read
		is.BizType, is.Status = biztype.NameOf(policies, one.Type), one.Status.String()
	}
	switch of := deeds[a.Deed]; {
	case one.Err != nil:
		if is.Err = fmt.Errorf("task %s: %w", id, one.Err); errors.Is(one.Err, tocsin.ErrUnknownOutcome) {
			is.Status = ""
		}
	case one.Done:
		is.Status, is.InDelivery = of.after.String(), one.InDelivery
	case one.InDelivery:
		is.Err = client.Refuse(tocsin.ErrInDelivery, "task %s is in delivery, and biz type %s is strict: nothing is changed, try again later", id, is.BizType)
	case a.Deed != DeedCancel || one.Status != tocsin.Cancelled:
		is.Err = client.Refuse(ErrStatus, "task %s is %s: %s", id, one.Status, of.unfit)
	}
	return is
}
