package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child that does not outlive this process.
type process struct {
	pid  int
	os   *os.Process
	done chan struct{} // closed by keep, after the child has ended
	err  error         // how it ended; to be read after done
}

// startProcess starts cmd. ended is called when the child has ended, before done is closed.
func startProcess(cmd *exec.Cmd, ended func()) (*process, error) {
	p := &process{done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = childAttr()
	}
	started := make(chan error, 1)
	go p.keep(cmd, started, ended)
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// keep starts the child and stays with it to its end. The kernel sends the parent-death signal when the thread that
// forked ends, not the process; Go ends threads as it likes, so this one is locked for as long as the child lives.
// Whoever waits for done waits for this goroutine.
func (p *process) keep(cmd *exec.Cmd, started chan<- error, ended func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.os, p.pid = cmd.Process, cmd.Process.Pid
	started <- nil
	p.err = cmd.Wait()
	ended()
}

// signal sends s unless the child has ended. os.Process never hits a stranger that got the same pid.
func (p *process) signal(s syscall.Signal) { _ = p.os.Signal(s) }

// kill ends the child and waits for its end.
func (p *process) kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// shutDown asks the child to end and waits. A child that has not ended after StopTimeout is killed, which is an error
// that names it.
func (p *process) shutDown(s syscall.Signal, name string) error {
	p.signal(s)
	limit := time.NewTimer(StopTimeout)
	defer limit.Stop()
	select {
	case <-p.done:
		return nil
	case <-limit.C:
		return errors.Join(fmt.Errorf("%s did not shut down within %s and was killed", name, StopTimeout), p.kill())
	}
}

// await returns when the child is ready. If the child ends before, its log explains that.
func (p *process) await(ctx context.Context, log *logTail, ready func(context.Context) bool) error {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", context.Cause(ctx))
		case <-p.done:
			return log.explain(cmp.Or(p.err, errEnded))
		case <-again.C:
			if ready(ctx) {
				return nil
			}
		}
	}
}
