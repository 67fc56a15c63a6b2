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
	_, err := findServer([]string{"", t.TempDir()})
	if !errors.Is(err, ErrNoMariaDB) {
		t.Fatalf("got %v", err)
	}
}

func TestServerIsFoundWithoutSbinInPath(t *testing.T) {
	t.Setenv("PATH", "")
	if _, err := findServer(serverDirs()); err != nil {
		t.Fatal(err)
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
