package main

import (
	"context"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
)

// alerts returns the states of all alerts that are pending or fire: "TocsinServerDown, critical" is "firing".
func (p *place) alerts(ctx context.Context) (map[string]string, error) {
	found, err := p.prom.Alerts(ctx)
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for _, a := range found.Alerts {
		name := string(a.Labels["alertname"]) + ", " + string(a.Labels["severity"])
		if states[name] != string(promv1.AlertStateFiring) {
			states[name] = string(a.State)
		}
	}
	return states, nil
}

// pauses returns how long each alert must hold before it fires, its `for`, under the names of alerts. Several rules may have
// one name.
func (p *place) pauses(ctx context.Context) (map[string][]time.Duration, error) {
	found, err := p.prom.Rules(ctx, nil)
	if err != nil {
		return nil, err
	}
	pauses := map[string][]time.Duration{}
	for _, group := range found.Groups {
		for _, rule := range group.Rules {
			if r, ok := rule.(promv1.AlertingRule); ok {
				name := r.Name + ", " + string(r.Labels["severity"])
				pauses[name] = append(pauses[name], time.Duration(r.Duration*float64(time.Second)))
			}
		}
	}
	return pauses, nil
}
