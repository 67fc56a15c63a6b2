package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// seat is the place of a process of the cluster: its links stay, the process in it may
// end and be followed by another.
type seat struct {
	name    string
	role    role
	servers []*link // by server number
	etcd    []*link // by member
	api     *link   // of a node: the way of all workers to its API; nil: there is none

	harm sync.Mutex // held by a fault of the process

	mu   sync.Mutex
	past int                // processes so far
	log  string             // of the present one
	page string             // where the real program shows its status page; "": nowhere
	proc *devserver.Process // nil: empty
}

// openLinks makes the seat's links to all servers and to etcd.
func (s *Site) openLinks(at *seat) error {
	for _, d := range s.databases {
		l, err := openLink(s.proxies, fmt.Sprintf("%s-db%d", at.name, d.number), d.server.Port())
		if err != nil {
			return err
		}
		at.servers = append(at.servers, l)
	}
	for i, e := range s.etcd {
		l, err := openLink(s.proxies, fmt.Sprintf("%s-etcd%d", at.name, i), e.Port())
		if err != nil {
			return err
		}
		at.etcd = append(at.etcd, l)
	}
	if s.opts.Program != "" && at.role.Kind == roleNode {
		l, err := openLink(s.proxies, at.name+"-api", devserver.FreePort())
		if err != nil {
			return err
		}
		at.api = l
	}
	return nil
}

// endpoints is etcd as the seat reaches it.
func (at *seat) endpoints() (all []string) {
	for _, l := range at.etcd {
		all = append(all, l.address)
	}
	return all
}

// sit starts a process in the seat, under a name that no other had before. It does
// nothing where one sits there: two faults may end at once.
func (s *Site) sit(at *seat) error {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.proc != nil && at.proc.Alive() {
		return nil
	}
	at.past++
	r := at.role
	r.Name = fmt.Sprintf("%s-%d", at.name, at.past)
	if r.Node == "" {
		r.Node = r.Name
	}
	r.Outboxes, r.Runs = s.outboxes(), s.opts.Runs
	if s.broker != nil {
		r.Broker, r.Address = s.opts.Broker, s.broker.Endpoint()
	}
	r.Tables, r.Etcd, r.Ownership, r.Timing = s.tables(at), at.endpoints(), s.opts.ownership(), s.opts.Timing
	r.Journal = filepath.Join(s.opts.Dir, r.Name+journalSuffix)
	at.log = filepath.Join(s.opts.Dir, r.Name+".log")
	for _, node := range s.seats {
		if node.api != nil {
			r.APIs = append(r.APIs, node.api.address)
		}
	}
	cmd, err := self(r)
	switch {
	case at.role.Kind != roleNode:
	case s.opts.serve != nil:
		cmd, err = s.opts.serve(at), nil
	case s.opts.Program != "":
		cmd, err = s.program(at)
	}
	if err != nil {
		return err
	}
	log, err := os.OpenFile(at.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd.Stdout, cmd.Stderr = log, log
	if at.proc, err = devserver.Launch(cmd); err != nil {
		return fmt.Errorf("start %s: %w", r.Name, err)
	}
	return nil
}

// self is this program in a role.
func self(r role) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(r)
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), roleEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return cmd, err
}

// present is the process in the seat, nil if there is none.
func (at *seat) present() *devserver.Process {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.proc
}

// counters are those of the process in the seat, as it told them last.
func (at *seat) counters() map[string]float64 {
	at.mu.Lock()
	defer at.mu.Unlock()
	return countersIn(at.log)
}

// kill ends the process in the seat with SIGKILL, frozen or not, and leaves the
// seat empty.
func (at *seat) kill() {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.proc != nil {
		_ = at.proc.Kill()
		at.proc = nil
	}
}

// term asks the process to leave and waits; its error tells how it ended.
func (at *seat) term(ctx context.Context) error {
	p := at.present()
	if p == nil {
		return nil
	}
	p.Signal(syscall.SIGTERM)
	if err := p.Wait(ctx); err != nil {
		return fmt.Errorf("%s: %w", at.name, err)
	}
	return nil
}

// close ends the seat's links.
func (at *seat) close() {
	for _, l := range slices.Concat(at.servers, at.etcd) {
		l.close()
	}
	if at.api != nil {
		at.api.close()
	}
}
