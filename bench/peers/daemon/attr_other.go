//go:build unix && !linux

package daemon

import "syscall"

// childAttr keeps a terminal's Ctrl-C from the child.
func childAttr(user *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: user}
}
