package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/store"
)

// The faults of outboxes.
const (
	MovedWithoutTask = "moved_without_task" // the ledger names a task that is not there, and no purge can have removed it
	NotMoved         = "not_moved"          // a row that no relay has moved for longer than OutboxConfig.Older
	SetAside         = "set_aside"          // such a row that a relay has set aside
)

// Bounds of an audit of outboxes.
const (
	leastOlder    = 5 * time.Minute
	purgeMargin   = time.Minute // between the clock's reading and the look for a task
	policyMargin  = time.Hour   // that a purge may work on under the policies of its start
	DefaultSettle = 15 * time.Second
	ledgerPage    = 2000
	outboxPage    = 500
	mostWaiting   = 100_000 // rows of one outbox that are looked at
)

// Ledgers is what an audit of outboxes reads of the servers of the tasks.
type Ledgers interface {
	Relayed(ctx context.Context, server, database int, after store.RelayedKey, limit int) ([]store.Relayed, error)
	Noted(ctx context.Context, server, database int, keys []store.RelayedKey) (map[store.RelayedKey]bool, error)
	Absent(ctx context.Context, server int, ids []tocsin.JobID) (absent []tocsin.JobID, failed map[int]error, err error)
}

// OutboxConfig of an audit of outboxes.
type OutboxConfig struct {
	Ledgers  Ledgers
	Outboxes []*outbox.Outbox
	Servers  []string               // of the tasks: names, by index
	TablesOf func(server int) []int // table numbers on a server
	ServerOf func(table int) int
	Layout   tocsin.Layout
	Policies []biztype.Stored // of all biz types
	Older    time.Duration    // rows of an outbox wait so long at least before they are counted; 0: see OlderOf
	Settle   time.Duration    // between two looks at such rows; 0: 15 s
}

// OlderOf is how long a row of an outbox may wait: five minutes, or twice the longest delivery and a minute, since a cancel
// waits for the delivery that it meets.
func OlderOf(policies []biztype.Stored) time.Duration {
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
		cfg.Older = OlderOf(cfg.Policies)
	}
	if cfg.Settle == 0 {
		cfg.Settle = DefaultSettle
	}
	start := time.Now()
	parts := make([]*part, 0, len(cfg.Servers)+len(cfg.Outboxes))
	var all sync.WaitGroup
	begin := func(name string, look func(*part, context.Context)) {
		p := &part{OutboxConfig: cfg, name: name}
		parts = append(parts, p)
		all.Go(func() { look(p, ctx) })
	}
	for server, name := range cfg.Servers {
		begin(name, func(p *part, ctx context.Context) { p.ledgers(ctx, server) })
	}
	for _, box := range cfg.Outboxes {
		begin(box.Name, func(p *part, ctx context.Context) { p.outbox(ctx, box) })
	}
	all.Wait()
	report := OutboxReport{Faults: map[string]int{}, Findings: []OutboxFinding{}, Failed: []string{}}
	var errs []error
	for i, p := range parts {
		report.add(p)
		if len(p.errs) > 0 {
			errs = append(errs, fmt.Errorf("audit %s: %w", p.name, tablewalk.Join(p.errs...)))
		} else if i >= len(cfg.Servers) {
			report.Outboxes++
		}
	}
	report.Cost.Took = time.Since(start)
	return report, errors.Join(errs...)
}

// add takes in what one part has found.
func (r *OutboxReport) add(p *part) {
	r.Moved += p.moved
	r.Purged += p.purged
	r.Waiting += p.waiting
	r.Findings = append(r.Findings, p.findings...)
	r.Cost.plus(p.cost)
	for _, f := range p.findings {
		r.Faults[f.Fault] += f.Rows
	}
	if len(p.errs) > 0 {
		r.Failed = append(r.Failed, p.name)
	}
}

// part is the audit of one server's ledgers, or of one outbox, by one goroutine.
type part struct {
	OutboxConfig
	name                   string
	moved, purged, waiting int
	findings               []OutboxFinding
	cost                   Cost
	errs                   []error
}

// count adds a row to the last finding, if it is of that fault at that place, or to a new one.
func (p *part) count(where, fault, example string) {
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

// timed counts a statement, and how long it took.
func (p *part) timed(rows int, began time.Time) time.Duration {
	took := time.Since(began)
	p.cost.plus(Cost{Statements: 1, Rows: rows, Busy: took})
	return took
}

func text(id uint64) string { return strconv.FormatUint(id, 10) }
