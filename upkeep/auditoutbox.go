package upkeep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/store"
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

// count adds a row to the last finding, if it is of that fault at that place, or to a new one.
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
