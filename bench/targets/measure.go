package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// result is what the rounds of one row gave.
type result struct {
	row
	figures map[string][]float64 // by the key of a check, in the order of the rounds
}

// caller runs one command and returns what it prints.
type caller func(ctx context.Context, program, command string) ([]byte, error)

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
			out, err := call(ctx, o.program, r.command)
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
	said, err := figuresOf(out)
	if err != nil {
		return err
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

// figuresOf reads the JSON of `tocsin bench`, or the figures of a Go benchmark by their units.
func figuresOf(out []byte) (map[string]any, error) {
	said := make(map[string]any)
	if bytes.HasPrefix(out, []byte("{")) {
		err := json.Unmarshal(out, &said)
		return said, err
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line) // BenchmarkPeek-2 1 0.22 p99-ms 1.01 p99-of-clean
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		for pair := range slices.Chunk(words[2:], 2) {
			x, err := strconv.ParseFloat(pair[0], 64)
			if err != nil || len(pair) < 2 {
				return nil, fmt.Errorf("not a line of a benchmark: %q", line)
			}
			said[pair[1]] = x
		}
	}
	return said, nil
}

// find looks a number up by its key, with dots into objects.
func find(in map[string]any, key string) (float64, bool) {
	first, rest, deeper := strings.Cut(key, ".")
	if !deeper {
		x, ok := in[key].(float64)
		return x, ok
	}
	inner, _ := in[first].(map[string]any)
	return find(inner, rest)
}
