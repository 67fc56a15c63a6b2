package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// diskSize is the size of that disk: a run writes a few megabytes to it.
const diskSize = "256m"

// smallDisk is a file system for the binary log of the sick server, which can be filled for real. Every commit waits
// while it is full, and up to a minute longer, since the server looks once a minute. (MariaDB does not survive a full
// disk of its tables: "Out of disk space in rollback" ends it, which is only another way to kill a server.)
type smallDisk struct {
	dir    string
	cannot string // why there is none; "": there is one
}

// lookAgain is how long after the end of the fault a commit may still wait.
const lookAgain = 90 * time.Second

// newSmallDisk mounts a disk, which only root can do.
func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	d := &smallDisk{dir: t.TempDir()}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+diskSize, "tmpfs", d.dir).CombinedOutput(); err != nil {
		d.cannot = fmt.Sprintf("not played, as no disk can be mounted, which only root may do: %v: %s", err, bytes.TrimSpace(out))
		return d
	}
	t.Cleanup(func() { // the servers have ended by then
		if out, err := exec.Command("umount", d.dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", d.dir, err, out)
		}
	})
	return d
}

// args makes the server write its binary log there.
func (d *smallDisk) args() []string {
	if d.cannot != "" {
		return nil
	}
	return []string{"--log-bin=" + filepath.Join(d.dir, "bin"), "--sync-binlog=1", "--binlog-format=ROW"}
}

func (d *smallDisk) filler() string { return filepath.Join(d.dir, "filler") }

// fill fills the disk.
func (d *smallDisk) fill() error {
	f, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	return f.Close()
}

// free empties the disk.
func (d *smallDisk) free() error {
	if err := os.Remove(d.filler()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
