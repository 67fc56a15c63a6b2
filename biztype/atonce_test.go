package biztype_test

import (
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// Programs that start at once with the same policies all succeed, and one of them writes each.
func TestTheSamePoliciesFromManyAtOnce(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	policies := []biztype.Policy{{Name: "a.one", Number: 1, Group: "g"}, {Name: "a.two", Number: 2, Group: "g"}}
	brought := []biztype.Policy{{Name: "b.one", Group: "g", Edition: 1}, {Name: "b.two", Group: "g", Edition: 1}}
	for _, step := range []struct {
		name string
		want biztype.Verdict
		call func() (biztype.Result, error)
	}{
		{"apply", biztype.Added, func() (biztype.Result, error) { return biztype.Apply(t.Context(), cfg, policies) }},
		{"change", biztype.Changed, func() (biztype.Result, error) {
			changed := []biztype.Policy{policies[0], policies[1]}
			changed[0].Attempts, changed[1].Attempts = 7, 7
			return biztype.Apply(t.Context(), cfg, changed)
		}},
		{"bring", biztype.Added, func() (biztype.Result, error) { return biztype.Bring(t.Context(), cfg, brought) }},
		{"pause", biztype.Changed, func() (biztype.Result, error) { return biztype.SetPaused(t.Context(), cfg, "a.one", true) }},
		{"resume", biztype.Changed, func() (biztype.Result, error) { return biztype.SetPaused(t.Context(), cfg, "a.one", false) }},
	} {
		results, errs := devtest.AtOnce(8, func(int) (biztype.Result, error) { return step.call() })
		wrote := map[string]int{}
		for i, err := range errs {
			if err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
			for _, of := range results[i].Types {
				if of.Verdict == step.want {
					wrote[of.Name]++
				}
			}
		}
		for name, n := range wrote {
			if n != 1 {
				t.Errorf("%s: %d say that they have %s %s", step.name, n, step.want, name)
			}
		}
		if len(wrote) == 0 {
			t.Errorf("%s: nobody has %s anything", step.name, step.want)
		}
	}
}
