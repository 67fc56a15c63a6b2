//go:build unix

package devserver

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// otherUser makes root run the commands as the user postgres or nobody, and gives that user the folder: PostgreSQL refuses
// to be root's. It does nothing for others than root.
func otherUser(folder string, commands ...*exec.Cmd) error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return fmt.Errorf("PostgreSQL refuses to run as root, and there is no other user for it: %w", err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	for _, cmd := range commands {
		cmd.SysProcAttr = childAttr()
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return os.Chown(folder, int(uid), int(gid))
}
