package daemon

import (
	"context"
	"strconv"
	"syscall"
)

// StartBeanstalkd starts a beanstalkd with its binlog, synced at most once every
// so many milliseconds; 0: at every write.
func StartBeanstalkd(ctx context.Context, syncMillis int) (*Server, error) {
	return spec{
		program: "beanstalkd", pkg: "beanstalkd", versionFlag: "-v", ask: syscall.SIGKILL,
		args: func(dir string, port int) []string {
			return []string{"-l", "127.0.0.1", "-p", strconv.Itoa(port), "-b", dir, "-f", strconv.Itoa(syncMillis)}
		},
	}.start(ctx)
}
