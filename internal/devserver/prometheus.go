package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
)

// ErrNoPrometheus says that there is no Prometheus to run, and how to get one.
var ErrNoPrometheus = errors.New("prometheus not found in PATH: install it with `apt-get install prometheus`")

// PrometheusConfig says how to run a Prometheus.
type PrometheusConfig struct {
	// Text is its configuration file.
	Text string
	// Port is the TCP port on 127.0.0.1; 0 picks a free one.
	Port int
}

// Prometheus is a Prometheus in a process of its own, with a temporary folder. Its methods may be called at any time from
// any goroutine.
type Prometheus struct {
	cfg    PrometheusConfig
	path   string // of the program
	folder *folder
	log    *logTail
	file   *os.File // of the log
	port   int
	proc   *process // nil until it has been launched; constant once StartPrometheus has returned

	stopOnce sync.Once
	stopErr  error
}

// StartPrometheus starts a Prometheus and returns when it answers. ctx bounds the start, not its life. It returns
// ErrNoPrometheus or ErrPortInUse, or an error with the last error of its log.
func StartPrometheus(ctx context.Context, cfg PrometheusConfig) (*Prometheus, error) {
	path, err := findPrometheus(systemDirs())
	if err != nil {
		return nil, err
	}
	if cfg.Port != 0 {
		if err := probePort(cfg.Port); err != nil {
			return nil, err
		}
	}
	folder, err := openFolder(ctx, "", "prometheus")
	if err != nil {
		return nil, err
	}
	p := &Prometheus{cfg: cfg, path: path, folder: folder}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start prometheus in %s: %w", folder.path, err), p.Stop())
	}
	return p, nil
}

// findPrometheus returns the first Prometheus in dirs.
func findPrometheus(dirs []string) (string, error) {
	for _, dir := range dirs {
		if path := filepath.Join(dir, executable("prometheus")); isProgram(path) {
			return path, nil
		}
	}
	return "", ErrNoPrometheus
}

// start writes the configuration and launches Prometheus, with another port if somebody else was faster and we may choose.
func (p *Prometheus) start(ctx context.Context) (err error) {
	if err := os.WriteFile(p.configPath(), []byte(p.cfg.Text), 0o600); err != nil {
		return err
	}
	p.file, err = os.OpenFile(filepath.Join(p.folder.path, "prometheus.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.log = &logTail{dst: p.file, failure: prometheusFailure}
	for attempt := 1; ; attempt++ {
		p.port = cmp.Or(p.cfg.Port, FreePort())
		err := p.launch(ctx)
		if err == nil || p.cfg.Port != 0 || attempt == portAttempts || !p.log.portTaken() {
			return err
		}
	}
}

func (p *Prometheus) configPath() string { return filepath.Join(p.folder.path, "prometheus.yml") }

// launch starts the process and waits until it answers; on an error the process has ended.
func (p *Prometheus) launch(ctx context.Context) error {
	p.log.reset()
	cmd := exec.Command(p.path,
		"--config.file="+p.configPath(),
		"--storage.tsdb.path="+filepath.Join(p.folder.path, dataName),
		"--web.listen-address="+loopback(p.port),
	)
	cmd.Dir = p.folder.path
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.ExtraFiles = []*os.File{p.folder.lockFile()}
	proc, err := startProcess(cmd, p.folder.leave)
	if err != nil {
		return err
	}
	p.proc = proc
	if err := proc.await(ctx, 10*answerEvery, p.log, func() bool { return p.ready(ctx) }); err != nil {
		proc.kill()
		return err
	}
	return nil
}

// ready reports whether Prometheus answers queries.
func (p *Prometheus) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+"/-/ready", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
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

// URL returns where Prometheus is, without a slash at its end.
func (p *Prometheus) URL() string { return "http://" + loopback(p.port) }

// Done is closed when the process has ended, for whatever reason.
func (p *Prometheus) Done() <-chan struct{} { return p.proc.done }

// Stop kills Prometheus, as nobody will see its data again, and removes its folder. It may be called again and then returns
// the same.
func (p *Prometheus) Stop() error {
	p.stopOnce.Do(func() { p.stopErr = p.stop() })
	return p.stopErr
}

func (p *Prometheus) stop() error {
	var errs []error
	if p.proc != nil {
		p.proc.kill()
	}
	if p.file != nil {
		errs = append(errs, p.file.Close())
	}
	return errors.Join(append(errs, p.folder.close())...)
}
