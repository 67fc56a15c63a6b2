package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// result is what the rounds of one row gave.
type result struct {
	row
	figures map[string][]float64 // by the key of a check, in the order of the rounds
}

// caller runs one command and gives the JSON that it prints.
type caller func(ctx context.Context, program string, args []string) ([]byte, error)

// measure runs the rows, round after round, and tells after each.
func measure(ctx context.Context, o options, rows []row, tell func(row, int, error), call caller) []result {
	var results []result
	for _, r := range rows {
		if len(o.only) == 0 || slices.Contains(o.only, r.name) {
			results = append(results, result{r, make(map[string][]float64)})
		}
	}
	for round := 1; round <= o.rounds; round++ {
		for _, r := range results {
			if ctx.Err() != nil || r.once && round > 1 {
				continue
			}
			args := r.args
			if o.server != "" {
				args = append(slices.Clone(args), "--server", o.server)
			}
			out, err := call(ctx, o.program, args)
			if err == nil {
				err = r.take(out)
			}
			tell(r.row, round, err)
		}
	}
	return results
}

// take notes the figures of one run.
func (r result) take(out []byte) error {
	var said map[string]any
	if err := json.Unmarshal(out, &said); err != nil {
		return fmt.Errorf("what it printed is no JSON: %w", err)
	}
	for _, c := range r.checks {
		x, ok := find(said, c.key)
		if !ok {
			return fmt.Errorf("it printed no %s", c.key)
		}
		r.figures[c.key] = append(r.figures[c.key], x)
	}
	return nil
}

// find looks a number up by its key, with dots into objects.
func find(in map[string]any, key string) (float64, bool) {
	first, rest, deeper := strings.Cut(key, ".")
	if !deeper {
		x, ok := in[key].(float64)
		return x, ok
	}
	inner, ok := in[first].(map[string]any)
	if !ok {
		return 0, false
	}
	return find(inner, rest)
}

// median is the middle one, or the mean of the two in the middle.
func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
