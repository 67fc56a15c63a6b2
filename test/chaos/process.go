package chaos

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// spawn starts this program again, in a role. What it prints goes to a log file.
func spawn(r role, logPath string) (*devserver.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+r.encode(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return launch(r.Name, cmd, logPath)
}

// launch starts a program whose output is appended to a log file.
func launch(name string, cmd *exec.Cmd, logPath string) (*devserver.Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd.Stdout, cmd.Stderr = log, log
	p, err := devserver.Launch(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}
