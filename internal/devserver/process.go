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

// Process is a child that does not outlive this process.
type Process struct {
	Pid  int
	os   *os.Process
	done chan struct{} // closed by keep, after the child has ended
	err  error         // how it ended; to be read after done
}

// Launch starts cmd.
func Launch(cmd *exec.Cmd) (*Process, error) {
	p := &Process{done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = childAttr()
	}
	started := make(chan error, 1)
	go p.keep(cmd, started)
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// keep starts the child and stays with it to its end. The kernel sends the parent-death signal when the thread that
// forked ends, not the process; Go ends threads as it likes, so this one is locked for as long as the child lives.
// Whoever waits for done waits for this goroutine.
func (p *Process) keep(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.os, p.Pid = cmd.Process, cmd.Process.Pid
	started <- nil
	p.err = cmd.Wait()
}

// Signal sends s unless the child has ended. os.Process never hits a stranger that got the same pid.
func (p *Process) Signal(s syscall.Signal) error { return p.os.Signal(s) }

// Alive reports whether the child has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait returns how the child ended, or why ctx did.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("has not ended: %w", context.Cause(ctx))
	}
}

// Kill ends the child and waits for its end.
func (p *Process) Kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// shutDown asks the child to end and waits. A child that has not ended after StopTimeout is killed, which is an error
// that names it.
func (p *Process) shutDown(s syscall.Signal, name string) error {
	_ = p.Signal(s) // it may have ended
	limit := time.NewTimer(StopTimeout)
	defer limit.Stop()
	select {
	case <-p.done:
		return nil
	case <-limit.C:
		return errors.Join(fmt.Errorf("%s did not shut down within %s and was killed", name, StopTimeout), p.Kill())
	}
}

// await returns when the child is ready. If the child ends before, its log explains that.
func (p *Process) await(ctx context.Context, log *logTail, ready func(context.Context) bool) error {
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
