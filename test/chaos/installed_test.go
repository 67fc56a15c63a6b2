package chaos

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// installed is a cluster whose nodes and commands run the real program.
type installed struct {
	*scenario
	program string               // its file
	env     []string             // what its environment has beside that of this process
	groups  map[string]string    // of nodes, by their seats; the others are of group
	disk    *devserver.SmallDisk // for a server's binary log; nil: there is none
	noDisk  string               // why there is none
}

// build builds the program, from the packages that other tests and builds have compiled: -trimpath would compile all of them anew.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "tocsin")
	cmd := exec.Command("go", "build", "-o", program, "github.com/tocsinhq/tocsin/cmd/tocsin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// mountDisk mounts the disk, until the test's servers have ended.
func (m *installed) mountDisk(t *testing.T) {
	t.Helper()
	disk, err := devserver.MountSmallDisk(t.TempDir())
	if err != nil {
		m.noDisk = "not played: " + err.Error()
		return
	}
	m.disk = disk
	t.Cleanup(func() {
		if err := disk.Unmount(); err != nil {
			t.Error(err)
		}
	})
}

// config writes the config file of a seat, with the addresses by which the seat reaches servers and etcd.
func (m *installed) config(at *seat, listen string) (path string) {
	text := strings.ReplaceAll(m.configText(at, listen), "tls="+tlsOfHarness, "tls=true")
	path = filepath.Join(m.opts.Dir, at.name+".yaml")
	m.orFail(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// serve is the command that runs the node of a seat: Options.serve.
func (m *installed) serve(at *seat) *exec.Cmd {
	if at.page == "" {
		at.page = upstream(devserver.FreePort())
	}
	cmd := exec.Command(m.program, "serve", "--group", cmp.Or(m.groups[at.name], group), "--config", m.config(at, at.page))
	cmd.Env = append(os.Environ(), m.env...)
	return cmd
}

// sit starts the node of a seat.
func (m *installed) sit(at *seat) {
	m.t.Helper()
	m.orFail(m.Site.sit(at))
}

// ended is the result of a command.
type ended struct {
	code           int // -1: it did not end in time
	stdout, stderr string
	took           time.Duration
}

// must fails the test unless the command succeeds.
func (m *installed) must(args ...string) {
	m.t.Helper()
	if got := m.command(args...); got.code != 0 {
		m.t.Fatalf("tocsin %s: %+v", strings.Join(args, " "), got)
	}
}

// commandWithin bounds most commands.
const commandWithin = 5 * time.Minute

// command runs the program with the config of the sweeper's seat.
func (m *installed) command(args ...string) ended { return m.commandIn(commandWithin, args...) }

func (m *installed) commandIn(within time.Duration, args ...string) ended {
	ctx, cancel := context.WithTimeout(m.t.Context(), within)
	defer cancel()
	cmd := exec.Command(m.program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(append(os.Environ(), m.env...), "TOCSIN_CONFIG="+filepath.Join(m.opts.Dir, m.sweeper.name+".yaml"))
	begin := time.Now()
	proc, err := devserver.Launch(cmd)
	if err != nil {
		return ended{code: -1, stderr: err.Error()}
	}
	if proc.Wait(ctx) != nil { // the exit code is checked instead
		_ = proc.Kill()
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), time.Since(begin)}
}

// harm is a way to break the cluster, and to mend it.
type harm struct{ begin, end func() }

// of is a fault that random runs play, too.
func (m *installed) of(step Step) harm {
	var end undo
	return harm{
		func() {
			var err error
			end, err = m.do(m.t.Context(), step)
			m.orFail(err)
		},
		func() { m.orFail(end(m.t.Context())) },
	}
}

// run is statements that root runs on a server, and those that undo them. Semicolons part them.
func (m *installed) run(server int, begin, end string) harm {
	run := func(statements string) func() {
		return func() {
			m.t.Helper()
			for statement := range strings.SplitSeq(statements, "; ") {
				m.orFail(m.databases[server].exec(m.t.Context(), statement))
			}
		}
	}
	return harm{run(begin), run(end)}
}

// orFail fails the test because of an error.
func (m *installed) orFail(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// until waits for an event, for at most within; four times as long beside other tests, whose machine is busy.
func (m *installed) until(within time.Duration, happened func() bool) bool {
	for end := time.Now().Add(within * pick[time.Duration](4, 1)); time.Now().Before(end); m.pause(50 * time.Millisecond) {
		if happened() {
			return true
		}
	}
	return happened()
}
