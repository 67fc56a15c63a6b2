package devserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	tempPrefix = "tocsin-" // of every temporary folder; its lock is held as long as somebody needs it
	newPrefix  = "new-"    // of a temporary folder whose lock is not yet held
	lockName   = "lock"

	lockWait  = 3 * time.Second       // for a server whose parent has just been killed
	lockRetry = 10 * time.Millisecond // between two attempts at a lock
)

// ErrFolderInUse says that another server runs in the folder.
var ErrFolderInUse = errors.New("is in use by another server")

// folder is a server's own folder, locked against others as long as its server or the parent of that lives.
type folder struct {
	path      string
	temporary bool
	lock      *os.File
}

// openFolder makes and locks the folder dir, or a temporary one for kind if dir is "".
func openFolder(ctx context.Context, dir, kind string) (*folder, error) {
	if dir == "" {
		removeStale(os.TempDir())
		return newTempFolder(kind)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := awaitLock(ctx, f); err != nil {
		return nil, errors.Join(fmt.Errorf("folder %s %w", dir, err), f.Close())
	}
	return &folder{path: dir, lock: f}, nil
}

// awaitLock takes the lock; it waits a moment for a server that is just dying.
func awaitLock(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, ErrFolderInUse)
	defer cancel()
	retry := time.NewTicker(lockRetry)
	defer retry.Stop()
	for {
		if ok, err := tryLock(f); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-retry.C:
		}
	}
}

// newTempFolder makes a temporary folder. It gets its real name only when its lock is held, so that nobody else takes
// it for stale before.
func newTempFolder(kind string) (*folder, error) {
	fresh, err := os.MkdirTemp("", newPrefix+tempPrefix+kind+"-")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(fresh, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := tryLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	path := filepath.Join(filepath.Dir(fresh), strings.TrimPrefix(filepath.Base(fresh), newPrefix))
	if err := os.Rename(fresh, path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &folder{path: path, temporary: true, lock: f}, nil
}

// removeStale removes the temporary folders of this user whose lock nobody holds: their parent was killed. Errors are
// left to the next start, which tries again.
func removeStale(parent string) {
	paths, _ := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && info.IsDir() && isOurs(info) {
			removeIfStale(path)
		}
	}
}

// removeIfStale removes the folder if its lock is free. An empty one without a lock is the rest of a removal.
func removeIfStale(path string) {
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(path) // fails unless it is empty
		return
	}
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if ok, _ := tryLock(f); ok {
		_ = removeLocked(path)
	}
}

// removeLocked removes the folder, its lock last, so that what an interruption leaves is still known as ours.
func removeLocked(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == lockName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(path)
}

// close removes a temporary folder and releases the lock.
func (f *folder) close() error {
	defer func() { _ = f.lock.Close() }()
	if !f.temporary {
		return nil
	}
	return removeLocked(f.path)
}
