package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// StopTimeout bounds a clean shutdown of a server; after it the process is killed.
const StopTimeout = 20 * time.Second

const (
	portAttempts = 5                    // to find ports that nobody takes between the choice and the server's bind
	lookEvery    = 5 * time.Millisecond // at a server that starts
)

// spec describes a server: the kind, and what its caller wants of it.
type spec struct {
	name string   // "etcd", in messages; in lower case it begins the name of a temporary folder
	path string   // of the program
	dir  string   // the server's folder; "": a temporary one, which Stop removes
	env  []string // nil: that of this process

	ports []int           // that it listens on, the one for clients first; 0 picks a free one
	args  func() []string // of the server; called when the ports are chosen

	prepare func(context.Context) error // makes the data before the first launch; nil: there is nothing to make
	ready   string                      // part of the log line by which it is ready; "": it is ready when its port is open
	failure func(line string) string    // returns the error in a log line, or ""; nil: every line is one
	quit    syscall.Signal              // ends a server with a temporary folder; 0: SIGKILL

	versionFlag string // by which the program prints its version; "": --version
}

// server is a private server in a process of its own. The exported types embed it. Its methods may be called at any time from
// any goroutine, unless they say otherwise.
type server struct {
	spec
	folder  *folder
	folders []*folder // further ones that go with it
	log     *logTail
	logFile *os.File             // error.log in the folder
	attr    *syscall.SysProcAttr // of its processes; nil: childAttr
	bound   []int                // the ports of the last launch

	mu   sync.Mutex
	proc *Process // of the last launch, nil before; guarded by mu

	stopOnce sync.Once
	stopErr  error
}

// start starts the server and returns when it is ready. After an error nothing is left of it. ctx bounds the start, not the
// server's life.
func (s *server) start(ctx context.Context) (err error) {
	for _, port := range s.ports {
		if port == 0 {
			continue
		}
		if err := probePort(port); err != nil {
			return err
		}
	}
	if s.folder, err = openFolder(ctx, s.dir, strings.ToLower(s.name)); err != nil {
		return err
	}
	if err := s.startInFolder(ctx); err != nil {
		return errors.Join(fmt.Errorf("start %s in %s: %w", s.name, s.folder.path, err), s.Stop())
	}
	return nil
}

func (s *server) startInFolder(ctx context.Context) (err error) {
	s.logFile, err = os.OpenFile(filepath.Join(s.folder.path, "error.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	s.log = &logTail{dst: s.logFile, ready: s.ready, failure: s.failure}
	if s.prepare != nil {
		if err := s.prepare(ctx); err != nil {
			return fmt.Errorf("make its data: %w", err)
		}
	}
	for attempt := 1; ; attempt++ {
		s.bound = slices.Clone(s.ports)
		for i, port := range s.bound {
			s.bound[i] = cmp.Or(port, FreePort())
		}
		err := s.launch(ctx)
		if err == nil || !slices.Contains(s.ports, 0) || attempt == portAttempts || !s.log.portTaken() {
			return err
		}
	}
}

// launch starts the process and waits until it is ready; on an error the process has ended.
func (s *server) launch(ctx context.Context) error {
	s.log.reset()
	proc, err := Launch(s.command(s.path, s.args()...))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
	if err := proc.await(ctx, s.log, s.isReady); err != nil {
		return errors.Join(err, s.abandon())
	}
	return nil
}

// command returns the command that runs the server, or a program that makes its data. The process inherits the folder's lock: the
// folder is in use until all of them have ended.
func (s *server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.folder.path, s.env, s.attr
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.ExtraFiles = []*os.File{s.folder.lock}
	return cmd
}

// run runs cmd to its end, or until ctx ends.
func (s *server) run(ctx context.Context, cmd *exec.Cmd) error {
	proc, err := Launch(cmd)
	if err != nil {
		return err
	}
	select {
	case <-proc.done:
		return s.log.explain(proc.err)
	case <-ctx.Done():
		_ = proc.Kill()
		return context.Cause(ctx)
	}
}

func (s *server) isReady(ctx context.Context) bool {
	if s.ready != "" {
		return s.log.isReady()
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Endpoint())
	return err == nil && conn.Close() == nil
}

func (s *server) process() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// Dir returns the server's folder.
func (s *server) Dir() string { return s.folder.path }

// Port returns the TCP port of its clients on 127.0.0.1.
func (s *server) Port() int { return s.bound[0] }

// Endpoint returns the address of its clients, "127.0.0.1:port".
func (s *server) Endpoint() string { return loopback(s.bound[0]) }

// Version returns the first line that the program prints about its version; "unknown" if it prints none.
func (s *server) Version() string {
	out, _ := exec.Command(s.path, cmp.Or(s.versionFlag, "--version")).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return cmp.Or(strings.TrimSpace(line), "unknown")
}

// Pid returns the process id of the server.
func (s *server) Pid() int { return s.process().Pid }

// Signal sends a signal to the server, unless it has ended.
func (s *server) Signal(what syscall.Signal) error { return s.process().Signal(what) }

// Kill ends the server with SIGKILL and waits. The data stays, and Restart brings it back. Stop is still to be called.
func (s *server) Kill() error { return s.process().Kill() }

// Restart launches a server that was killed, on its ports and with what it held, and returns when it is ready. Do not call it
// concurrently with Kill or Stop.
func (s *server) Restart(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return fmt.Errorf("restart %s in %s: %w", s.name, s.folder.path, err)
	}
	return nil
}

// Stop shuts the server down, waits, and removes a temporary folder. A server with a temporary folder is ended at once, as
// nobody will see its data again. Stop may be called again and then returns the same.
func (s *server) Stop() error {
	s.stopOnce.Do(func() {
		var errs []error
		if s.process() != nil {
			errs = append(errs, s.end())
		}
		if s.logFile != nil {
			errs = append(errs, s.logFile.Close())
		}
		for _, f := range append(s.folders, s.folder) {
			errs = append(errs, f.close())
		}
		s.stopErr = errors.Join(errs...)
	})
	return s.stopErr
}

// end returns when the process has ended, at the latest StopTimeout and a kill later.
func (s *server) end() error {
	if s.folder.temporary {
		return s.abandon()
	}
	return s.process().shutDown(syscall.SIGTERM, s.name+" in "+s.folder.path)
}

// abandon ends the process at once.
func (s *server) abandon() error {
	if s.quit == 0 {
		return s.process().Kill()
	}
	return s.process().shutDown(s.quit, s.name+" in "+s.folder.path)
}
