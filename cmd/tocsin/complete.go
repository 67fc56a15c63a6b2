package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/biztype"
)

// completeWithin bounds what a shell waits for.
const completeWithin = 2 * time.Second

// completeTypes completes the names of the stored biz types. Where they can't
// be read it completes nothing: a shell is no place for errors.
func (a *app) completeTypes(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	policies, _ := biztype.Load(ctx, cfg) // those that can be read
	var names []cobra.Completion
	for _, p := range policies {
		names = append(names, cobra.CompletionWithDesc(p.Name, target(p)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeNode completes the id of a live node as the only argument.
func (a *app) completeNode(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeNodes(cmd, nil, prefix)
}

// completeNodes completes the ids of the live nodes, or nothing as above.
func (a *app) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	groups, _ := a.nodes(ctx, "")
	var ids []cobra.Completion
	for _, g := range groups {
		for _, n := range g.Nodes {
			ids = append(ids, cobra.CompletionWithDesc(n.ID, g.Group))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
