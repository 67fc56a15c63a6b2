package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/outbox"
)

// The faults of outboxes.
const (
	movedWithoutTask = "moved_without_task" // the ledger names a task that is not there, and no purge can have removed it
	notMoved         = "not_moved"          // a row that no relay has moved for longer than OutboxConfig.Older
	setAside         = "set_aside"          // such a row that a relay has set aside
)

// Bounds of an audit of outboxes.
const (
	leastOlder   = 5 * time.Minute
	purgeMargin  = time.Minute      // between the clock's reading and the look for a task
	policyMargin = time.Hour        // that a purge may work on under the policies of its start
	lookAgain    = 15 * time.Second // between two looks at rows that wait
	ledgerPage   = 2000
	outboxPage   = 500
	mostWaiting  = 100_000 // rows of one outbox that are looked at
)

// OutboxConfig of an audit of outboxes.
type OutboxConfig struct {
	Store    *store.Store // of the tasks, with their ledgers
	Outboxes []*outbox.Outbox
	Policies []biztype.Stored // of all biz types
	Older    time.Duration    // rows of an outbox wait so long at least before they are counted; 0: see olderOf
}

// olderOf is how long a row of an outbox may wait: five minutes, or twice the longest delivery and a minute, since a cancel
// waits for the delivery that it meets.
func olderOf(policies []biztype.Stored) time.Duration {
	older := leastOlder
	for _, p := range policies {
		older = max(older, 2*p.WithDefaults().Timeout.D()+time.Minute)
	}
	return older
}

// OutboxReport of one audit of outboxes.
type OutboxReport struct {
	Outboxes int             `json:"outboxes"` // read without an error
	Moved    int             `json:"moved"`    // tasks that the ledgers name, and that were looked for
	Purged   int             `json:"purged"`   // of them not there, and perhaps purged: nothing can be known
	Waiting  int             `json:"waiting"`  // rows of the outboxes that were read
	Faults   map[string]int  `json:"faults"`   // rows by fault
	Findings []OutboxFinding `json:"findings"`
	Failed   []string        `json:"failed"` // servers and outboxes that could not be read in full
	Cost     Cost            `json:"cost"`
}

// OutboxFinding counts rows of one outbox, or of one database's ledger, that have a fault.
type OutboxFinding struct {
	Where    string   `json:"where"` // name of the outbox; moved_without_task: of the database
	Fault    string   `json:"fault"`
	Rows     int      `json:"rows"`
	Examples []string `json:"examples"` // ids of rows; moved_without_task: job_ids; a few
}

// AuditOutboxes compares the ledgers with the tasks, and reads the outboxes for rows that no relay moves, all servers at
// the same time. It changes nothing. Its error joins those of the servers and outboxes that could not be read.
func AuditOutboxes(ctx context.Context, cfg OutboxConfig) (OutboxReport, error) {
	if cfg.Older == 0 {
		cfg.Older = olderOf(cfg.Policies)
	}
	start := time.Now()
	servers := cfg.Store.Servers()
	parts := make([]*outboxPart, 0, len(servers)+len(cfg.Outboxes))
	var all sync.WaitGroup
	begin := func(name string, look func(*outboxPart) error) {
		p := &outboxPart{OutboxConfig: cfg, name: name}
		parts = append(parts, p)
		all.Go(func() { p.err = look(p) })
	}
	for server, name := range servers {
		begin(name, func(p *outboxPart) error { return p.ledgers(ctx, server) })
	}
	for _, box := range cfg.Outboxes {
		begin(box.Name, func(p *outboxPart) error { return p.outbox(ctx, box) })
	}
	all.Wait()
	report := OutboxReport{Faults: map[string]int{}, Findings: []OutboxFinding{}, Failed: []string{}}
	var errs []error
	for i, p := range parts {
		report.add(p)
		if p.err != nil {
			errs = append(errs, fmt.Errorf("audit %s: %w", p.name, p.err))
		} else if i >= len(servers) {
			report.Outboxes++
		}
	}
	report.Cost.Took = time.Since(start)
	return report, errors.Join(errs...)
}

// add takes in what one outboxPart has found.
func (r *OutboxReport) add(p *outboxPart) {
	r.Moved += p.moved
	r.Purged += p.purged
	r.Waiting += p.waiting
	r.Findings = append(r.Findings, p.findings...)
	r.Cost.plus(p.cost)
	for _, f := range p.findings {
		r.Faults[f.Fault] += f.Rows
	}
	if p.err != nil {
		r.Failed = append(r.Failed, p.name)
	}
}

// outboxPart is the audit of one server's ledgers, or of one outbox, by one goroutine.
type outboxPart struct {
	OutboxConfig
	name                   string
	moved, purged, waiting int
	findings               []OutboxFinding
	cost                   Cost
	err                    error
}

// count adds a row to the finding of its fault at its place.
func (p *outboxPart) count(where, fault, example string) {
	at := slices.IndexFunc(p.findings, func(f OutboxFinding) bool { return f.Where == where && f.Fault == fault })
	if at < 0 {
		at = len(p.findings)
		p.findings = append(p.findings, OutboxFinding{Where: where, Fault: fault, Examples: []string{}})
	}
	f := &p.findings[at]
	f.Rows++
	if len(f.Examples) < maxExamples {
		f.Examples = append(f.Examples, example)
	}
}

// Ended returns the metrics of the audit. ok says that it read all.
func (r OutboxReport) Ended(ok bool) Ended {
	return Ended{Subsystem: "auditor_outbox", Took: r.Cost.Took, OK: ok && len(r.Findings) == 0, Figures: []Figure{
		{Name: "outboxes", Last: "Outboxes that the last audit of outboxes read without an error.", Value: r.Outboxes},
		{Name: "moved", Last: "Tasks moved from outboxes that the last audit of outboxes looked for.", Value: r.Moved},
		{Name: "purged", Last: "Tasks that the last audit of outboxes did not find, and that may have been purged.", Value: r.Purged},
		{Name: "waiting", Last: "Rows that the last audit of outboxes read in outboxes.", Value: r.Waiting},
		{Name: "failed", Last: "Servers and outboxes that the last audit of outboxes could not read in full.", Value: len(r.Failed)},
		faultsFigure("Rows with a fault that the last audit of outboxes found, by fault; faults that it did not find are left out.", r.Faults),
	}}
}

// What the ledger says, and what follows if the task is not there: a move stores both in one transaction, so the task was
// there. It is settled after it was moved and purged a retention later at the earliest. The ledger does not know the biz
// type, so the shortest retention of all counts; and a purge may still work under earlier policies for a while after a
// change. A task that is gone earlier than that was removed by something else: it is lost.

// ledgers looks for the tasks that the ledgers of one server name.
func (p *outboxPart) ledgers(ctx context.Context, server int) error {
	kept := p.kept()
	var errs []error
	for _, database := range p.Store.DatabasesOf(server) {
		errs = append(errs, p.ledger(ctx, server, database, kept))
	}
	return store.Join(errs...)
}

// kept returns whether a task that was moved can't have been purged.
func (p *outboxPart) kept() func(store.Relayed) bool {
	var shortest time.Duration
	var changed time.Time
	for i, policy := range p.Policies {
		if kept := policy.WithDefaults().Retention.D(); i == 0 || kept < shortest {
			shortest = kept
		}
		if policy.Changed.After(changed) {
			changed = policy.Changed
		}
	}
	return func(r store.Relayed) bool {
		return r.Age+purgeMargin < shortest && r.Moved.After(changed.Add(policyMargin))
	}
}

// ledger looks for the tasks of one ledger, page by page.
func (p *outboxPart) ledger(ctx context.Context, server, database int, kept func(store.Relayed) bool) error {
	after := store.RelayedKey{}
	return paged(ctx, func() (bool, error) {
		began := time.Now()
		rows, err := p.Store.Relayed(ctx, database, after, ledgerPage)
		p.cost.spent(1, len(rows), began)
		if err != nil || len(rows) == 0 {
			return false, err
		}
		after = rows[len(rows)-1].RelayedKey
		return len(rows) == ledgerPage, p.lookFor(ctx, server, database, rows, kept)
	})
}

// lookFor checks that the tasks of rows of the ledger are there, and counts those that are not.
func (p *outboxPart) lookFor(ctx context.Context, server, database int, rows []store.Relayed, kept func(store.Relayed) bool) error {
	ids, byID := make([]tocsin.JobID, len(rows)), make(map[tocsin.JobID]store.Relayed, len(rows))
	for i, r := range rows {
		ids[i], byID[r.JobID] = r.JobID, r
	}
	began := time.Now()
	absent, failed, err := p.Store.Absent(ctx, server, ids)
	p.cost.spent(1, 0, began)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if failed[r.JobID.Table()] == nil {
			p.moved++
		}
	}
	for _, id := range absent {
		if kept(byID[id]) {
			p.count(p.Store.Layout().Database(database), movedWithoutTask, id.String())
		} else {
			p.purged++
		}
	}
	return errors.Join(slices.Collect(maps.Values(failed))...)
}

// outbox looks for rows that no relay has moved. A row's age counts from its insert, and its transaction may have been open
// for longer than the bound and have committed a moment ago. So old rows are looked at twice: a relay that works has moved
// them by then.
func (p *outboxPart) outbox(ctx context.Context, box *outbox.Outbox) error {
	old, err := p.oldRows(ctx, box)
	if err != nil || len(old) == 0 {
		return err
	}
	if err := loop.Wait(ctx, lookAgain); err != nil {
		return err
	}
	return p.still(ctx, box, old)
}

// oldRows returns the rows that have waited for longer than the bound, without their payload.
func (p *outboxPart) oldRows(ctx context.Context, box *outbox.Outbox) (old []outbox.Row, err error) {
	after := uint64(0)
	err = paged(ctx, func() (bool, error) {
		began := time.Now()
		rows, err := box.List(ctx, after, outboxPage, false)
		p.cost.spent(1, len(rows), began)
		if err != nil || len(rows) == 0 {
			return false, err
		}
		p.waiting += len(rows)
		after = rows[len(rows)-1].ID
		for _, row := range rows {
			if row.Age > p.Older || row.Created.IsZero() && row.LastError != "" { // whose age is unknown
				row.Payload = ""
				old = append(old, row)
			}
		}
		return outbox.Full(rows, outboxPage) && p.waiting < mostWaiting, nil
	})
	return old, err
}

// still counts old rows that are in the outbox still, unless the ledger knows them: these are moved, and only have to be
// deleted.
func (p *outboxPart) still(ctx context.Context, box *outbox.Outbox, old []outbox.Row) error {
	session, err := box.Session(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	byDatabase := map[int][]outbox.Row{}
	for some := range slices.Chunk(old, outboxPage) {
		keys := make([]outbox.Key, len(some))
		for i, row := range some {
			keys[i] = row.Key
		}
		began := time.Now()
		present, err := session.Present(ctx, keys)
		p.cost.spent(1, 0, began)
		if err != nil {
			return err
		}
		for _, row := range some {
			database := p.Store.Layout().DatabaseOf(p.Store.Layout().TableOf(row.BizID))
			if present[row.Key] {
				byDatabase[database] = append(byDatabase[database], row)
			}
		}
	}
	var errs []error
	for _, database := range slices.Sorted(maps.Keys(byDatabase)) {
		errs = append(errs, p.unmoved(ctx, session.Identity, database, byDatabase[database]))
	}
	return errors.Join(errs...)
}

// unmoved counts rows for one database that do not stand in its ledger.
func (p *outboxPart) unmoved(ctx context.Context, identity string, database int, rows []outbox.Row) error {
	keys := make([]store.RelayedKey, len(rows))
	for i, row := range rows {
		keys[i] = store.RelayedKey{Outbox: identity, ID: row.ID, Created: row.Created.UTC().Format("2006-01-02 15:04:05.000000")}
	}
	began := time.Now()
	moved, err := p.Store.Noted(ctx, database, keys)
	p.cost.spent(1, 0, began)
	if err != nil {
		return err
	}
	for i, row := range rows {
		switch {
		case moved[keys[i]]:
		case row.LastError != "":
			p.count(p.name, setAside, strconv.FormatUint(row.ID, 10))
		default:
			p.count(p.name, notMoved, strconv.FormatUint(row.ID, 10))
		}
	}
	return nil
}
