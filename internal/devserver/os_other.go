//go:build !unix || solaris || illumos || aix

package devserver

import (
	"io/fs"
	"os"
	"syscall"
)

// tryLock always succeeds: without flock two servers in one folder are for the user to avoid.
func tryLock(*os.File) (bool, error) { return true, nil }

// isOurs is false, so that without locks nothing is taken for stale and removed.
func isOurs(fs.FileInfo) bool { return false }

// fileLimit returns what most systems allow.
func fileLimit() int { return defaultFiles }

// explainListen takes every failed listen for a port in use.
func explainListen(error) error { return ErrPortInUse }

// notRoot leaves the child to the user of this process.
func notRoot(string) (*syscall.SysProcAttr, error) { return nil, nil }
