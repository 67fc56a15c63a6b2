package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// seat is the place of a node or sweeper: its links stay, the process in it may
// end and be followed by another.
type seat struct {
	name    string
	servers []*link // by server number
	etcd    []*link // by member

	harm sync.Mutex // held by a fault of the process

	mu   sync.Mutex
	past int      // processes so far
	log  string   // of the present one
	page string   // its status page; "": it has none
	proc *process // nil: empty
}

func (s *Site) openSeat(name string) (*seat, error) {
	at := &seat{name: name}
	for _, d := range s.databases {
		l, err := s.links.open(fmt.Sprintf("%s-db%d", name, d.number), d.port)
		if err != nil {
			return nil, err
		}
		at.servers = append(at.servers, l)
	}
	for _, e := range s.etcd {
		l, err := s.links.open(name+"-"+e.cfg.Name, e.cfg.ClientPort)
		if err != nil {
			return nil, err
		}
		at.etcd = append(at.etcd, l)
	}
	return at, nil
}

// endpoints is etcd as the seat reaches it.
func (at *seat) endpoints() (all []string) {
	for _, l := range at.etcd {
		all = append(all, l.address())
	}
	return all
}

// sit starts a process in the seat, under a name that no other had before. It does
// nothing where one sits there: two faults may end at once.
func (s *Site) sit(at *seat, r role) error {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.proc != nil && at.proc.alive() {
		return nil
	}
	at.past++
	r.Name = fmt.Sprintf("%s-%d", at.name, at.past)
	if r.Node == "" {
		r.Node = r.Name
	}
	r.Outboxes, r.Runs = s.outboxes(), s.opts.Runs
	r.Tables, r.Etcd, r.Ownership, r.Timing = s.tables(at), at.endpoints(), s.opts.ownership(), s.opts.Timing
	r.Journal = filepath.Join(s.opts.Dir, r.Name+journalSuffix)
	at.log = filepath.Join(s.opts.Dir, r.Name+".log")
	proc, err := spawn(r, at.log)
	if err == nil {
		at.proc = proc
	}
	return err
}

func (s *Site) startNode(i int) error {
	r := role{Kind: roleNode}
	if s.opts.OneName {
		r.Node = s.seats[i].name
	}
	return s.sit(s.seats[i], r)
}

// startSweeper starts one that takes what is overdue by grace, again and again.
func (s *Site) startSweeper(grace time.Duration) error {
	return s.sit(s.sweeper, role{Kind: roleSweep, Grace: grace, Pause: 200 * time.Millisecond})
}

// startPurger starts one that deletes finished rows, if there are schedules.
func (s *Site) startPurger(context.Context) error {
	if s.purger == nil {
		return nil
	}
	return s.sit(s.purger, role{Kind: rolePurge, Pause: 500 * time.Millisecond})
}

// guard starts a node again each time that it ends by itself, until ctx ends.
func (s *Site) guard(ctx context.Context, i int) error {
	for {
		_ = s.seats[i].present().wait(ctx)
		if ctx.Err() != nil {
			return nil
		}
		end := s.incidents.begin(Step{Fault: EndedNode, Node: i})
		if err := s.startNode(i); err != nil {
			return err
		}
		end()
	}
}

// present is the process in the seat, nil if there is none.
func (at *seat) present() *process {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.proc
}

// kill ends the process in the seat with SIGKILL, frozen or not, and leaves the
// seat empty.
func (at *seat) kill() {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.proc != nil {
		at.proc.kill()
		at.proc = nil
	}
}

// term asks the process to leave and waits; its error tells how it ended.
func (at *seat) term(ctx context.Context) error {
	p := at.present()
	if p == nil {
		return nil
	}
	p.signal(leave)
	return p.wait(ctx)
}

// leave ends the process with SIGTERM and leaves the seat empty.
func (at *seat) leave(ctx context.Context) error {
	err := at.term(ctx)
	at.kill()
	return err
}

// freeze stops the process for a while.
func (at *seat) freeze(ctx context.Context, during time.Duration) {
	at.freezeUntil(func() { _ = wait.For(ctx, during) })
}

// freezeUntil stops the process until something has happened.
func (at *seat) freezeUntil(happens func()) {
	p := at.present()
	if p == nil {
		return
	}
	p.signal(freeze)
	defer p.signal(thaw)
	happens()
}

// close ends the seat's links.
func (at *seat) close() {
	for _, l := range slices.Concat(at.servers, at.etcd) {
		l.close()
	}
}
