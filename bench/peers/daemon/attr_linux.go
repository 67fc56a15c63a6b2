package daemon

import "syscall"

// childAttr makes the kernel kill the child with its parent, and keeps a
// terminal's Ctrl-C from it.
func childAttr(user *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: user}
}
