package main

import "github.com/spf13/cobra"

func newBizPause(a *app) *cobra.Command {
	return a.pausing("pause", "Let the tasks of a biz type wait", `Pauses a biz type: nodes and sweepers start none of its tasks within a second or two, and deliveries
in hand end. Tasks are added as before, and wait. The next `+"`tocsin biz apply`"+` says again what its file says.`, true)
}

func newBizResume(a *app) *cobra.Command {
	return a.pausing("resume", "Deliver the tasks of a paused biz type again",
		"Ends the pause of a biz type: what is overdue is delivered at once, as fast as its concurrency and rate allow.", false)
}

func (a *app) pausing(verb, short, long string, paused bool) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long, Args: exactArgs("NAME"), ValidArgsFunction: a.completeTypes,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer o.Close()
			res, failed := o.Pause(cmd.Context(), args[0], paused)
			return a.printApplied(res, failed)
		},
	}
}
