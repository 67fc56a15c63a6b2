package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// textfile returns the only file in the directory, as node_exporter would find it.
func textfile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 || filepath.Ext(files[0]) != ".prom" {
		t.Fatalf("the directory holds %q: %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// has wants lines that begin so.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line) {
			t.Errorf("the file has no line %q:\n%s", line, text)
		}
	}
}

// successOf returns the line with the time of the last success.
func successOf(text string) string {
	_, rest, _ := strings.Cut(text, "\ntocsin_sweeper_last_success_timestamp_seconds{")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

func TestSweepWritesATextfile(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.applyBiz(s.text("biz.yaml") + "  - {name: order.close, number: 1, group: orders}\n")
	dir := t.TempDir()
	s.overdue("coupon.remind", 2)
	s.run("sweep", "--once", "--textfile", dir).ok(t)
	good := textfile(t, dir)
	has(t, good, "tocsin_sweeper_last_overdue{", "tocsin_sweeper_last_run_timestamp_seconds{", "tocsin_sweeper_last_ok{")
	if !strings.Contains(good, `outcome="delivered"} 2`) || !strings.Contains(good, `tocsin_sweeper_last_claimed{cluster="`+s.prefix+`"} 2`) {
		t.Errorf("two tasks were claimed and delivered: %s", good)
	}
	s.overdue("order.close", 3)
	s.run("sweep", "--once", "--textfile", dir).refused(t, exitFailed, "order.close (no handler here): 3")
	bad := textfile(t, dir)
	if !strings.Contains(bad, `biz_type="order.close"`) || !strings.Contains(bad, `reason="no handler here"} 3`) || !strings.Contains(bad, `tocsin_sweeper_last_claimed{cluster="`+s.prefix+`"} 0`) {
		t.Errorf("three tasks were left, and none was claimed: %s", bad)
	}
	if successOf(bad) == "" || successOf(bad) != successOf(good) {
		t.Errorf("the last success was\n%s\nand is\n%s", successOf(good), successOf(bad))
	}
}

func TestPurgeAndAuditWriteATextfile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settled(1, tocsin.Done, "31 DAY")
	dir := t.TempDir()
	s.run("purge", "--textfile", dir).ok(t)
	if text := textfile(t, dir); !strings.Contains(text, `status="done"} 1`) {
		t.Errorf("one task was purged: %s", text)
	}
	dir = t.TempDir()
	s.run("audit", "--textfile", dir).ok(t)
	has(t, textfile(t, dir), "tocsin_auditor_last_ok{", "tocsin_auditor_last_tables{", "tocsin_auditor_last_success_timestamp_seconds{")
	id := s.add(2)
	s.exec("UPDATE "+s.layout.Table(id.Table())+" SET biz_type = 99 WHERE job_id = ?", uint64(id))
	if r := s.run("audit", "--textfile", dir); r.code != exitFailed {
		t.Errorf("exit code %d of an audit that found a fault", r.code)
	}
	if text := textfile(t, dir); !strings.Contains(text, `fault="unknown_type"} 1`) {
		t.Errorf("a fault was found: %s", text)
	}
}

func TestADirectoryThatIsMissingKeepsNoSweepFromItsTasks(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.overdue("coupon.remind", 2)
	r := s.run("sweep", "--once", "--textfile", filepath.Join(t.TempDir(), "none"))
	r.refused(t, exitFailed, "none", "no such file or directory")
	if !strings.Contains(r.stdout, "2 overdue, 2 delivered") {
		t.Errorf("the sweep said %q", r.stdout)
	}
}

func TestATextfileThatWouldNotBeWrittenIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	for _, args := range [][]string{
		{"sweep", "--dry-run", "--textfile", dir},
		{"purge", "--dry-run", "--textfile", dir},
		{"audit", "--type", "order.close", "--against", "-", "--textfile", dir},
	} {
		s.run(args...).refused(t, exitUsage, "--textfile")
	}
}

func TestAResidentSweepWritesItsTextfileAgainAndAgain(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	dir := t.TempDir()
	stays, log := s.start("sweep", "--cron", "@every 1s", "--textfile", dir)
	sweeps := func() (counted string) {
		files, _ := filepath.Glob(filepath.Join(dir, "*.prom"))
		if len(files) == 0 {
			return ""
		}
		text, _ := os.ReadFile(files[0])
		_, counted, _ = strings.Cut(string(text), `result="ok"} `)
		counted, _, _ = strings.Cut(counted, "\n")
		return counted
	}
	first := ""
	s.waitFor("the file is there", func() bool { first = sweeps(); return first != "" })
	s.waitFor("it is written again", func() bool { return sweeps() != first })
	s.stop(stays, log)
}
