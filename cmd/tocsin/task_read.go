package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
)

func newTaskGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get JOB_ID", Short: "Show a task", Args: exactArgs("JOB_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseJobID(args[0])
			if err != nil {
				return err
			}
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			info, err := client.Get(cmd.Context(), id)
			if err != nil {
				return misused(err)
			}
			return a.printTask(info)
		},
	}
}

func (a *app) printTask(info tocsin.Info) error {
	return a.print(info, func(w io.Writer) { writeTask(w, info, time.Now()) })
}

func newTaskList(a *app) *cobra.Command {
	var bizID uint64
	cmd := &cobra.Command{
		Use: "list --biz-id N", Short: "Show all tasks of a biz_id, oldest first", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if bizID == 0 {
				return usage("--biz-id is needed, and is not 0")
			}
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			infos, err := client.List(cmd.Context(), bizID)
			if err != nil {
				return misused(err)
			}
			return a.printTasks(bizID, infos)
		},
	}
	cmd.Flags().Uint64Var(&bizID, "biz-id", 0, "what the tasks are about, the sharding key")
	return cmd
}

func (a *app) printTasks(bizID uint64, infos []tocsin.Info) error {
	if infos == nil {
		infos = []tocsin.Info{} // in JSON [], not null
	}
	return a.print(infos, func(w io.Writer) {
		if len(infos) == 0 {
			fmt.Fprintf(w, "no tasks of biz_id %d\n", bizID)
		}
		writeTasks(w, infos, time.Now())
	})
}
