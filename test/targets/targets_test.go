package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// script answers commands in turn, by their first word.
type script struct {
	says  map[string][]string // one answer for each round; "" is a failure
	asked []string
}

func (s *script) call(_ context.Context, _, command string) ([]byte, error) {
	s.asked = append(s.asked, command)
	all := s.says[command]
	s.says[command] = all[1:]
	if all[0] == "" {
		return nil, errors.New("exit status 1: no server")
	}
	return []byte(all[0]), nil
}

func played(t *testing.T, says map[string][]string) (*script, string) {
	t.Helper()
	s := &script{says: says}
	rows := []row{
		{name: "a", command: "a", checks: []check{atLeast("ratio", 0.7)}},
		{name: "b", command: "b", once: true, checks: []check{atMost("burst.p99_ms", 100)}},
		{name: "c", command: "c", checks: []check{atLeast("ratio", 0.9).times("a")}},
	}
	return s, measure(t.Context(), options{rounds: 3, rows: rows}, func(row, int, error) {}, s.call).table(rows)
}

func TestRoundsAreInterleavedAndTheirMedianJudged(t *testing.T) {
	s, table := played(t, map[string][]string{
		"a": {`{"ratio": 0.9}`, `{"ratio": 0.1}`, `{"ratio": 0.8}`},
		"b": {`{"burst": {"p99_ms": 120}}`},
		"c": {`{"ratio": 0.71}`, "", "goos: linux\nBenchmarkC-2  1  5.0 p99-ms  0.71 ratio\nPASS"},
	})
	if got := strings.Join(s.asked, ""); got != "abcacac" {
		t.Errorf("asked %s", got)
	}
	want := []string{
		"row figure target median rounds",
		"a ratio >= 0.7 0.8 0.9 0.1 0.8 met",
		"b burst.p99_ms <= 100 120 120 missed",
		"c ratio >= 0.9 of a 0.71 0.71 0.71 missed",
	}
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		if got := strings.Join(strings.Fields(line), " "); got != want[i] {
			t.Errorf("line %d is %q, want %q", i, got, want[i])
		}
	}
}

func TestWhatWasNotMeasuredIsNotMet(t *testing.T) {
	_, text := played(t, map[string][]string{
		"a": {"", "no JSON", `{"other": 1}`},
		"b": {`{"burst": null}`},
		"c": {`{"ratio": 1}`, `{"ratio": 1}`, `{"ratio": 1}`},
	})
	if strings.Contains(text, " met") || strings.Count(text, "not measured") != 2 || !strings.Contains(text, "nothing to compare with") {
		t.Errorf("says\n%s", text)
	}
}

func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a row that is none":   {[]string{"-only", "drain,swim"}, `no row "swim"`},
		"no rounds":            {[]string{"-rounds", "0"}, "0 rounds: want 1 to 100"},
		"a flag that is none":  {[]string{"-fast"}, "-fast"},
		"an argument too much": {[]string{"drain"}, `unexpected argument "drain"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out, said bytes.Buffer
			code := run(t.Context(), c.args, &out, &said)
			if code != exitUsage || out.Len() > 0 || !strings.Contains(said.String(), c.says) || strings.Count(said.String(), "\n") != 1 {
				t.Errorf("code %d, %s%s", code, out.String(), said.String())
			}
		})
	}
}

func TestAProgramThatIsNotThereIsSaid(t *testing.T) {
	var out, said bytes.Buffer
	code := run(t.Context(), []string{"-tocsin", "no/such/program", "-only", "idle", "-rounds", "1"}, &out, &said)
	if code != exitFailed || !strings.Contains(said.String(), "no/such/program") || !strings.Contains(out.String(), "not measured") {
		t.Errorf("code %d\n%s%s", code, out.String(), said.String())
	}
}

func TestRowsComparedWithAreThere(t *testing.T) {
	for _, r := range rows {
		for _, c := range r.checks {
			if c.of != "" && rowNamed(c.of) < 0 {
				t.Errorf("%s is compared with %q, which is none", r.name, c.of)
			}
		}
	}
}
