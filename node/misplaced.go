package node

import (
	"slices"

	"github.com/rs/zerolog"

	"github.com/tocsinhq/tocsin/biztype"
)

// warnMisplaced logs the handlers that get no task: nobody has applied their biz
// type, or its policy names another group. They are no error: a type may be
// applied, or moved, while the node runs.
func warnMisplaced(log zerolog.Logger, group string, handlers *Handlers, policies []biztype.Policy) {
	for _, name := range handlers.names() {
		i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == name })
		switch {
		case i < 0:
			log.Warn().Str("biz_type", name).Msg("a handler has no biz type: apply it with tocsin biz apply")
		case policies[i].WithDefaults().Group != group:
			log.Warn().Str("biz_type", name).Str("group", group).Str("group_of_type", policies[i].WithDefaults().Group).
				Msg("a handler gets no task: its biz type belongs to another group; change the node's Group or the policy's")
		}
	}
}
