package node

import (
	"maps"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// A node looks at all its policies every few seconds, and several times in each look.
func TestASinkIsMadeAnewOnlyIfSomethingHasChanged(t *testing.T) {
	t.Parallel()
	var h Handlers
	sinks, secrets := 0, map[string]string{"A": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "B": "whsec_AAAA9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	h.UseCallbacks(func(next HandlerFunc) HandlerFunc { sinks++; return next })
	cfg := Config{Getenv: func(name string) string { return secrets[name] }}
	targets := newTargets(cfg.withDefaults(), &h, func(biztype.Policy) bool { return true })
	defer targets.close()
	policy := func(secret string) biztype.Policy {
		return biztype.Policy{Name: "a", Number: 1, Webhook: &tocsin.Webhook{URL: "https://example.com/a", Secrets: []string{secret}}}
	}
	seen := 0
	look := func(p biztype.Policy) (changed bool) {
		t.Helper()
		all := []biztype.Policy{p}
		targets.read(t.Context(), all)
		changed = targets.reload(all, &seen)
		if here, lacks := targets.types(all), targets.lacks(all); len(here) != 1 || len(lacks) != 0 {
			t.Fatalf("delivered here: %v; lacks %v", here, maps.Clone(lacks))
		}
		return changed
	}
	first := policy("A")
	if !look(first) || sinks != 1 {
		t.Fatalf("%d sinks at first", sinks)
	}
	for range 3 {
		if look(first) || sinks != 1 {
			t.Errorf("%d sinks though nothing has changed", sinks)
		}
	}
	secrets["A"] = secrets["B"]
	if !look(first) || sinks != 2 {
		t.Errorf("%d sinks after another value of the secret", sinks)
	}
	if look(policy("A")) {
		t.Error("a policy that was read again counts as a change")
	}
	slower := policy("A")
	slower.Concurrency = 3
	if before := sinks; !look(slower) || sinks != before+1 {
		t.Errorf("%d sinks after another concurrency, %d before", sinks, before)
	}
	delete(secrets, "A")
	before, all := sinks, []biztype.Policy{slower}
	targets.read(t.Context(), all)
	if targets.reload(all, &seen) || len(targets.types(all)) != 1 || len(targets.stale()) != 1 {
		t.Errorf("a secret that is gone: %v, %v, %d sinks after %d", targets.types(all), targets.stale(), sinks, before)
	}
}
