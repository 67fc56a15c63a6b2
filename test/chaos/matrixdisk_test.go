package chaos

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// lookAgain is how long after the end of a full disk a commit may still wait.
const lookAgain = 90 * time.Second

// smallDisk mounts a disk until the test's servers have ended. cannot says why there is none; "": there is one.
func smallDisk(t *testing.T) (disk *devserver.SmallDisk, cannot string) {
	t.Helper()
	disk, err := devserver.MountSmallDisk(t.TempDir())
	if err != nil {
		return nil, "not played: " + err.Error()
	}
	t.Cleanup(func() {
		if err := disk.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return disk, ""
}
