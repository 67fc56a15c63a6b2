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

	stubUnpack = `mkdir -p "$3/usr/bin" "$3/usr/sbin" "$3/usr/lib64" "$3/usr/lib/x86_64-linux-gnu" "$3/usr/share/mariadb"
printf '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do [ "$1" = --inhibit-cache ] || shift; shift; done; exec "$@"\n' >"$3/usr/lib64/ld-linux-x.so.2"
for program in sbin/mysqld sbin/mariadbd bin/etcd; do
	printf '#!/bin/sh\necho "${0##*/}  Ver 9.7.4-2 $*"\n' >"$3/usr/$program"
	chmod 755 "$3/usr/$program"
done
: >"$3/usr/share/mariadb/mariadb_system_tables.sql"
chmod 755 "$3/usr/lib64/ld-linux-x.so.2"`
)

// installable are the names that the script takes, with the programs that it installs.
var installable = map[string]string{"mysql": "mysqld", "mariadb-11.8": "mariadbd", "etcd-3.5": "etcd"}

// install is one run of the script, into dir/server.
type install struct {
	t    *testing.T
	name string
	dir  string
	bin  string // the programs that the script finds

	keyring string
}

func newInstall(t *testing.T, name string) *install {
	t.Helper()
	i := &install{t: t, name: name, dir: t.TempDir(), bin: t.TempDir(), keyring: "/dev/null"}
	for name, script := range map[string]string{"apt-get": stubApt, "dpkg-deb": stubUnpack, "dpkg": "echo amd64"} {
		writeProgram(t, filepath.Join(i.bin, name), script)
	}
	for _, name := range []string{"sh", "id", "uname", "mkdir", "rmdir", "rm", "mv", "cat", "chmod", "dirname", "flock", "grep", "head", "sleep", "tr"} {
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

func (i *install) folder() string { return filepath.Join(i.dir, "server") }

// server is the program that it installs.
func (i *install) server() string { return filepath.Join(i.folder(), installable[i.name]) }

func (i *install) command() *exec.Cmd {
	cmd := exec.Command("/bin/sh", "../../scripts/install-server.sh", i.name)
	cmd.Env = []string{"PATH=" + i.bin, Product(i.name).EnvDir() + "=" + i.folder(), "TOCSIN_DEBIAN_KEYRING=" + i.keyring}
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
	printed, err := exec.Command(i.server(), "--version").Output()
	if err != nil || !strings.HasPrefix(string(printed), filepath.Base(i.server())+"  Ver 9.7.4-2 --version") {
		i.t.Errorf("the program prints %q, %v", printed, err)
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
	if _, err := os.Stat(i.server()); err == nil {
		i.t.Error("it is installed")
	}
}

func TestServersAreInstalledOnce(t *testing.T) {
	t.Parallel()
	for name := range installable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstall(t, name)
			i.works()
			writeProgram(t, filepath.Join(i.bin, "apt-get"), "exit 1")
			i.works()
		})
	}
}

func TestInstalledServersAreFoundByTheirProduct(t *testing.T) {
	t.Parallel()
	for _, product := range []Product{ProductMySQL, ProductMariaDB118} {
		i := newInstall(t, string(product))
		i.works()
		found, err := findServer(product, []string{i.folder()})
		if err != nil || found.path != i.server() || found.mysql != product.isMySQL() {
			t.Errorf("found %+v, %v", found, err)
		}
		if share := filepath.Join(i.folder(), "usr/share/mariadb"); !found.mysql && found.share != share {
			t.Errorf("the system SQL is taken from %s, not from %s", found.share, share)
		}
	}
}

func TestServerIsInstalledAfterAnInterruption(t *testing.T) {
	t.Parallel()
	i := newInstall(t, "mysql")
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

func TestServerThatCannotBeInstalledIsOneLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*install)
		want  []string
	}{
		"no apt-get":   {func(i *install) { i.remove("apt-get") }, []string{"there is no apt-get here", "TOCSIN_MYSQL_DIR"}},
		"no network":   {func(i *install) { i.program("apt-get", "echo 'E: Could not resolve host' >&2; exit 100") }, []string{"could not download mysql-server-core from http://deb.debian.org", "TOCSIN_DEBIAN_MIRROR"}},
		"no keys":      {func(i *install) { i.keyring = "none.gpg" }, []string{"none.gpg is missing", "apt-get install debian-archive-keyring"}},
		"another Unix": {func(i *install) { i.program("uname", "echo Darwin") }, []string{"this script is for Linux", "TOCSIN_MYSQL_DIR"}},
		"a full disk":  {func(i *install) { i.program("dpkg-deb", "exit 2") }, []string{"is the disk full?"}},
		"it does not run here": {func(i *install) {
			i.program("dpkg-deb", stubUnpack+"\nprintf '#!/bin/sh\\necho too old; exit 1\\n' >\"$3/usr/sbin/mysqld\"")
		}, []string{"does not run on this machine: too old"}},
		"a folder of somebody else": {(*install).occupy, []string{"exists and holds no mysqld"}},
		"no such server":            {func(i *install) { i.name = "oracle" }, []string{"want mysql, mariadb-11.8 or etcd-3.5, not oracle"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstall(t, "mysql")
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
