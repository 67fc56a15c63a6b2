package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin/test/peers/contest"
)

// asCommand makes this test binary the command.
const asCommand = "PEERS_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// reply is how a call of the command ended.
type reply struct {
	code      int
	out, errs string
}

// command calls the command in a process of its own.
func command(t *testing.T, env []string, args ...string) reply {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asCommand+"=1"), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return reply{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// TestEverySystemDoesTheWork fails where a server is not installed: a system that
// is skipped would be one that nobody tests.
func TestEverySystemDoesTheWork(t *testing.T) {
	t.Parallel()
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := command(t, nil, "--only", name, "--tasks", "1500", "--rate", "60", "--adding", "1s",
				"--rounds", "1", "--layout", "2x4", "--warm=false", "--json")
			var result contest.Result
			if err := json.Unmarshal([]byte(r.out), &result); r.code != 0 || err != nil {
				t.Fatalf("exit code %d, %v: %s", r.code, err, r.errs)
			}
			look(t, result.Systems[0])
		})
	}
}

// look wants figures that can be.
func look(t *testing.T, s contest.Record) {
	t.Helper()
	m := s.Median
	if m.Drain <= 0 || m.Insert <= 0 || m.Delivered != 1500+60 || m.Duplicates != 0 {
		t.Errorf("%+v", m)
	}
	if l := m.Lateness[0]; l.Early != 0 || l.P50 <= 0 || l.P99 < l.P50 || l.Max < l.P99 {
		t.Errorf("%+v", l)
	}
	f := s.Facts
	if f.Version == "" || strings.Contains(f.Version, "unknown") || f.Durability == "" || f.Tuning == "" || f.Settled == "" {
		t.Errorf("%+v", f)
	}
}

func TestStrictServersFlushEveryWrite(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "--only", "beanstalkd,redis-zset,asynq", "--tasks", "50", "--rate", "", "--rounds", "1", "--strict")
	if r.code != 0 || strings.Count(r.out, "appendfsync always") != 2 || !strings.Contains(r.out, "fsync at every write") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.errs)
	}
}

func TestMergePrintsOneTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	for _, path := range []string{first, second} {
		r := command(t, nil, "--only", "redis-zset", "--tasks", "20", "--rate", "", "--rounds", "1", "--json")
		if err := os.WriteFile(path, []byte(r.out), 0o600); err != nil || r.code != 0 {
			t.Fatalf("exit code %d, %v: %s", r.code, err, r.errs)
		}
	}
	r := command(t, nil, "--merge", first+","+second)
	if r.code != 0 || !strings.Contains(r.out, "medians of 2 rounds") || r.errs != "" {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.errs)
	}
}

func TestBadCallsAreOneLine(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"an unknown flag":         {[]string{"--taks", "5"}, 2, "-taks"},
		"an argument":             {[]string{"river"}, 2, `unexpected "river"`},
		"an unknown system":       {[]string{"--only", "tocsin,sidekiq"}, 2, `unknown system "sidekiq": want some of tocsin,river`},
		"no tasks":                {[]string{"--tasks", "0"}, 2, "0 tasks"},
		"no rounds":               {[]string{"--rounds", "0"}, 2, "0 rounds"},
		"a rate that is none":     {[]string{"--rate", "500,fast"}, 2, `rate "fast"`},
		"a rate that is negative": {[]string{"--rate", "-5"}, 2, "rate -5"},
		"a layout that is none":   {[]string{"--layout", "8by16"}, 2, `layout "8by16"`},
		"a file that is not":      {[]string{"--merge", "none.json"}, 1, "none.json"},
		"a file that is no JSON":  {[]string{"--merge", broken}, 1, "is no result of this command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := command(t, nil, c.args...)
			if r.code != c.code || !strings.Contains(r.errs, c.says) || strings.Count(r.errs, "\n") != 1 || r.out != "" {
				t.Errorf("exit code %d, want %d; says %q %q, want %q", r.code, c.code, r.errs, r.out, c.says)
			}
		})
	}
}

func TestHelpNamesTheSystems(t *testing.T) {
	t.Parallel()
	if r := command(t, nil, "--help"); r.code != 0 || !strings.Contains(r.errs, strings.Join(names(), ",")) {
		t.Errorf("exit code %d: %s", r.code, r.errs)
	}
}

func TestDueTimesAreRoundedUpToTheSecond(t *testing.T) {
	t.Parallel()
	base := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, c := range []struct{ due, want time.Time }{
		{base, base},
		{base.Add(time.Nanosecond), base.Add(time.Second)},
		{base.Add(999 * time.Millisecond), base.Add(time.Second)},
	} {
		if got := wholeSecond(c.due); !got.Equal(c.want) {
			t.Errorf("%s became %s", c.due, got)
		}
	}
	if past := time.Now().Add(-time.Minute); !wholeSecond(past).Equal(past) {
		t.Error("what is due is put off")
	}
}
