package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startWithin  = 30 * time.Second
	stopWithin   = 10 * time.Second
	answerEvery  = 5 * time.Millisecond
	portAttempts = 5
	firstPort    = 20000 // below the ports that kernels hand out
	ports        = 12000
	logTail      = 400 // bytes of a log that an error quotes
)

// Server is a private server process. Its methods may be called from any
// goroutine.
type Server struct {
	version string
	dir     string
	addr    string
	ask     syscall.Signal // ends it
	process *os.Process
	done    chan struct{} // closed when the process has ended

	once sync.Once
	err  error
}

// Addr is where it listens, "127.0.0.1:port".
func (s *Server) Addr() string { return s.addr }

// Version is what the program says of itself.
func (s *Server) Version() string { return s.version }

// Stop ends the server, waits for its end and removes its folder. It may be
// called again.
func (s *Server) Stop() error {
	s.once.Do(func() {
		if s.process != nil {
			s.end()
		}
		s.err = os.RemoveAll(s.dir)
	})
	return s.err
}

// end asks, and kills whoever does not listen.
func (s *Server) end() {
	_ = s.process.Signal(s.ask) // it may have ended
	limit := time.NewTimer(stopWithin)
	defer limit.Stop()
	select {
	case <-s.done:
	case <-limit.C:
		_ = s.process.Kill()
		<-s.done
	}
}

// spec is how one kind of server is run.
type spec struct {
	program, pkg string
	versionFlag  string
	ask          syscall.Signal
	user         *syscall.Credential                               // nil: this process's
	prepare      func(ctx context.Context, path, dir string) error // before the start, once; nil: nothing to do
	args         func(dir string, port int) []string               // of the server
	ready        func(ctx context.Context, addr string) error      // asked until it is; nil: when the port is open
}

// start runs a server, and returns when it answers.
func (sp spec) start(ctx context.Context) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	path, err := find(sp.program, sp.pkg)
	if err != nil {
		return nil, err
	}
	s := &Server{ask: sp.ask}
	if s.version, err = version(path, sp.versionFlag); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "peers-"+sp.program+"-"); err != nil {
		return nil, err
	}
	if err := sp.launch(ctx, s, path); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", sp.program, err), s.Stop())
	}
	return s, nil
}

// launch prepares the folder and tries ports until one is the server's.
func (sp spec) launch(ctx context.Context, s *Server, path string) error {
	if sp.user != nil {
		if err := os.Chown(s.dir, int(sp.user.Uid), int(sp.user.Gid)); err != nil {
			return err
		}
	}
	if sp.prepare != nil {
		if err := sp.prepare(ctx, path, s.dir); err != nil {
			return err
		}
	}
	var err error
	for range portAttempts {
		if err = sp.onPort(ctx, s, path, freePort()); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// onPort starts the process; on an error it has ended.
func (sp spec) onPort(ctx context.Context, s *Server, path string, port int) error {
	log := filepath.Join(s.dir, "log")
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the process has its own
	cmd := exec.Command(path, sp.args(s.dir, port)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, out, out
	cmd.SysProcAttr = childAttr(sp.user)
	s.addr, s.done = net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), make(chan struct{})
	if s.process, err = keep(cmd, s.done); err != nil {
		return err
	}
	if err := sp.await(ctx, s); err != nil {
		s.end()
		return fmt.Errorf("%w: %s", err, tail(log))
	}
	return nil
}

// keep starts the process and stays with it to its end: Linux sends the
// parent-death signal when the thread that forked ends, and Go ends threads as
// it likes, so this one is locked. Whoever waits for done waits for the goroutine.
func keep(cmd *exec.Cmd, done chan struct{}) (*os.Process, error) {
	started := make(chan error, 1)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	err := <-started
	return cmd.Process, err
}

// await returns when the server answers, or has ended.
func (sp spec) await(ctx context.Context, s *Server) error {
	ready := sp.ready
	if ready == nil {
		ready = dial
	}
	again := time.NewTicker(answerEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		case <-s.done:
			return errors.New("ended at once")
		case <-again.C:
			if ready(ctx, s.addr) == nil {
				return nil
			}
		}
	}
}

func dial(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// freePort returns one that nobody listens on, as far as a hundred looks tell.
func freePort() (port int) {
	for range 100 {
		port = firstPort + rand.IntN(ports)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			break
		}
	}
	return port
}

// tail is the end of a log, in one line.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	text = text[max(len(text)-logTail, 0):]
	return strings.Join(strings.Fields(string(text)), " ")
}
