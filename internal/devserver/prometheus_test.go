package devserver

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func startTestPrometheus(t *testing.T, cfg PrometheusConfig) (*Prometheus, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := StartPrometheus(ctx, cfg)
	if err == nil {
		t.Cleanup(func() {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	return p, err
}

func TestPrometheusAnswersQueriesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	p, err := startTestPrometheus(t, PrometheusConfig{Text: "global: {scrape_interval: 1s}\n"})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(p.URL() + "/api/v1/query?query=1")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close() != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("it answers %s", answer.Status)
	}
	dir := p.Dir()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left behind: %v", dir, err)
	}
}

func TestAPrometheusThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	if _, err := startTestPrometheus(t, PrometheusConfig{Text: "globe: {}\n"}); err == nil || !strings.Contains(err.Error(), "globe") {
		t.Errorf("a wrong file: %v", err)
	}
	first, err := startTestPrometheus(t, PrometheusConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startTestPrometheus(t, PrometheusConfig{Port: first.Port()}); !errors.Is(err, ErrPortInUse) {
		t.Errorf("a port in use: %v", err)
	}
	if _, err := firstProgram([]string{t.TempDir()}, ErrNoPrometheus, "prometheus"); !errors.Is(err, ErrNoPrometheus) || !strings.Contains(err.Error(), "apt-get install prometheus") {
		t.Errorf("without a program: %v", err)
	}
}
