package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/wait"
)

// pager tells people: Alertmanager in a process of its own, with the example of deploy/prometheus.
type pager struct {
	address string
	cmd     *exec.Cmd
}

// notifyPath is where it sends what people would get.
const notifyPath = "/notify"

// startAlertmanager starts Debian's Alertmanager. Its group_wait (30s) and group_interval (5m) are divided like the rules.
func (p *place) startAlertmanager(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(p.opts.rules, "alertmanager.example.yaml"))
	if err != nil {
		return err
	}
	hook := fmt.Sprintf("\n    webhook_configs: [{url: %q, send_resolved: false}]\n", p.receiver.URL+notifyPath)
	config := strings.NewReplacer("route:\n", "route:\n  group_wait: 1s\n  group_interval: 10s\n",
		"- name: pager\n", "- name: pager"+hook, "- name: tickets\n", "- name: tickets"+hook).Replace(string(text))
	file := filepath.Join(p.dir, "alertmanager.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	program, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		if program, err = exec.LookPath("alertmanager"); err != nil {
			return errors.New("no Alertmanager: run scripts/install-deps.sh alerts")
		}
	}
	p.pager.address = fmt.Sprintf("127.0.0.1:%d", devserver.FreePort())
	p.pager.cmd = exec.Command(program, "--config.file="+file, "--storage.path="+filepath.Join(p.dir, "alertmanager"),
		"--web.listen-address="+p.pager.address, "--cluster.listen-address=")
	if err := p.pager.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		answer, err := http.Get("http://" + p.pager.address + "/-/ready")
		if err == nil {
			_ = answer.Body.Close()
			return nil
		}
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("alertmanager: %w", err)
		}
	}
}

func (a *pager) stop() {
	if a.cmd != nil && a.cmd.Process != nil {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait() // it was killed
	}
}

// notify notes what people are told.
func (p *place) notify(r *http.Request) {
	var said struct {
		Alerts []struct{ Labels map[string]string }
	}
	if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range said.Alerts {
		p.told[a.Labels["alertname"]+", "+a.Labels["severity"]] = true
	}
}

// tellsAnew forgets what people were told, and returns it.
func (p *place) tellsAnew() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := p.told
	p.told = map[string]bool{}
	return told
}
