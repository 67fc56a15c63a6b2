package devserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// These errors say that there is no server to run, and how to get one.
var (
	ErrNoPrometheus   = errors.New("prometheus not found in PATH: install it with `apt-get install prometheus`")
	ErrNoAlertmanager = errors.New("alertmanager not found in PATH: install it with `scripts/install-deps.sh alerts`")
)

// PrometheusConfig says how to run a Prometheus or an Alertmanager.
type PrometheusConfig struct {
	// Text is its configuration file.
	Text string
	// Port is the TCP port on 127.0.0.1; 0 picks a free one.
	Port int
}

// Prometheus is a private Prometheus or Alertmanager, with a temporary folder.
type Prometheus struct{ server }

// StartPrometheus starts a Prometheus and returns when it answers queries. ctx bounds the start, not its life. It returns
// ErrNoPrometheus or ErrPortInUse, or an error with the last error of its log.
func StartPrometheus(ctx context.Context, cfg PrometheusConfig) (*Prometheus, error) {
	path, err := firstProgram(systemDirs(), ErrNoPrometheus, "prometheus")
	if err != nil {
		return nil, err
	}
	kind := spec{name: "Prometheus", path: path, ready: "Server is ready to receive web requests"}
	return startWatcher(ctx, cfg, kind, "--storage.tsdb.path="+dataName)
}

// StartAlertmanager starts an Alertmanager, alone, and returns when its port is open. ctx bounds the start, not its life. It
// returns ErrNoAlertmanager or ErrPortInUse, or an error with the last error of its log.
func StartAlertmanager(ctx context.Context, cfg PrometheusConfig) (*Prometheus, error) {
	path, err := firstProgram(systemDirs(), ErrNoAlertmanager, "prometheus-alertmanager", "alertmanager")
	if err != nil {
		return nil, err
	}
	kind := spec{name: "Alertmanager", path: path}
	return startWatcher(ctx, cfg, kind, "--storage.path="+dataName, "--cluster.listen-address=")
}

// startWatcher starts either, which takes its configuration and address in the same options. Paths in options are those
// below its folder.
func startWatcher(ctx context.Context, cfg PrometheusConfig, kind spec, options ...string) (*Prometheus, error) {
	const file = "config.yml"
	p := &Prometheus{}
	p.spec = kind
	p.ports, p.failure = []int{cfg.Port}, prometheusFailure
	p.prepare = func(context.Context) error {
		return os.WriteFile(filepath.Join(p.folder.path, file), []byte(cfg.Text), 0o600)
	}
	p.args = func() []string {
		return append([]string{"--config.file=" + file, "--web.listen-address=" + p.Endpoint()}, options...)
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// prometheusError matches the error of a line of its log.
var prometheusError = regexp.MustCompile(`level=(?i:error).* err=("(?:[^"\\]|\\.)*"|\S+)`)

// prometheusFailure returns the error that a line of its log tells, or "".
func prometheusFailure(line string) string {
	m := prometheusError.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	if text, err := strconv.Unquote(m[1]); err == nil {
		return text
	}
	return m[1]
}

// URL returns where it is, without a slash at its end.
func (p *Prometheus) URL() string { return "http://" + p.Endpoint() }
