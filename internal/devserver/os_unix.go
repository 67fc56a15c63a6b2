//go:build unix && !solaris && !illumos && !aix

package devserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// tryLock takes the lock without waiting; false means that somebody holds it. The lock ends with the last process
// that holds this open file, children included.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// isOurs reports whether the file belongs to the user of this process.
func isOurs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// fileLimit returns the hard limit of open files, to which a server may raise its own.
func fileLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return defaultFiles
	}
	return int(min(uint64(l.Max), maxFiles))
}

// explainListen turns a failed listen into ErrPortInUse if that is the reason.
func explainListen(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return ErrPortInUse
	}
	return fmt.Errorf("cannot be listened on: %w", err)
}

// notRoot returns the attributes of a child that is not root's, as PostgreSQL refuses to be: for root, those of the user
// postgres or nobody, who gets the folder. For others it returns nil.
func notRoot(folder string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("PostgreSQL refuses to run as root, and there is no other user for it: %w", err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	attr := childAttr()
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, os.Chown(folder, int(uid), int(gid))
}
