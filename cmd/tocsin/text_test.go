package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

func TestAwayIsAsPreciseAsPeopleWant(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"in 0s":        0,
		"in 12ms":      12345 * time.Microsecond,
		"in 5.1s":      5123 * time.Millisecond,
		"in 30m0s":     30*time.Minute + 4*time.Millisecond,
		"in 47h59m0s":  47*time.Hour + 59*time.Minute,
		"in 3 days":    73 * time.Hour,
		"7ms ago":      -7 * time.Millisecond,
		"1h0m1s ago":   -time.Hour - time.Second,
		"400 days ago": -400 * 24 * time.Hour,
	} {
		if got := away(d); got != want {
			t.Errorf("away(%s): %q, want %q", d, got, want)
		}
	}
}

func TestATaskIsOneLineInItsOwnWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	task := tocsin.Info{JobID: 123, BizType: "order.close", BizID: 42, ActionTime: now.Add(5 * time.Second)}
	for want, change := range map[string]func(*tocsin.Info){
		"pending  due 2026-05-04 03:02:06.000Z (in 5s)  attempts 0": func(*tocsin.Info) {},
		"claimed  claimed until 2026-05-04 03:02:06.000Z  attempts 0": func(i *tocsin.Info) {
			i.Status = tocsin.Claimed
		},
		"dead  dead 2026-05-04 03:02:06.000Z  attempts 3  crashes 1  last error: a b [2Jc": func(i *tocsin.Info) {
			i.Status, i.Attempts, i.Crashes, i.LastError = tocsin.Dead, 3, 1, "a\nb\x1b[2Jc"
		},
	} {
		info := task
		change(&info)
		var out bytes.Buffer
		writeTasks(&out, []tocsin.Info{info}, now)
		if got := strings.TrimSuffix(out.String(), "\n"); got != "job_id 123  order.close  biz_id 42  "+want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestManyRangesAreCutForPeople(t *testing.T) {
	t.Parallel()
	if got := ranges([]string{"0-3", "5"}); got != "0-3 5" {
		t.Errorf("got %q", got)
	}
	if got := ranges(strings.Fields("0 2 4 6 8 10 12 14")); got != "0 2 4 6 8 10 and 2 ranges more" {
		t.Errorf("got %q", got)
	}
}

func TestManyErrorsAreOneLineThatEnds(t *testing.T) {
	t.Parallel()
	var errs []error
	for i := range 1000 {
		errs = append(errs, fmt.Errorf("table %d", i))
	}
	for n, want := range map[int]string{
		1:    "table 0",
		5:    "table 0; table 1; table 2; table 3; table 4",
		1000: "table 0; table 1; table 2; table 3; and 996 more",
	} {
		if got := cluster.OneLine(errors.Join(errs[:n]...)); got != want {
			t.Errorf("%d errors: %q, want %q", n, got, want)
		}
	}
}

func TestProgressWithoutATerminalIsALineNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &progress{to: &out, verb: "create", unit: "tables", line: time.Now()}
		for i := range 10 {
			p.report(i, 10)
			time.Sleep(time.Second)
		}
		p.end()
		if want := "create tables: 3 of 10\ncreate tables: 6 of 10\ncreate tables: 9 of 10\n"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
		out.Reset()
		silent := &progress{to: &out}
		silent.report(5, 10)
		if silent.end(); out.Len() > 0 {
			t.Errorf("with --json: %q", out.String())
		}
	})
}
