package devserver

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestPrometheusAnswersQueries(t *testing.T) {
	t.Parallel()
	p, err := StartPrometheus(t.Context(), PrometheusConfig{Text: "global: {scrape_interval: 1s}\n"})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(p.URL() + "/api/v1/query?query=1")
	if err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("it answers %v, %v", answer, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := firstProgram([]string{t.TempDir()}, ErrNoPrometheus, "prometheus"); !errors.Is(err, ErrNoPrometheus) || !strings.Contains(err.Error(), "apt-get install prometheus") {
		t.Errorf("without a program: %v", err)
	}
}
