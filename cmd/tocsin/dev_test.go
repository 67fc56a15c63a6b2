package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
)

func TestDevDeliversItsSamplesAndExits(t *testing.T) {
	t.Parallel()
	s := decodeText[devcluster.Summary](t, call(t, "dev", "--tasks", "200", "--over", "1s", "--exit", "--json").ended(t))
	if s.Delivered != 200 || s.Seen != 200 || s.Early != 0 || s.Dead != 0 || s.Unsettled != 0 {
		t.Errorf("%+v", s)
	}
	if len(s.Nodes) != 2 || s.Nodes[0].Tables != 64 || s.Nodes[1].Tables != 64 || s.Nodes[0].Delivered+s.Nodes[1].Delivered < 200 {
		t.Errorf("nodes: %+v", s.Nodes)
	}
}

func TestDevStaysUpForASecondTerminal(t *testing.T) {
	t.Parallel()
	cmd := command(t.Context(), t.TempDir(), "dev", "--tasks", "10", "--over", "0s", "--layout", "1x1", "--nodes", "1")
	out := &lines{found: make(chan string, 1), find: "export TOCSIN_CONFIG="}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var path string
	select {
	case line := <-out.found:
		path = line[strings.Index(line, "=")+1:]
	case <-time.After(upWithin):
		t.Fatal("no hint for a second terminal")
	}
	out.expect("delivered coupon.remind biz_id 700001")
	select {
	case <-out.found:
	case <-time.After(upWithin):
		t.Fatal("the schedule does not fire")
	}
	out.expect("delivered order.close biz_id 77")
	call(t, "--config", path, "task", "add", "--type", "order.close", "--biz-id", "77", "--in", "0s", "--payload", `{"order_id":77}`).ok(t)
	select {
	case <-out.found:
	case <-time.After(upWithin):
		t.Fatal("the task from the second terminal was not delivered")
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit after Ctrl-C: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left behind", path)
	}
}

func TestDevWithTheBizTypesOfAProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "tocsin.yaml")
	if err := os.WriteFile(filepath.Join(dir, "biz.yaml"), []byte("biz_types:\n  - {name: parcel.lost, number: 1, group: parcels}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t.Context(), dir, "dev", "--biz", "biz.yaml", "--config-out", "tocsin.yaml", "--layout", "1x1", "--etcd=false")
	out := &lines{found: make(chan string, 1), find: "Until your program, or `tocsin serve` for webhooks, runs a node, tasks wait."}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	select {
	case <-out.found:
	case <-time.After(upWithin):
		t.Fatal("it does not come up")
	}
	call(t, "dev", "--biz", "none.yaml").refused(t, exitFailed, "none.yaml: no such file")
	call(t, "--config", path, "biz", "list").says(t, "parcel.lost  1       parcels  Go handler")
	call(t, "--config", path, "task", "add", "--type", "parcel.lost", "--biz-id", "7", "--in", "0s").says(t, "pending")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit after Ctrl-C: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left behind", path)
	}
}

func TestDevRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"a layout that is none":   {[]string{"--layout", "8by16"}, exitUsage, []string{`layout "8by16"`, "8x16"}},
		"a layout too large":      {[]string{"--layout", "9x1024"}, exitUsage, []string{"9216 tables, more than 8192"}},
		"tasks below zero":        {[]string{"--tasks=-1"}, exitUsage, []string{"--tasks -1"}},
		"a server that is none":   {[]string{"--server", "oracle"}, exitUsage, []string{`--server: unknown server "oracle"`, "want mariadb, mariadb-11.8 or mysql"}},
		"a load that has no end":  {[]string{"--load", "5"}, exitUsage, []string{"--load goes on until Ctrl-C"}},
		"biz types with an end":   {[]string{"--biz", "x.yaml"}, exitUsage, []string{"--biz stays up for your program"}},
		"a load too high":         {[]string{"--load", "1001"}, exitUsage, []string{"--load 1001", "0 to 1000"}},
		"more servers than dbs":   {[]string{"--servers", "9"}, exitUsage, []string{"--servers 9", "1 to 8"}},
		"MySQL's port in use":     {[]string{"--mysql-port", port}, exitFailed, []string{port, "in use"}},
		"etcd's port in use":      {[]string{"--etcd-port", port}, exitFailed, []string{port, "in use"}},
		"the receiver's port too": {[]string{"--http-port", port}, exitFailed, []string{port, "in use", "--http-port"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call(t, append([]string{"dev", "--tasks", "1", "--exit"}, c.args...)...).refused(t, c.code, c.says...)
		})
	}
}

func TestDevWithoutMariaDBSaysHowToInstallIt(t *testing.T) {
	t.Setenv(devserver.ProductMariaDB.EnvDir(), t.TempDir())
	call(t, "dev", "--exit", "--server", "mariadb").refused(t, exitFailed, "mariadbd not found", "apt-get install mariadb-server-core")
}

func TestDevWithoutAServerOfTheScriptSaysHowToInstallIt(t *testing.T) {
	for server, says := range map[string]string{"mysql": "no MySQL found", "mariadb-11.8": "no MariaDB 11.8 found"} {
		t.Setenv(devserver.Product(server).EnvDir(), t.TempDir())
		call(t, "dev", "--exit", "--server", server).refused(t, exitFailed, says, "scripts/install-server.sh "+server)
	}
}

func TestDevWithoutEtcdSaysHowToGetIt(t *testing.T) {
	t.Setenv(devserver.EnvEtcd, "")
	t.Setenv("PATH", t.TempDir()) // MariaDB is found in the folders of system programs, as Debian has it
	call(t, "dev", "--exit", "--server", "mariadb").refused(t, exitFailed, "etcd not found", "apt-get install etcd-server", devserver.EnvEtcd)
	t.Setenv(devserver.EnvEtcd, "none/etcd")
	call(t, "dev", "--exit", "--server", "mariadb").refused(t, exitFailed, devserver.EnvEtcd, "none/etcd is not a program")
}

// lines watches an output for a line that holds a text.
type lines struct {
	mu    sync.Mutex
	part  string
	find  string
	found chan string
}

// expect begins to look for another text.
func (l *lines) expect(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.find = text
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part += string(b)
	for {
		line, rest, whole := strings.Cut(l.part, "\n")
		if !whole {
			return len(b), nil
		}
		if l.part = rest; strings.Contains(line, l.find) {
			select {
			case l.found <- line:
			default:
			}
		}
	}
}
