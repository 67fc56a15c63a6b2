package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// process is a child: this program, run again in a role, or another one.
type process struct {
	name string
	os   *os.Process
	done chan struct{} // closed when it has ended
	err  error         // how it ended; to be read after done
}

// spawn starts a role. What it prints goes to a log file.
func spawn(r role, logPath string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+r.encode(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return launch(r.Name, cmd, logPath)
}

// launch starts a program whose output is appended to a log file.
func launch(name string, cmd *exec.Cmd, logPath string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	p := &process{name: name, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.keep(cmd, log, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// keep starts the child and stays to its end, on one thread: the kernel sends the
// parent-death signal when the thread that forked ends. Whoever waits for done
// waits for it.
func (p *process) keep(cmd *exec.Cmd, log *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	defer func() { _ = log.Close() }()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.os = cmd.Process
	started <- nil
	p.err = cmd.Wait()
}

func (p *process) signal(s os.Signal) { _ = p.os.Signal(s) }

// kill ends it with SIGKILL and waits.
func (p *process) kill() {
	_ = p.os.Kill()
	<-p.done
}

// wait returns how it ended, or ctx's error.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("%s has not ended: %w", p.name, ctx.Err())
	}
}

// alive reports whether it has not ended by itself.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}
