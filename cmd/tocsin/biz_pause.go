package main

import "github.com/spf13/cobra"

func newBizPause(a *app) *cobra.Command {
	return a.pausing("pause", "Make the tasks of a biz type wait", `Pauses a biz type: within two seconds, nodes and sweepers start none of its tasks any more. Deliveries in
progress go on. Tasks can still be added, and wait. The next `+"`tocsin biz apply`"+` sets the state that its file has.`, true)
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
