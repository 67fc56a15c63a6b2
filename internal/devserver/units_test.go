package devserver

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
)

func TestNoServerSaysHowToInstallOne(t *testing.T) {
	t.Parallel()
	for product, want := range map[Product]error{"": ErrNoMariaDB, ProductMariaDB: ErrNoMariaDB, ProductMySQL: ErrNoMySQL, ProductMariaDB118: ErrNoMariaDB118} {
		if _, err := findServer(product, []string{"", t.TempDir()}); !errors.Is(err, want) {
			t.Errorf("%q: got %v", product, err)
		}
	}
}

func TestEtcdIsTheNamedOneOrTheFirstInPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	named, first := filepath.Join(dir, "etcd-3.5"), filepath.Join(dir, "bin", "etcd")
	writeProgram(t, named, "")
	writeProgram(t, first, "")
	dirs := []string{"", t.TempDir(), filepath.Dir(first), "/usr/bin"}
	for name, want := range map[string]string{"": first, named: named} {
		if got, err := findEtcd(name, dirs); got != want || err != nil {
			t.Errorf("%q: %s, %v", name, got, err)
		}
	}
	if _, err := findEtcd("", dirs[:2]); !errors.Is(err, ErrNoEtcd) {
		t.Errorf("no etcd: %v", err)
	}
	if _, err := findEtcd(dir, dirs); err == nil || err.Error() != "TOCSIN_ETCD: "+dir+" is not a program" {
		t.Errorf("a folder: %v", err)
	}
}

func TestEtcdLogTellsServingAndFailures(t *testing.T) {
	t.Parallel()
	ended := errors.New("exit status 1")
	const fatal = `{"level":"fatal","ts":"2026-11-22T05:26:23.454Z","msg":"discovery failed","error":"listen tcp 127.0.0.1:20555: bind: address already in use"}`
	cases := map[string]struct {
		line    string
		serving bool
		want    string
	}{
		"plain text":  {`{"level":"info","msg":"serving client traffic insecurely; this is strongly discouraged!"}`, true, ""},
		"TLS":         {`{"level":"info","msg":"serving client traffic securely","address":"127.0.0.1:1"}`, true, ""},
		"peers only":  {`{"level":"info","msg":"serving peer traffic"}`, false, ""},
		"a warning":   {`{"level":"warn","msg":"slow","error":"disk"}`, false, ""},
		"an error":    {fatal, false, ": listen tcp 127.0.0.1:20555: bind: address already in use"},
		"no details":  {`{"level":"panic","msg":"bad data"}`, false, ": bad data"},
		"no JSON":     {"2026-11-22 05:26:23.454462 I | pkg/flags: recognized", false, ""},
		"too old one": {"flag provided but not defined: -logger", false, ": flag provided but not defined: -logger: etcd 3.4 or newer is needed"},
	}
	for name, c := range cases {
		l := logTail{dst: io.Discard, ready: etcdServing, failure: etcdFailure}
		for range 2 {
			_, _ = l.Write([]byte(c.line + "\n"))
		}
		if got := l.explain(ended).Error(); l.isReady() != c.serving || got != "exit status 1"+c.want {
			t.Errorf("%s: serving %t, %s", name, l.isReady(), got)
		}
		if name == "an error" && !l.portTaken() {
			t.Error("the port is not seen to be taken")
		}
	}
}

func TestEtcdGetsNoOptionsFromTheEnvironment(t *testing.T) {
	t.Parallel()
	got := etcdEnv([]string{"PATH=/bin", "ETCD_NAME=x", "ETCDCTL_API=3"}, true)
	want := []string{"PATH=/bin", "ETCDCTL_API=3", "ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH, "ETCD_UNSAFE_NO_FSYNC=true"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestServerIsFoundWithoutSbinInPath(t *testing.T) {
	t.Setenv("PATH", "")
	if _, err := Product("").find(); err != nil {
		t.Fatal(err)
	}
}

// Programs of either name print their version as the servers do.
func TestProductIsFoundBehindEitherName(t *testing.T) {
	t.Parallel()
	const mysql, maria = "mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))", "mysqld  Ver 10.11.14-MariaDB for debian-linux-gnu"
	folder := func(names ...string) string { // a name, then what it prints
		dir := t.TempDir()
		for i := 0; i < len(names); i += 2 {
			writeProgram(t, filepath.Join(dir, "bin", names[i]), "echo '"+names[i+1]+"'")
		}
		writeProgram(t, filepath.Join(dir, "share", "mysql_system_tables.sql"), "")
		return filepath.Join(dir, "bin")
	}
	cases := map[string]struct {
		dir     string
		product Product
		want    string // the program's name and product
	}{
		"any of both":         {folder("mariadbd", maria, "mysqld", mysql), "", "mariadbd MariaDB"},
		"MySQL of both":       {folder("mariadbd", maria, "mysqld", mysql), ProductMySQL, "mysqld MySQL"},
		"any, MySQL is there": {folder("mysqld", mysql), "", "mysqld MySQL"},
		"MariaDB as mysqld":   {folder("mysqld", maria), ProductMariaDB, "mysqld MariaDB"},
		"no MySQL":            {folder("mysqld", maria), ProductMySQL, ""},
		"no MariaDB":          {folder("mysqld", mysql), ProductMariaDB, ""},
	}
	for name, c := range cases {
		found, err := findServer(c.product, []string{c.dir})
		if c.want == "" {
			if !errors.Is(err, ErrNoMySQL) && !errors.Is(err, ErrNoMariaDB) {
				t.Errorf("%s: %v, %v", name, found, err)
			}
			continue
		}
		if got := filepath.Base(found.path) + " " + found.String(); err != nil || got != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func writeProgram(t *testing.T, path, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	writeExecutable(t, path, []byte("#!/bin/sh\n"+script+"\n"))
}

// writeExecutable writes a program that runs at once: a test that starts a process meanwhile would hand it the open
// file, and a file that is open for writing is not run.
func writeExecutable(t *testing.T, path string, data []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestVariableChoosesTheProductUnlessTheCallerDoes(t *testing.T) {
	t.Setenv(EnvProduct, "mysql")
	for p, want := range map[Product]Product{"": ProductMySQL, ProductMariaDB: ProductMariaDB} {
		if got, err := p.chosen(); got != want || err != nil {
			t.Errorf("%q: %q, %v", p, got, err)
		}
	}
	t.Setenv(EnvProduct, "oracle")
	if _, err := Product("").find(); err == nil || err.Error() != `TOCSIN_TEST_SERVER: unknown server "oracle": want mariadb, mariadb-11.8 or mysql` {
		t.Errorf("got %v", err)
	}
}

func TestCachesFitTheLimitOfOpenFiles(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		files int
		mysql bool
		want  []string
	}{
		"plenty":            {100000, false, []string{"--table-open-cache=20000", "--table-open-cache-instances=2"}},
		"plenty, for MySQL": {100000, true, []string{"--table-open-cache=20000", "--table-open-cache-instances=1"}},
		"enough for 8x1024": {20000, false, []string{"--table-open-cache=9650", "--table-open-cache-instances=1"}},
		"the bare minimum":  {1024, false, []string{"--table-open-cache=400", "--table-open-cache-instances=1"}},
	}
	for name, c := range cases {
		got := cacheArgs(c.files, c.mysql)
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%s: %s is not in %v", name, want, got)
			}
		}
	}
}

func TestLogTailExplainsWithTheLastError(t *testing.T) {
	t.Parallel()
	ended := errors.New("exit status 1")
	cases := map[string]struct {
		writes []string
		want   string
	}{
		"no error line":         {[]string{"[Note] fine\n"}, "exit status 1"},
		"split over writes":     {[]string{"x [ERR", "OR] disk", " full\n"}, "exit status 1: disk full"},
		"aborting says nothing": {[]string{"[ERROR] bad\n[ERROR] Aborting\n"}, "exit status 1: bad"},
		"the last of many":      {[]string{"[ERROR] a\n[ERROR] b\n"}, "exit status 1: b"},
		"of a bootstrap":        {[]string{"ERROR: 1064  syntax\n"}, "exit status 1: 1064  syntax"},
	}
	for name, c := range cases {
		tail := logTail{dst: io.Discard, ready: ": ready for connections", failure: mariadbFailure}
		for _, w := range c.writes {
			_, _ = tail.Write([]byte(w))
		}
		if got := tail.explain(ended).Error(); got != c.want || tail.isReady() {
			t.Errorf("%s: got %q, want %q; serving %t", name, got, c.want, tail.isReady())
		}
	}
}

func TestStaleFoldersAreRemovedAndOthersKept(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	make1 := func(name string, files ...string) string {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	gone := []string{make1("tocsin-a", lockName, "error.log"), make1("tocsin-b")}
	kept := []string{make1("other", lockName), make1("tocsin-c", "mine.txt"), make1("tocsin-held", lockName)}
	held, err := os.OpenFile(filepath.Join(parent, "tocsin-held", lockName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if ok, err := tryLock(held); !ok {
		t.Fatal(err)
	}
	removeStale(parent)
	for _, dir := range gone {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	for _, dir := range kept {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}
