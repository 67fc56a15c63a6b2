package devserver

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestNoServerSaysHowToInstallOne(t *testing.T) {
	t.Parallel()
	for product, want := range map[Product]error{"": ErrNoMariaDB, ProductMariaDB: ErrNoMariaDB, ProductMySQL: ErrNoMySQL} {
		if _, err := findServer(product, []string{"", t.TempDir()}); !errors.Is(err, want) {
			t.Errorf("%q: got %v", product, err)
		}
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
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
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
	if _, err := Product("").find(); err == nil || err.Error() != `TOCSIN_TEST_SERVER: unknown server "oracle": want mariadb or mysql` {
		t.Errorf("got %v", err)
	}
}

func TestCachesFitTheLimitOfOpenFiles(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		files int
		want  []string
	}{
		"plenty":            {100000, []string{"--table-open-cache=20000", "--table-open-cache-instances=2"}},
		"enough for 8x1024": {20000, []string{"--table-open-cache=9650", "--table-open-cache-instances=1"}},
		"the bare minimum":  {1024, []string{"--table-open-cache=400", "--table-open-cache-instances=1"}},
	}
	for name, c := range cases {
		got := cacheArgs(c.files)
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
		tail := logTail{dst: io.Discard}
		for _, w := range c.writes {
			_, _ = tail.Write([]byte(w))
		}
		if got := tail.explain(ended).Error(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
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
