package chaos

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// revised is a revision of a schedule, as the server noted it when it was stored.
type revised struct {
	ID       tocsin.JobID `db:"schedule_id"`
	Revision uint32
	State    string
	Cron     string
	Zone     string
	Anchor   time.Time
	Payload  string `db:"attribute"`
	At       time.Time
}

// What the harness asks for of states: stateDeleted is what the server notes when a schedule is deleted.
const (
	stateActive  = "active"
	statePaused  = "paused"
	stateDeleted = "deleted"
)

func (r revised) active() bool { return r.State == stateActive }

// pauses reports whether a revision pauses the one before it. Nobody asks for that: whoever counts failed runs does it.
func (r revised) pauses(last revised) bool {
	return r.State == statePaused && last.active() && r.Cron == last.Cron && r.Zone == last.Zone && r.Payload == last.Payload
}

// String is for a breach's trace.
func (r revised) String() string {
	return fmt.Sprintf("revision %d stored %s: %s, %s in %s, anchor %s, payload %s", r.Revision, r.At.Format(clockForm), r.State, r.Cron, r.Zone,
		r.Anchor.Format(clockForm), r.Payload)
}

// end is a final state of a run, as the server noted it.
type end struct {
	row
	at time.Time
}

// claim is a claim of a run, as the server noted it.
type claim struct {
	by string
	at time.Time
}

// putOff is a change of a pending run's action_time, as the server noted it.
type putOff struct{ at, until time.Time }

// firing is a run, as the server noted it when it was made.
type firing struct {
	JobID    tocsin.JobID
	BizID    uint64
	Schedule tocsin.JobID
	Revision uint32    // of the schedule; ofHand and ofBackfill: the run was made by hand
	Fire     time.Time // the nominal time; ofHand nothing
	Due      time.Time
	Made     time.Time
	Created  time.Time // its gmt_create, by which runs are ordered: earlier than Made if its statement took long
	claims   []claim
	waits    []putOff
	ends     []end
	gone     time.Time // when its row was deleted; zero: it is there

	trace string // of its schedule, for a breach
}

// The revisions in the keys of runs that were made by hand: by run-now, and by a backfill.
const (
	ofHand     = 1<<32 - 1
	ofBackfill = 1<<32 - 2
)

// byHand reports whether somebody asked for the run.
func (f *firing) byHand() bool { return f.Revision >= ofBackfill }

// time is from when on the run may begin.
func (f *firing) time() time.Time { return laterOf(f.Due, f.Created) }

// endedBy reports whether the run had a final state at a time.
func (f *firing) endedBy(t time.Time) bool { return len(f.ends) > 0 && !f.ends[0].at.After(t) }

// String is for a breach's trace.
func (f *firing) String() string {
	text := fmt.Sprintf("job_id %s, revision %d, for %s, due %s, made %s", f.JobID, f.Revision, f.Fire.Format(clockForm), f.Due.Format(clockForm), f.Made.Format(clockForm))
	for _, c := range f.claims {
		text += "\n  at " + c.at.Format(clockForm) + " claimed by " + c.by
	}
	for _, w := range f.waits {
		text += "\n  at " + w.at.Format(clockForm) + " put off to " + w.until.Format(clockForm)
	}
	for _, e := range f.ends {
		text += "\n  at " + e.at.Format(clockForm) + " " + e.row.String()
	}
	if !f.gone.IsZero() {
		text += "\n  deleted " + f.gone.Format(clockForm)
	}
	return text + "\n  " + f.trace
}

// last is the run's final state; false: it has none.
func (f *firing) last() (end, bool) {
	if len(f.ends) == 0 {
		return end{row: row{JobID: f.JobID, BizID: f.BizID, Due: f.Due}}, false
	}
	return f.ends[len(f.ends)-1], true
}

// runKey reads a run's dedup_key: a zero byte, the schedule_id, its revision, the nominal time in Unix ms. False: it is a
// user's.
func runKey(key []byte) (schedule tocsin.JobID, revision uint32, fire time.Time, ok bool) {
	if len(key) != 21 || key[0] != 0 {
		return 0, 0, fire, false
	}
	schedule, revision = tocsin.JobID(binary.BigEndian.Uint64(key[1:])), binary.BigEndian.Uint32(key[9:])
	if revision != ofHand {
		fire = time.UnixMilli(int64(binary.BigEndian.Uint64(key[13:]))).UTC()
	}
	return schedule, revision, fire, true
}

// watchRuns has the servers note, in the transactions of whoever does it, which revisions of schedules are stored and which
// runs are made, end, and are deleted. So a run that lives for a moment only is not overlooked, and no clock but the
// server's counts.
func (s *Site) watchRuns(ctx context.Context) error {
	for _, d := range s.databases {
		for _, statement := range []string{makeLogSQL, makeRevisedSQL, makeFiringSQL} {
			if err := d.exec(ctx, statement); err != nil {
				return err
			}
		}
	}
	for db := range s.opts.Layout.Databases {
		for _, statement := range []string{onCreateSQL, onReviseSQL, onForgetSQL} {
			name := s.opts.Layout.Database(db)
			if err := s.databases[db%len(s.databases)].exec(ctx, strings.ReplaceAll(statement, "{database}", name)); err != nil {
				return err
			}
		}
	}
	for table := range s.opts.Layout.Total() {
		fill := strings.NewReplacer("{table}", s.opts.Layout.Table(table), "{database}", s.opts.Layout.Database(s.opts.Layout.DatabaseOf(table)), "{no}", strconv.Itoa(table))
		for _, statement := range []string{onMakeSQL, onEndSQL, onDeleteSQL} {
			if err := s.databaseOf(table).exec(ctx, fill.Replace(statement)); err != nil {
				return err
			}
		}
	}
	return nil
}

// note is a line of a server's log of runs. Its last_error is that of an end, or who made a claim.
type note struct {
	What string
	At   time.Time
	Key  []byte `db:"dedup_key"`
	row
}

// readNotes reads what the servers noted of schedules and their runs.
func (s *Site) readNotes(ctx context.Context) error {
	e := s.log
	e.revisions, e.runs = map[tocsin.JobID][]revised{}, map[tocsin.JobID]*firing{}
	if !s.opts.Runs {
		return nil
	}
	for _, d := range s.databases {
		revisions, err := readAll[revised](ctx, d.direct, d.String(), readRevisedSQL)
		if err != nil {
			return err
		}
		for _, r := range revisions {
			e.revisions[r.ID] = append(e.revisions[r.ID], r)
		}
		notes, err := readAll[note](ctx, d.direct, d.String(), readFiringSQL)
		if err != nil {
			return err
		}
		for _, n := range notes {
			e.note(n.What, n.At, n.Key, n.row)
		}
	}
	return nil
}

// What the server notes of a run.
const (
	noteMade    = "m"
	noteClaimed = "c"
	notePutOff  = "w"
	noteEnd     = "e"
)

// note takes a line of the log. Tasks that are no runs are left out.
func (e *evidence) note(what string, at time.Time, key []byte, r row) {
	if what == noteMade {
		if schedule, revision, fire, ok := runKey(key); ok {
			f := &firing{JobID: r.JobID, BizID: r.BizID, Schedule: schedule, Revision: revision, Fire: fire, Due: r.Due, Made: at, Created: at}
			if created, err := time.Parse(time.DateTime, r.LastError); err == nil {
				f.Created = created
			}
			e.runs[r.JobID] = f
		}
		return
	}
	switch f := e.runs[r.JobID]; {
	case f == nil:
	case what == noteClaimed:
		f.claims = append(f.claims, claim{r.LastError, at})
	case what == notePutOff:
		f.waits = append(f.waits, putOff{at, r.Action})
	case what == noteEnd:
		f.ends = append(f.ends, end{r, at})
	default:
		f.gone = at
	}
}
