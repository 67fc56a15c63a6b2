//go:build !linux

package chaos

import (
	"os"
	"syscall"
)

// Without the signals of Linux nothing is frozen: Start refuses.
var freeze, thaw, leave os.Signal = os.Kill, os.Kill, os.Kill

const supported = false

func childAttr() *syscall.SysProcAttr { return nil }
