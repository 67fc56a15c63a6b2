package doctor

import (
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/biztype"
)

// secrets judges whether the secrets of the callbacks are available. doctor sees only its own environment, and says so.
// It fails for a type that no live node delivers either, and otherwise warns.
func (p Patient) secrets(policies []biztype.Policy, members []Member) []Check {
	const name = "secrets"
	if p.Secrets == nil {
		return nil
	}
	var missing []string
	level, signed := Warn, 0
	for _, policy := range policies {
		if policy.Webhook == nil || len(policy.Webhook.Secrets) == 0 {
			continue
		}
		signed++
		err := p.Secrets(policy)
		if err == nil {
			continue
		}
		missing = append(missing, err.Error())
		if !slices.ContainsFunc(members, func(m Member) bool { return slices.Contains(m.Types, policy.Name) }) {
			level = Fail
		}
	}
	switch {
	case len(missing) > 0:
		return []Check{bad(level, name, "missing or invalid where doctor runs: "+strings.Join(missing, "; "),
			"give the secrets to `tocsin serve` and `tocsin sweep`, since these tasks wait without them, and run doctor with the same environment and secrets_dir")}
	case signed > 0:
		return []Check{good(name, "those of %d callbacks are set where doctor runs", signed)}
	}
	return nil
}
