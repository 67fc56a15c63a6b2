package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// leaseNote is a change of the row of a task that workers ask for, as its server noted it.
type leaseNote struct {
	At  time.Time
	Was tocsin.Status
	row
}

// String is for a breach's trace.
func (n leaseNote) String() string { return "at " + n.At.Format(clockForm) + " " + n.row.String() }

// watchLeases has the servers note each change of a task that workers ask for, in the transaction of whoever makes it. So a lease
// that never came to a worker is known too, and no clock but the server's counts.
func (s *Site) watchLeases(ctx context.Context) error {
	for _, d := range s.databases {
		for _, statement := range []string{makeLogSQL, makeLeaseSQL} {
			if err := d.exec(ctx, statement); err != nil {
				return err
			}
		}
	}
	for table := range s.opts.Layout.Total() {
		fill := strings.NewReplacer("{table}", s.opts.Layout.Table(table), "{database}", s.opts.Layout.Database(s.opts.Layout.DatabaseOf(table)), "{no}", strconv.Itoa(table))
		if err := s.databaseOf(table).exec(ctx, fill.Replace(onLeaseSQL)); err != nil {
			return err
		}
	}
	return nil
}

// readLeases reads what servers and workers noted of leases.
func (s *Site) readLeases(ctx context.Context) (err error) {
	e := s.log
	e.leases, e.asked = map[tocsin.JobID][]leaseNote{}, nil
	if s.opts.Workers == 0 {
		return nil
	}
	for _, d := range s.databases {
		notes, err := readAll[leaseNote](ctx, d.direct, d.String(), readLeaseSQL)
		if err != nil {
			return err
		}
		for _, n := range notes {
			e.leases[n.JobID] = append(e.leases[n.JobID], n)
		}
	}
	e.asked, err = readRequests(s.opts.Dir)
	return err
}

// hold is a lease of a task.
type hold struct {
	by       string // the claimer
	at       time.Time
	until    time.Time // with what a worker asked for
	attempts int
	version  uint32
	due      time.Time // when the task could be handed over
	lost     time.Time // when the lease before it began, or was extended last, that ran out; zero: it did not
	end      leaseNote // zero: it has none
}

// open reports whether the lease has no end.
func (h hold) open() bool { return h.end.At.IsZero() }

// ranOut reports whether the task was taken back.
func (h hold) ranOut() bool {
	return h.end.Status == tocsin.Pending && h.end.Attempts > h.attempts && strings.HasPrefix(h.end.LastError, "the lease ran out")
}

// String is for a breach's trace.
func (h hold) String() string {
	text := fmt.Sprintf("%s from %s until %s, the task was due %s", h.by, h.at.Format(clockForm), h.until.Format(clockForm), h.due.Format(clockForm))
	if h.open() {
		return text + ", no end"
	}
	return text + "\n    " + h.end.String()
}

// The log of leases, which triggers write. {database} and {table} are full names.
const (
	makeLeaseSQL = `CREATE TABLE chaos_log.lease (
    seq         BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at          DATETIME(6)       NOT NULL,
    was         TINYINT UNSIGNED  NOT NULL,
    job_id      BIGINT UNSIGNED   NOT NULL,
    status      TINYINT UNSIGNED  NOT NULL,
    action_time DATETIME(3)       NOT NULL,
    due_time    DATETIME(3)       NOT NULL,
    attempts    SMALLINT UNSIGNED NOT NULL,
    version     INT UNSIGNED      NOT NULL,
    claimed_by  VARCHAR(100)      NOT NULL,
    last_error  VARCHAR(100)      NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin`

	onLeaseSQL = `CREATE TRIGGER {database}.chaos_lease_{no} AFTER UPDATE ON {table} FOR EACH ROW
INSERT INTO chaos_log.lease (at, was, job_id, status, action_time, due_time, attempts, version, claimed_by, last_error)
    VALUES (` + nowSQL + `, OLD.status, NEW.job_id, NEW.status, NEW.action_time, NEW.due_time, NEW.attempts, NEW.version, NEW.claimed_by,
        LEFT(NEW.last_error, 100))`

	// readLeaseSQL reads the log, oldest first.
	readLeaseSQL = `SELECT /* tocsin chaos */
    at,
    was,
    job_id,
    status,
    action_time,
    due_time,
    attempts,
    version,
    claimed_by,
    last_error
FROM chaos_log.lease
ORDER BY seq`
)
