package node

import (
	"log/slog"
	"slices"

	"github.com/tocsinhq/tocsin/biztype"
)

// warnMisplaced logs the handlers that get no task: nobody has applied their biz
// type, or its policy names another group. They are no error: a type may be
// applied, or moved, while the node runs.
func warnMisplaced(log *slog.Logger, group string, handlers *Handlers, policies []biztype.Policy) {
	for _, name := range handlers.names() {
		i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == name })
		switch {
		case i < 0:
			log.Warn("a handler has no biz type: apply it with tocsin biz apply", "biz_type", name)
		case policies[i].WithDefaults().Group != group:
			log.Warn("a handler gets no task: its biz type belongs to another group; change the node's Group or the policy's",
				"biz_type", name, "group", group, "group_of_type", policies[i].WithDefaults().Group)
		}
	}
}
