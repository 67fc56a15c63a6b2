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

// figures are what the runs printed, by "row key" and in the order of the rounds.
type figures map[string][]float64

// caller runs one command and returns what it prints.
type caller func(ctx context.Context, program, command string) ([]byte, error)

// measure runs the rows, round after round, and calls tell after each run.
func measure(ctx context.Context, o options, tell func(row, int, error), call caller) figures {
	all := figures{}
	for round := 1; round <= o.rounds; round++ {
		for _, r := range o.rows {
			if ctx.Err() != nil || r.once && round > 1 {
				continue
			}
			out, err := call(ctx, o.program, r.command)
			if err == nil {
				err = all.take(r, out)
			}
			tell(r, round, err)
		}
	}
	return all
}

// take adds the figures of one run.
func (all figures) take(r row, out []byte) error {
	said, err := figuresOf(out)
	if err != nil {
		return err
	}
	for _, c := range r.checks {
		x, ok := find(said, c.key)
		if !ok {
			return fmt.Errorf("it printed no %s", c.key)
		}
		all[r.name+" "+c.key] = append(all[r.name+" "+c.key], x)
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
