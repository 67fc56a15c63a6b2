package operator

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// explain says where the task is and what it waits for. It is pure: Why reads the facts. A task may wait for several things at
// once: the state is the first that has to change, and the others follow as sentences. What could not be read is named, and the rest
// explained as far as it is known.
func explain(f facts) Answer {
	a := Answer{
		JobID: f.JobID, Also: []string{}, Unasked: []string{}, Table: f.Server.Table, Server: f.Server.Name,
		Group: f.Group.Name, Owner: f.Group.Owner, Task: f.Task,
	}
	switch {
	case f.Task == nil && f.Unread != nil:
		f.unread(&a)
	case f.Task == nil:
		f.gone(&a)
		return a
	case f.Task.Status.Final():
		f.settled(&a)
		return a
	case f.Task.Status == tocsin.Claimed:
		f.claimed(&a)
	case f.Task.ActionTime.After(f.Now):
		f.early(&a)
	default:
		f.due(&a)
	}
	f.history(&a)
	f.notAsked(&a)
	return a
}

// unread explains a row that could not be read.
func (f *facts) unread(a *Answer) {
	switch {
	case f.Server.Older:
		a.set(StateOlderCopy, "the database is not used until an operator decides: %v", f.Unread)
	case f.Server.Refused != nil:
		a.set(StateRefused, "the database is refused, so its tasks wait: %v", f.Unread)
	case f.Server.Hangs:
		a.set(StateHangs, "server %s hangs: it was asked for %s and does not answer, so its tasks wait: %v", f.Server.Name, f.Server.Table, f.Unread)
	default:
		a.set(StateAway, "server %s can't be asked for %s, so its tasks wait: %v", f.Server.Name, f.Server.Table, f.Unread)
	}
	for _, p := range f.Pages {
		if p.Report != nil {
			f.databaseOf(a, p.Report)
		}
	}
}

// gone explains that there is no row. The id holds the time at which it was made, which tells whether a purge can have
// removed it.
func (f *facts) gone(a *Answer) {
	made := f.JobID.Time()
	shortest, known := time.Duration(0), len(f.Policies) > 0
	for i, p := range f.Policies {
		if kept := p.WithDefaults().Retention.D(); i == 0 || kept < shortest {
			shortest = kept
		}
	}
	where := sentence("%s on %s", f.Server.Table, f.Server.Name)
	switch {
	case made.After(f.Now.Add(time.Minute)):
		a.set(StateGone, "there is no such task in %s, and never was: by its job_id it would be made at %s", where, f.at(made))
	case known && f.Now.Sub(made) < shortest:
		a.set(StateGone, "there is no such task in %s: its job_id was made at %s, too late for a purge, as tasks are kept for %s. Its transaction was rolled back, or the job_id is another cluster's",
			where, f.at(made), span(shortest))
	default:
		a.set(StateGone, "there is no such task in %s: it was purged, or never existed; its job_id was made at %s", where, f.at(made))
	}
}

// settled explains a row that nobody will touch again.
func (f *facts) settled(a *Answer) {
	t := f.Task
	a.When = t.ActionTime
	switch t.Status {
	case tocsin.Done:
		a.set(StateDone, "it was done at %s; it had been due at %s", f.at(t.ActionTime), dueAt(t))
	case tocsin.Cancelled:
		a.set(StateCancelled, "it was cancelled at %s", f.at(t.ActionTime))
	default:
		a.set(StateDead, "it is dead since %s, after %s: %s", f.at(t.ActionTime), f.deadOf(), quoted(t.LastError))
		a.also("`tocsin task redrive %s` delivers it once more", t.JobID)
	}
}

// deadOf says how a dead task came to its end.
func (f *facts) deadOf() Sentence {
	attempts := plural(f.Task.Attempts, "failed attempt")
	switch p := f.policy(); {
	case f.Task.Crashes >= f.mostCrashes():
		return sentence("%s that ran out without an outcome, as its process ended each time", plural(f.Task.Crashes, "claim"))
	case p != nil && f.Task.Attempts < p.WithDefaults().Attempts:
		return sentence("%s of %d, buried by its handler or by hand", attempts, p.WithDefaults().Attempts)
	}
	return attempts
}

// mostCrashes is how many claims may end without an outcome until the task is dead.
func (f *facts) mostCrashes() int {
	if f.Group.Open {
		return store.MaxCrashesSession
	}
	return store.MaxCrashes
}

// quoted is an error as it stands in a row.
func quoted(text string) Sentence {
	if text == "" {
		return sentence("no error is stored")
	}
	return sentence("%q", text)
}

// claimed explains a row that a process has claimed.
func (f *facts) claimed(a *Answer) {
	t := f.Task
	a.When = t.ActionTime
	if _, _, leased := store.LeaseBegan(t.ClaimedBy); leased {
		f.leased(a)
		return
	}
	if f.Holder != nil {
		f.held(a)
		return
	}
	by := sentence("%s", t.ClaimedBy)
	if strings.Contains(t.ClaimedBy, "-sweep-") {
		by = sentence("%s, a sweeper,", t.ClaimedBy)
	}
	if !t.ActionTime.After(f.Now) {
		a.set(StateRunOut, "its claim by %s ran out at %s without an outcome: that process has ended, or can't reach the server", by, f.at(t.ActionTime))
		a.also("%s after its end the claim is taken back, by the owner of the table within a minute or so, or by the next sweep; then the task is due again", span(store.RecoverAfter))
		f.ownerless(a)
		return
	}
	a.set(StateClaimed, "it is claimed by %s until %s: until then only that process may deliver it", by, f.at(t.ActionTime))
	if r := f.report(t.ClaimedBy); r != nil && !f.inHand(a, r) {
		f.owner(a, r)
	}
}

// held explains a row that is claimed under a session.
func (f *facts) held(a *Answer) {
	if f.Holder.Node == "" {
		a.set(StateRunOut, "the session of its claim has ended: its process has died, or was cut off from the server")
		a.also("a node takes the claim back within a minute or so, or the next sweep does; then the task is due again")
		return
	}
	a.set(StateClaimed, "it is claimed by %s: only that process may deliver it, until it has settled it or its session ends", f.Holder.Node)
	if r := f.report(f.Holder.Node); r != nil && !f.inHand(a, r) {
		f.owner(a, r)
	}
}

// leased explains a row that a worker has.
func (f *facts) leased(a *Answer) {
	end := f.at(f.Task.ActionTime)
	if f.Task.ActionTime.After(f.Now) {
		a.set(StateClaimed, "a worker has it until %s: by then it settles or extends its lease", end)
		return
	}
	a.set(StateRunOut, "the lease of its worker ran out at %s: the worker may still settle it, and %s after that time the task is due again, after a failed attempt", end, span(store.RecoverAfter))
	f.ownerless(a)
}

// early explains a row whose time has not come, and names what would be in its way by then.
func (f *facts) early(a *Answer) {
	t := f.Task
	a.When = t.ActionTime
	switch {
	case t.Attempts > 0:
		a.set(StateRetry, "it is retried at %s: %s", f.at(t.ActionTime), f.tried())
	case t.ActionTime.After(t.DueTime):
		a.set(StateSnoozed, "it was due at %s and is put off until %s%s", dueAt(t), f.at(t.ActionTime), reason(t.LastError))
	default:
		a.set(StateNotDue, "it is not due before %s", f.at(t.ActionTime))
	}
	if r := f.report(f.Group.Owner); r != nil && r.Task != nil && r.Task.Overrun {
		a.also("an earlier delivery of it in %s is over its time-out and has not returned", r.Node)
	}
	f.typeOf(a)
	f.ownerless(a)
}

// tried says how many attempts failed, and the last error.
func (f *facts) tried() Sentence {
	attempts, last := plural(f.Task.Attempts, "attempt"), quoted(f.Task.LastError)
	if p := f.policy(); p != nil {
		return sentence("%s of %d failed, the last one with %s", attempts, p.WithDefaults().Attempts, last)
	}
	return sentence("%s failed, the last one with %s", attempts, last)
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + strconv.Quote(text)
}

// history adds what happened to the task before.
func (f *facts) history(a *Answer) {
	t := f.Task
	if t == nil {
		return
	}
	if t.Attempts > 0 && a.State != StateRetry {
		a.also("%s", f.tried())
	}
	if t.Crashes > 0 {
		a.also("%s of it ran out without an outcome, as if it ended its process; with %d it is dead", plural(t.Crashes, "claim"), f.mostCrashes())
	}
}

// notAsked names what could not be read.
func (f *facts) notAsked(a *Answer) {
	if f.NoTypes != nil && !(f.Task == nil && f.Unread != nil) {
		a.notAsked(sentence("the biz types"), f.NoTypes)
	}
	if f.NoTurn != nil {
		a.notAsked(sentence("the tasks of the same biz_id"), f.NoTurn)
	}
	if f.NoEtcd != nil {
		what := sentence("etcd, which knows the owner of the table")
		if f.Group.Open {
			what = sentence("the session tables")
		}
		a.notAsked(what, f.NoEtcd)
	}
	for _, p := range f.Pages {
		switch {
		case f.report(p.Node) != nil: // another address of it has answered
		case p.Err != nil:
			a.notAsked(sentence("the status page of %s", nodeAt(p.Node, p.Address)), p.Err)
		case p.Node != "" && p.Report != nil && p.Report.Node != p.Node:
			a.unasked(sentence("the status page of %s: another node, %s, answers there: give the right address with --ask", nodeAt(p.Node, p.Address), p.Report.Node))
		}
	}
}

// nodeAt names a node and its address, as far as they are known.
func nodeAt(id, address string) Sentence {
	if id == "" || address == "" || id == address {
		return sentence("%s", cmp.Or(id, address))
	}
	return sentence("%s at %s", id, address)
}

// unhandled reports whether the biz type has no Go handler, but a callback or a broker.
func unhandled(p *biztype.Stored) bool { return p != nil && !p.Handled() }

// set makes a state the answer, if none was found before; otherwise its sentence is added.
func (a *Answer) set(state State, format string, args ...any) bool {
	if a.State != "" {
		a.also(format, args...)
		return false
	}
	a.State, a.Parts.Says = state, sentence(format, args...)
	a.Says = a.Parts.Says.Text
	return true
}

func (a *Answer) also(format string, args ...any) {
	says := sentence(format, args...)
	a.Also, a.Parts.Also = append(a.Also, says.Text), append(a.Parts.Also, says)
}

func (a *Answer) notAsked(what Sentence, err error) {
	a.unasked(sentence("%s: %s", what, OneLine(err)))
}

func (a *Answer) unasked(says Sentence) {
	a.Unasked, a.Parts.Unasked = append(a.Unasked, says.Text), append(a.Parts.Unasked, says)
}

// timeText is how a time stands in a sentence: UTC, as in the tables.
const timeText = "2006-01-02 15:04:05.000Z"

// at writes a time, and how far it is from now.
func (f *facts) at(t time.Time) instant {
	return instant{t, t.UTC().Format(timeText) + " (" + f.away(t) + ")"}
}

// dueAt writes the time that a task was added for.
func dueAt(t *tocsin.Info) instant { return instant{t.DueTime, t.DueTime.UTC().Format(timeText)} }

// away writes how far a time is from now.
func (f *facts) away(t time.Time) string {
	if d := t.Sub(f.Now); d > 0 {
		return "in " + Short(d)
	}
	return Short(f.Now.Sub(t)) + " ago"
}

// Short writes a duration in no more detail than people want.
func Short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
