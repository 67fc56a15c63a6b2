package chaos

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSchedule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		length := time.Duration(rapid.IntRange(20, 1200).Draw(t, "seconds")) * time.Second
		o := Options{Nodes: rapid.IntRange(1, 5).Draw(t, "nodes"), Servers: rapid.IntRange(1, 4).Draw(t, "servers"), Shops: rapid.IntRange(0, 3).Draw(t, "shops")}
		o.Broker = rapid.SampledFrom([]string{"", "kafka"}).Draw(t, "broker")
		steps := NewSchedule(seed, length, o)
		if again := NewSchedule(seed, length, o); !slices.Equal(steps, again) {
			t.Fatalf("the same seed gave\n%s\nand\n%s", Text(steps), Text(again))
		}
		busy := map[string]time.Duration{}
		for _, step := range steps {
			if step.At < calmBegin || step.At+step.Length+calmEnd > length {
				t.Fatalf("too near the begin or the end of %s: %s", length, step)
			}
			target := step.target()
			if step.At < busy[target] {
				t.Fatalf("%s is hit twice at once:\n%s", target, Text(steps))
			}
			busy[target] = step.At + step.Length
		}
	})
}

func TestSeedsDifferAndLongSchedulesHaveEveryFault(t *testing.T) {
	t.Parallel()
	one, two := NewSchedule(1, time.Hour, Options{}), NewSchedule(2, time.Hour, Options{})
	if slices.Equal(one, two) {
		t.Error("two seeds gave one schedule")
	}
	for _, o := range []Options{{}, {Shops: 3}, {Broker: "kafka"}} {
		hour := NewSchedule(1, time.Hour, o)
		for _, s := range o.shapes() {
			if !slices.ContainsFunc(hour, func(step Step) bool { return step.Fault == s.fault }) {
				t.Errorf("an hour without %q", s.fault)
			}
		}
	}
}
