package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestValuesAreWrittenInTheirUnit(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		value float64
		unit  string
	}{
		"0 s": {0, "s"}, "1.5 ms": {.0015, "s"}, "2 min": {120, "s"}, "1.98 min": {119, "s"}, "3 d": {3 * 86400, "s"}, "-5 ms": {-.005, "s"},
		"infinite": {math.Inf(1), "s"}, "97.4 %": {.974, "percentunit"}, "2 MiB": {2 << 20, "bytes"}, "1.5 K /s": {1500, "cps"}, "12": {12, "short"},
	} {
		if got := inUnit(c.value, c.unit); got != want {
			t.Errorf("%g %s: got %q, want %q", c.value, c.unit, got, want)
		}
	}
}

func TestAxesHaveRoundSteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		height float64
		unit   string
		want   float64
	}{
		{1, "short", .5}, {100, "short", 50}, {.037, "percentunit", .01}, {60, "s", 20}, {600, "s", 300}, {8 * 3600, "s", 2 * 3600}, {4 << 20, "bytes", 1 << 20},
	} {
		if got := nice(c.height, c.unit); math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("an axis of %g %s: steps of %g, want %g", c.height, c.unit, got, c.want)
		}
	}
}

func TestLinesAreStackedWithoutThoseThatHaveNoValue(t *testing.T) {
	t.Parallel()
	none := math.NaN()
	got := stack([]line{{"a", []float64{1, 2, none}}, {"b", []float64{10, none, 30}}})
	if !slices.Equal(got[1].values, []float64{11, 2, 30}) || !slices.Equal(got[0].values, []float64{1, 2, 0}) {
		t.Errorf("%v", got)
	}
	if low, high := bounds([]line{{"a", []float64{-1, none, math.Inf(1), 3}}}); low != -1 || high != 3 {
		t.Errorf("from %g to %g", low, high)
	}
}

func TestLegendsNameTheLabels(t *testing.T) {
	t.Parallel()
	if got := legend("{{server}}: {{ class }}, {{gone}}", map[string]string{"server": "db1", "class": "lost"}); got != "db1: lost, " {
		t.Errorf("%q", got)
	}
}

// answering is a Prometheus that answers each query with two series.
func answering(t *testing.T) string {
	t.Helper()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := strconv.ParseFloat(r.FormValue("start"), 64)
		if err != nil {
			t.Error(err)
		}
		series := func(name, value string) map[string]any {
			return map[string]any{"metric": map[string]string{"biz_type": name, "instance": name}, "values": [][2]any{{from, "0"}, {from + 60, value}}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{
			"resultType": "matrix", "result": []any{series("order<close>", "1"), series("coupon.remind", "NaN")},
		}})
	}))
	t.Cleanup(page.Close)
	return page.URL
}

// All dashboards are drawn, as XML, with a frame for each panel, and each says that it is not Grafana.
func TestEveryDashboardIsDrawn(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	if err := run(context.Background(), options{prometheus: answering(t), from: "../../../deploy/grafana/dashboards", to: to, over: 10 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(to, "*.svg"))
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := xml.NewDecoder(strings.NewReader(string(text))); ; {
			if _, err := decoder.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		if !strings.Contains(string(text), "this is not Grafana") || strings.Count(string(text), "<path") < 8 || strings.Contains(string(text), ">no data<") {
			t.Errorf("%s has %d lines", filepath.Base(path), strings.Count(string(text), "<path"))
		}
	}
}
