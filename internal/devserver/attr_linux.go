package devserver

import "syscall"

// childAttr makes the kernel kill the child with its parent, and keeps a terminal's Ctrl-C from it: the parent decides
// when the child ends. The kernel forgets the parent-death signal when the child changes its user, which is why a
// server of root stays root's (see commonArgs).
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
