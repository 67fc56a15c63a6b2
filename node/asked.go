package node

import (
	"errors"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
)

// errUnasked is why a node lacks a pull type. Others, whose workers ask, stand in for it.
var errUnasked = errors.New(assign.Unasked)

// asked returns the target of a pull type, if workers ask for its tasks.
func (t *targets) asked(p biztype.Policy) (dispatcher.Target, error) {
	if target, asked := t.hub.Target(p); asked {
		return target, nil
	}
	return dispatcher.Target{}, errUnasked
}

// pulledNow returns the pull types that workers ask for here. It forgets the workers of types that have pull no more.
func (t *targets) pulledNow(policies []biztype.Policy) (names []string) {
	pulled := map[string]bool{}
	for _, p := range policies {
		pulled[p.Name] = p.Pull != nil && t.mine(p)
		if _, asked := t.of(p); asked && p.Pull != nil {
			names = append(names, p.Name)
		}
	}
	t.hub.Keep(pulled)
	return names
}
