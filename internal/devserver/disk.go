package devserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// diskSize is the size of a SmallDisk: a run of tests writes a few megabytes to it.
const diskSize = "256m"

// SmallDisk is a file system for the binary log of a server, which can be filled for real. Every commit waits while it is
// full, and up to a minute longer, since the server looks once a minute. (MariaDB does not survive a full disk of its tables:
// "Out of disk space in rollback" ends it, which is only another way to kill a server.)
type SmallDisk struct{ dir string }

// MountSmallDisk mounts a disk at dir, which only root on Linux can do. Unmount it when the server has ended.
func MountSmallDisk(dir string) (*SmallDisk, error) {
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+diskSize, "tmpfs", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("no disk can be mounted, which only root may do: %w: %s", err, bytes.TrimSpace(out))
	}
	return &SmallDisk{dir}, nil
}

// Args make a server write its binary log there. Of nil, there are none.
func (d *SmallDisk) Args() []string {
	if d == nil {
		return nil
	}
	return []string{"--log-bin=" + filepath.Join(d.dir, "bin"), "--sync-binlog=1", "--binlog-format=ROW"}
}

func (d *SmallDisk) filler() string { return filepath.Join(d.dir, "filler") }

// Fill fills the disk.
func (d *SmallDisk) Fill() error {
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

// Free makes room again.
func (d *SmallDisk) Free() error {
	if err := os.Remove(d.filler()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Unmount removes the disk. Of nil, it does nothing.
func (d *SmallDisk) Unmount() error {
	if d == nil {
		return nil
	}
	if out, err := exec.Command("umount", d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("umount %s: %w: %s", d.dir, err, bytes.TrimSpace(out))
	}
	return nil
}
