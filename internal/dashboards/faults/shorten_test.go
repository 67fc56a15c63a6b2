package main

import (
	"testing"
	"time"
)

func TestRulesAreShortened(t *testing.T) {
	t.Parallel()
	const rules = `  - name: slow
    interval: 3m
    rules:
      - alert: X
        expr: max_over_time(a[2m]) > 120 and rate(b[1h]) > 0
        for: 15m
      - alert: Y
        expr: c
        for: 0m
`
	const want = `  - name: slow
    rules:
      - alert: X
        expr: max_over_time(a[8s]) > 120 and rate(b[120s]) > 0
        for: 30s
      - alert: Y
        expr: c
        for: 0s
`
	if got := shorten(rules, 30, 8*time.Second); got != want {
		t.Errorf("got\n%s", got)
	}
}
