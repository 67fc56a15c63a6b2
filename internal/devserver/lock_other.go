//go:build !unix || solaris || illumos || aix

package devserver

import (
	"io/fs"
	"os"
)

// tryLock always succeeds: without flock two servers in one folder are for the user to avoid.
func tryLock(*os.File) (bool, error) { return true, nil }

// isOurs is false, so that without locks nothing is taken for stale and removed.
func isOurs(fs.FileInfo) bool { return false }

// fileLimit returns what most systems allow.
func fileLimit() int { return defaultFiles }
