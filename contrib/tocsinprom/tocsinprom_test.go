package tocsinprom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

var (
	order  = tocsin.Define[string]("order.close")
	coupon = tocsin.Define[string]("coupon.remind")
	later  = tocsin.In(time.Hour)
)

func TestMain(m *testing.M) { devtest.Main(m) }

// values returns the counters, and the number of observations of each histogram, by name and labels.
func values(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key := family.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			all[key] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// observed opens a client of a cluster of its own.
func observed(t *testing.T, registry *prometheus.Registry) *tocsin.Client {
	t.Helper()
	ctx, prefix := t.Context(), devtest.Prefix(t)
	observe, err := Observe(registry)
	if err != nil {
		t.Fatal(err)
	}
	cfg := tocsin.Config{
		Layout: tocsin.Layout{Databases: 1, Tables: 2, Prefix: prefix}, Cluster: prefix,
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}, Observe: observe,
	}
	if _, err := ddl.Apply(ctx, cfg, ddl.Options{Cluster: prefix}); err != nil {
		t.Fatal(err)
	}
	if _, err := biztype.Apply(ctx, cfg, []biztype.Policy{{Name: "order.close", Number: 1, Group: "orders"}, {Name: "coupon.remind", Number: 2, Group: "orders"}}); err != nil {
		t.Fatal(err)
	}
	c, err := tocsin.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// call makes calls that succeed, and some that can't.
func call(t *testing.T, c *tocsin.Client) {
	t.Helper()
	ctx := t.Context()
	for _, call := range []func() error{
		func() error { _, err := c.Add(ctx, order.New(1, "", later).Dedup("a")); return err },
		func() error { _, err := c.Add(ctx, order.New(1, "", later).Dedup("a")); return err }, // exists
		func() error {
			_, err := c.AddMany(ctx, []tocsin.NewTask{order.New(2, "", later), coupon.New(2, "", later), coupon.New(3, "", later)})
			return err
		},
		func() error { _, err := c.Cancel(ctx, order.Of(1)); return err },
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, call := range []func() error{
		func() error { _, err := c.Add(ended, tocsin.Define[string]("not.read").New(1, "", later)); return err },
		func() error { _, err := c.Add(ctx, tocsin.Define[string]("no.such").New(1, "", later)); return err },
		func() error { _, err := c.Add(ended, order.New(3, "", later)); return err },
		func() error { _, err := c.Get(ctx, 1<<40); return err },
	} {
		if call() == nil {
			t.Error("a call that can't succeed did")
		}
	}
}

func TestCallsOfAClientAreCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	call(t, observed(t, registry))
	got := values(t, registry)
	want := map[string]float64{
		"tocsin_client_calls_total add ok":               2,
		"tocsin_client_calls_total add unknown_biz_type": 1,
		"tocsin_client_calls_total add canceled":         2,
		"tocsin_client_calls_total add_many ok":          1,
		"tocsin_client_calls_total cancel ok":            1,
		"tocsin_client_calls_total get not_found":        1,
		"tocsin_client_calls_total get ok":               0, // they exist from the first call on
		"tocsin_client_call_seconds add":                 5,
		"tocsin_client_call_seconds add_many":            1,
		"tocsin_client_call_seconds cancel":              1,
		"tocsin_client_call_seconds get":                 1,
		"tocsin_client_tasks_total order.close new":      2,
		"tocsin_client_tasks_total order.close existing": 1,
		"tocsin_client_tasks_total order.close failed":   1,
		"tocsin_client_tasks_total coupon.remind new":    2,
		"tocsin_client_tasks_total  failed":              2, // a name that is not known to exist is no label
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestTwoObserversOfOneRegistererAreRefused(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	if _, err := Observe(registry); err != nil {
		t.Fatal(err)
	}
	if _, err := Observe(registry); !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("got %v", err)
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"ok": nil, "other": errors.New("x"), "unreachable": fmt.Errorf("x: %w", tocsin.ErrUnreachable),
		"unknown_outcome": errors.Join(tocsin.ErrUnreachable, tocsin.ErrUnknownOutcome), "canceled": context.DeadlineExceeded,
	} {
		if got := resultOf(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}
