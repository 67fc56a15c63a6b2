package devserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The script runs with an apt-get and a dpkg-deb of the test's own: nothing is downloaded.
const (
	stubApt = `for last; do :; done
case "$*" in *" update") exit 0 ;; esac
for word; do case "$word" in Dir::Cache::Archives=*) archives=${word#*=} ;; esac; done
: >"$archives/$last.deb"`

	stubUnpack = `mkdir -p "$3/usr/sbin" "$3/usr/lib64" "$3/usr/lib/x86_64-linux-gnu"
printf '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do [ "$1" = --inhibit-cache ] || shift; shift; done; exec "$@"\n' >"$3/usr/lib64/ld-linux-x.so.2"
printf '#!/bin/sh\necho "mysqld  Ver 9.7.4-2"\n' >"$3/usr/sbin/mysqld"
chmod 755 "$3/usr/lib64/ld-linux-x.so.2" "$3/usr/sbin/mysqld"`
)

// install is one run of the script, into dir/mysql.
type install struct {
	t   *testing.T
	dir string
	bin string // the programs that the script finds

	keyring string
}

func newInstall(t *testing.T) *install {
	t.Helper()
	i := &install{t: t, dir: t.TempDir(), bin: t.TempDir(), keyring: "/dev/null"}
	for name, script := range map[string]string{"apt-get": stubApt, "dpkg-deb": stubUnpack, "dpkg": "echo amd64"} {
		writeProgram(t, filepath.Join(i.bin, name), script)
	}
	for _, name := range []string{"sh", "id", "uname", "mkdir", "rmdir", "rm", "mv", "cat", "chmod", "dirname", "flock", "grep", "sleep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(i.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

func (i *install) folder() string { return filepath.Join(i.dir, "mysql") }

func (i *install) command() *exec.Cmd {
	cmd := exec.Command("/bin/sh", "../../scripts/install-mysql.sh")
	cmd.Env = []string{"PATH=" + i.bin, EnvMySQLDir + "=" + i.folder(), "TOCSIN_MYSQL_KEYRING=" + i.keyring}
	return cmd
}

// run returns what the script says on either output.
func (i *install) run() (out, said string, err error) {
	var stderr strings.Builder
	cmd := i.command()
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	return string(text), stderr.String(), err
}

// works wants an installed server that is found and runs.
func (i *install) works() {
	i.t.Helper()
	out, said, err := i.run()
	if err != nil || out != i.folder()+"\n" {
		i.t.Fatalf("%v, printed %q, said %q", err, out, said)
	}
	found, err := findServer(ProductMySQL, []string{i.folder()})
	if err != nil || found.path != filepath.Join(i.folder(), "mysqld") {
		i.t.Errorf("found %+v, %v", found, err)
	}
	if left, _ := filepath.Glob(filepath.Join(i.dir, "*.new")); len(left) != 0 {
		i.t.Errorf("left %v", left)
	}
}

// fails wants one line with each part, and nothing installed.
func (i *install) fails(parts ...string) {
	i.t.Helper()
	out, said, err := i.run()
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for _, part := range parts {
		if last := lines[len(lines)-1]; err == nil || out != "" || !strings.Contains(last, part) {
			i.t.Errorf("%v, printed %q, the last line lacks %q: %s", err, out, part, said)
		}
	}
	if _, err := os.Stat(filepath.Join(i.folder(), "mysqld")); err == nil {
		i.t.Error("it is installed")
	}
}

func TestMySQLIsInstalledOnce(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	i.works()
	writeProgram(t, filepath.Join(i.bin, "apt-get"), "exit 1")
	i.works()
}

func TestMySQLIsInstalledAfterAnInterruption(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	writeProgram(t, filepath.Join(i.bin, "apt-get"), "echo begun >&3; sleep 1000")
	cmd := i.command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.ExtraFiles = []*os.File{write}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	if _, err := read.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if _, err := os.Stat(i.folder() + ".new"); err != nil {
		t.Errorf("it was not under way: %v", err)
	}
	writeProgram(t, filepath.Join(i.bin, "apt-get"), stubApt)
	i.works()
}

func TestMySQLThatCannotBeInstalledIsOneLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*install)
		want  []string
	}{
		"no apt-get":   {func(i *install) { i.remove("apt-get") }, []string{"there is no apt-get here", EnvMySQLDir}},
		"no network":   {func(i *install) { i.program("apt-get", "echo 'E: Could not resolve host' >&2; exit 100") }, []string{"could not download mysql-server-core from http://deb.debian.org", "TOCSIN_MYSQL_MIRROR"}},
		"no keys":      {func(i *install) { i.keyring = "none.gpg" }, []string{"none.gpg is missing", "apt-get install debian-archive-keyring"}},
		"another Unix": {func(i *install) { i.program("uname", "echo Darwin") }, []string{"this script is for Linux", EnvMySQLDir}},
		"a full disk":  {func(i *install) { i.program("dpkg-deb", "exit 2") }, []string{"is the disk full?"}},
		"it does not run here": {func(i *install) {
			i.program("dpkg-deb", stubUnpack+"\nprintf '#!/bin/sh\\necho too old; exit 1\\n' >\"$3/usr/sbin/mysqld\"")
		}, []string{"does not run on this machine: too old"}},
		"a folder of somebody else": {(*install).occupy, []string{"exists and holds no mysqld"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstall(t)
			c.spoil(i)
			i.fails(c.want...)
		})
	}
}

func (i *install) remove(name string) { _ = os.Remove(filepath.Join(i.bin, name)) }

// program replaces a program.
func (i *install) program(name, script string) {
	i.remove(name)
	writeProgram(i.t, filepath.Join(i.bin, name), script)
}

// occupy puts a file where the server would go.
func (i *install) occupy() { writeProgram(i.t, filepath.Join(i.folder(), "mine"), "") }
