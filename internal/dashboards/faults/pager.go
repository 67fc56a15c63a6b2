package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// notifyPath is where Alertmanager sends what people would get.
const notifyPath = "/notify"

// startPager starts Alertmanager with the example of deploy/prometheus. Its group_wait (30s) and group_interval (5m) are
// divided like the rules.
func (p *place) startPager(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(p.opts.rules, "alertmanager.example.yaml"))
	if err != nil {
		return err
	}
	hook := fmt.Sprintf("\n    webhook_configs: [{url: %q, send_resolved: false}]\n", p.receiver.URL+notifyPath)
	config := strings.NewReplacer("route:\n", "route:\n  group_wait: 1s\n  group_interval: 10s\n",
		"- name: pager\n", "- name: pager"+hook, "- name: tickets\n", "- name: tickets"+hook).Replace(string(text))
	p.pager, err = devserver.StartAlertmanager(ctx, devserver.PrometheusConfig{Text: config})
	return err
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
