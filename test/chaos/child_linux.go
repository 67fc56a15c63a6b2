package chaos

import (
	"os"
	"syscall"
)

// The signals that freeze a process and let it go on.
var (
	freeze os.Signal = syscall.SIGSTOP
	thaw   os.Signal = syscall.SIGCONT
	leave  os.Signal = syscall.SIGTERM
)

// supported reports whether processes can be frozen here.
const supported = true

// childAttr makes the kernel kill a child, a frozen one too, with its parent.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
