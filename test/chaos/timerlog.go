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

// The log of schedules and runs, which triggers write. {database} and {table} are full names.
const (
	makeLogSQL = `CREATE DATABASE IF NOT EXISTS chaos_log`

	// makeRevisedSQL makes the table of the schedules' revisions.
	makeRevisedSQL = `CREATE TABLE chaos_log.revised (
    seq         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at          DATETIME(6)     NOT NULL,
    schedule_id BIGINT UNSIGNED NOT NULL,
    revision    INT UNSIGNED    NOT NULL,
    state       VARCHAR(16)     NOT NULL,
    cron        VARCHAR(255)    NOT NULL,
    zone        VARCHAR(64)     NOT NULL,
    anchor      DATETIME(3)     NOT NULL,
    attribute   VARCHAR(8192)   NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin`

	// makeFiringSQL makes the table of the runs: made, ended, deleted.
	makeFiringSQL = `CREATE TABLE chaos_log.firing (
    seq         BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    what        CHAR(1)           NOT NULL,
    at          DATETIME(6)       NOT NULL,
    job_id      BIGINT UNSIGNED   NOT NULL,
    biz_id      BIGINT UNSIGNED   NOT NULL,
    dedup_key   VARBINARY(64)     NULL,
    status      TINYINT UNSIGNED  NOT NULL,
    action_time DATETIME(3)       NOT NULL,
    due_time    DATETIME(3)       NOT NULL,
    attempts    SMALLINT UNSIGNED NOT NULL,
    crashes     SMALLINT UNSIGNED NOT NULL,
    version     INT UNSIGNED      NOT NULL,
    last_error  VARCHAR(100)      NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin`

	// nowSQL is the time at which a trigger runs, in UTC. UTC_TIMESTAMP is when its statement began, and may have waited for a
	// lock since.
	nowSQL = `SYSDATE(6) + INTERVAL TIMESTAMPDIFF(MINUTE, NOW(), UTC_TIMESTAMP()) MINUTE`

	noteRevisedSQL = `INSERT INTO chaos_log.revised (at, schedule_id, revision, state, cron, zone, anchor, attribute)
    VALUES (` + nowSQL + `, NEW.schedule_id, NEW.revision, NEW.state, NEW.cron, NEW.zone, NEW.anchor, NEW.attribute)`

	onCreateSQL = `CREATE TRIGGER {database}.chaos_create AFTER INSERT ON {database}.schedule FOR EACH ROW
` + noteRevisedSQL

	onReviseSQL = `CREATE TRIGGER {database}.chaos_revise AFTER UPDATE ON {database}.schedule FOR EACH ROW
IF NEW.revision <> OLD.revision OR NEW.state <> OLD.state THEN
    ` + noteRevisedSQL + `;
END IF`

	// onForgetSQL notes the end of a schedule as a revision after the last one.
	onForgetSQL = `CREATE TRIGGER {database}.chaos_forget AFTER DELETE ON {database}.schedule FOR EACH ROW
INSERT INTO chaos_log.revised (at, schedule_id, revision, state, cron, zone, anchor, attribute)
    VALUES (` + nowSQL + `, OLD.schedule_id, OLD.revision + 1, '` + stateDeleted + `', OLD.cron, OLD.zone, OLD.anchor, OLD.attribute)`

	noteFiringSQL = `INSERT INTO chaos_log.firing (what, at, job_id, biz_id, dedup_key, status, action_time, due_time, attempts, crashes, version, last_error)
    VALUES `

	// onMakeSQL notes a run that is made, with its gmt_create in place of an error.
	onMakeSQL = `CREATE TRIGGER {database}.chaos_make_{no} AFTER INSERT ON {table} FOR EACH ROW
IF ORD(NEW.dedup_key) = 0 AND LENGTH(NEW.dedup_key) > 0 THEN
    ` + noteFiringSQL + `('m', ` + nowSQL + `, NEW.job_id, NEW.biz_id, NEW.dedup_key, NEW.status, NEW.action_time, NEW.due_time,
        NEW.attempts, NEW.crashes, NEW.version, CAST(NEW.gmt_create AS CHAR));
END IF`

	// onEndSQL notes the end of a row, each claim of it with the claimer, and each time that it is put off to.
	onEndSQL = `CREATE TRIGGER {database}.chaos_end_{no} AFTER UPDATE ON {table} FOR EACH ROW
IF NEW.status <> OLD.status AND NEW.status NOT IN (0, 1) THEN
    ` + noteFiringSQL + `('e', ` + nowSQL + `, NEW.job_id, NEW.biz_id, NULL, NEW.status, NEW.action_time, NEW.due_time,
        NEW.attempts, NEW.crashes, NEW.version, LEFT(NEW.last_error, 100));
ELSEIF NEW.status = 1 AND (OLD.status <> 1 OR NEW.claimed_by <> OLD.claimed_by) THEN
    ` + noteFiringSQL + `('c', ` + nowSQL + `, NEW.job_id, NEW.biz_id, NULL, NEW.status, NEW.action_time, NEW.due_time,
        NEW.attempts, NEW.crashes, NEW.version, LEFT(NEW.claimed_by, 100));
ELSEIF NEW.status = 0 AND NEW.action_time <> OLD.action_time THEN
    ` + noteFiringSQL + `('w', ` + nowSQL + `, NEW.job_id, NEW.biz_id, NULL, NEW.status, NEW.action_time, NEW.due_time,
        NEW.attempts, NEW.crashes, NEW.version, '');
END IF`

	onDeleteSQL = `CREATE TRIGGER {database}.chaos_delete_{no} AFTER DELETE ON {table} FOR EACH ROW
    ` + noteFiringSQL + `('d', ` + nowSQL + `, OLD.job_id, OLD.biz_id, NULL, OLD.status, OLD.action_time, OLD.due_time,
        OLD.attempts, OLD.crashes, OLD.version, '')`

	// readRevisedSQL and readFiringSQL read the log, oldest first.
	readRevisedSQL = `SELECT /* tocsin chaos */
    at,
    schedule_id,
    revision,
    state,
    cron,
    zone,
    anchor,
    attribute
FROM chaos_log.revised
ORDER BY seq`

	readFiringSQL = `SELECT /* tocsin chaos */
    what,
    at,
    job_id,
    biz_id,
    dedup_key,
    status,
    action_time,
    due_time,
    attempts,
    crashes,
    version,
    last_error
FROM chaos_log.firing
ORDER BY seq`

	// nextRunsSQL reads the next runs of a schedule. Parameters: biz_id, how many.
	nextRunsSQL = `SELECT /* tocsin chaos */
    job_id
FROM {table}
WHERE biz_id = ?
    AND status = 0
    AND dedup_key IS NOT NULL
ORDER BY action_time
LIMIT ?`

	// questionsSQL reads how many statements a server was sent.
	questionsSQL = `SHOW GLOBAL STATUS LIKE 'Questions'`
)
