package live

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Prometheus answers queries.
type Prometheus struct {
	api promv1.API
	URL string
}

// Dial returns the Prometheus at a URL. It connects to nothing.
func Dial(url string) (*Prometheus, error) {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return nil, err
	}
	return &Prometheus{api: promv1.NewAPI(client), URL: url}, nil
}

// Series is one series of an answer, without the moments at which its value is not a number.
type Series struct {
	Labels map[string]string
	Values []Point
}

// Point is the value of a series at a moment.
type Point struct {
	At    time.Time
	Value float64
}

// Ask evaluates a query at each step between two times. Series without a number are left out.
func (p *Prometheus) Ask(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]Series, error) {
	answer, _, _, err := p.api.QueryRange(ctx, query, promv1.Range{Start: from, End: to, Step: step})
	if err != nil {
		return nil, err
	}
	found, ok := answer.(model.Matrix)
	if !ok {
		return nil, nil
	}
	var all []Series
	for _, stream := range found {
		s := Series{Labels: map[string]string{}}
		for name, value := range stream.Metric {
			s.Labels[string(name)] = string(value)
		}
		for _, sample := range stream.Values {
			if v := float64(sample.Value); !math.IsNaN(v) {
				s.Values = append(s.Values, Point{sample.Timestamp.Time(), v})
			}
		}
		if len(s.Values) > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

// RuleState says how a rule did at its last evaluation.
type RuleState struct {
	Name, Error string
	Alert       string // inactive, pending or firing; "" for a recording rule
}

// Rules returns the states of all rules.
func (p *Prometheus) Rules(ctx context.Context) ([]RuleState, error) {
	found, err := p.api.Rules(ctx, nil)
	if err != nil {
		return nil, err
	}
	var all []RuleState
	for _, group := range found.Groups {
		for _, rule := range group.Rules {
			switch r := rule.(type) {
			case promv1.RecordingRule:
				all = append(all, RuleState{Name: r.Name, Error: r.LastError})
			case promv1.AlertingRule:
				all = append(all, RuleState{Name: r.Name, Error: r.LastError, Alert: r.State})
			}
		}
	}
	return all, nil
}

// Alerts returns the states of all alerts that are pending or fire: "TocsinServerDown, critical" is "firing".
func (p *Prometheus) Alerts(ctx context.Context) (map[string]string, error) {
	found, err := p.api.Alerts(ctx)
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

// Pauses returns how long each alert must hold before it fires, its `for`, under the names of Alerts. Several rules may have one name.
func (p *Prometheus) Pauses(ctx context.Context) (map[string][]time.Duration, error) {
	found, err := p.api.Rules(ctx, nil)
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
