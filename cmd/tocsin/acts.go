package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tocsinhq/tocsin/operator"
)

func newActs(a *app) *cobra.Command {
	var q operator.ActsQuery
	var from, to string
	c := &cobra.Command{
		Use: "acts", Short: "Say who changed what, the newest first", Args: noArgs,
		Long: `Lists changes by commands, by the console and by the HTTP API, but for tasks that programs add, cancel
or reschedule by the API. They are written after the change, as far as that succeeds at once: a
database user without the role acts leaves none. Each purge removes those older than 90 days.`,
		Example: "  tocsin acts --object 'biz type order.close'\n  tocsin acts --person alice@ops-1 --from 2030-01-02T15:04:05Z",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			for flag, t := range map[string]*time.Time{"from": &q.From, "to": &q.To} {
				if text := map[string]string{"from": from, "to": to}[flag]; text != "" {
					if *t, err = parseTime(flag, text); err != nil {
						return err
					}
				}
			}
			return using(cmd.Context(), a, operator.Open, func(o *operator.Operator) error { return a.acts(cmd.Context(), o, q) })
		},
	}
	c.Flags().StringVar(&from, "from", "", "no earlier ones, RFC 3339")
	c.Flags().StringVar(&to, "to", "", "earlier ones only, RFC 3339")
	c.Flags().StringVar(&q.Person, "person", "", "by this one only: name of a token, or user@host")
	c.Flags().StringVar(&q.Operation, "operation", "", "of this kind only, for example pause_biz_type")
	c.Flags().StringVar(&q.Object, "object", "", "about what begins so, for example 'task 118010532085006336'")
	c.Flags().IntVar(&q.Limit, "limit", operator.MaxPastActs/2, "acts at most")
	within(c, "limit", 1, operator.MaxPastActs)
	return c
}

func (a *app) acts(ctx context.Context, o *operator.Operator, q operator.ActsQuery) error {
	all, next, failed := o.Acts(ctx, q)
	if failed != nil && len(all) == 0 {
		return failed
	}
	err := a.print(struct {
		Acts []operator.PastAct `json:"acts"`
		More bool               `json:"more"`
	}{all, next > 0}, func(w io.Writer) {
		rows := [][]string{{"TIME", "PERSON", "VIA", "OPERATION", "OBJECT", "OUTCOME", "REASON"}}
		for _, act := range all {
			rows = append(rows, []string{act.At.Format("2006-01-02 15:04:05.000Z"), oneCell(act.Person), act.Via, act.Operation, oneCell(act.Object), oneCell(act.Outcome), oneCell(act.Reason)})
		}
		columns(w, rows...)
		if next > 0 {
			fmt.Fprintln(w, "there may be more: use --to with the time of the last one")
		}
	})
	return cmp.Or(err, failed)
}

// noted are the commands whose changes are written down: as which operation, and about what.
var noted = map[string]struct{ operation, object string }{
	"task add":            {"add_task", "task"},
	"task cancel":         {"cancel_task", "task"},
	"task reschedule":     {"reschedule_task", "task"},
	"task redrive":        {"redrive_tasks", "task"},
	"task bury":           {"bury_task", "task"},
	"biz apply":           {"apply_biz_types", "file"},
	"biz pause":           {"pause_biz_type", "biz type"},
	"biz resume":          {"resume_biz_type", "biz type"},
	"biz delete":          {"delete_biz_type", "biz type"},
	"schedule apply":      {"apply_schedules", "file"},
	"schedule activate":   {"activate_schedule", "schedule"},
	"schedule deactivate": {"deactivate_schedule", "schedule"},
	"schedule run-now":    {"run_schedule", "schedule"},
	"schedule backfill":   {"backfill_schedule", "schedule"},
	"schedule delete":     {"delete_schedule", "schedule"},
}

// silent are flags that say nothing of what a change was about, or hold what tasks carry.
var silent = map[string]bool{"config": true, "json": true, "payload": true, "header": true, "dedup": true, "reason": true, "dry-run": true}

// noteWithin bounds how long a command waits for its note.
const noteWithin = 2 * time.Second

// note writes down what a command has changed, or may have if it failed, unless it was called wrongly. The change stays whatever becomes
// of the note.
func (a *app) note(ctx context.Context, cmd *cobra.Command, failed error) {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	is, known := noted[path]
	if dry := cmd.Flags().Lookup("dry-run"); !known || codeOf(failed) == exitUsage || dry != nil && dry.Value.String() == "true" {
		return
	}
	act := operator.PastAct{At: time.Now(), Person: person(), Via: operator.ViaCommand, Operation: is.operation, Object: is.object, Outcome: "ok"}
	if failed != nil {
		act.Outcome = cmp.Or(operator.OneLine(failed), "failed")
	}
	if of := cmd.Flags().Lookup("type"); path == "task redrive" && of.Changed {
		act.Object = "biz type " + of.Value.String() + ", dead tasks"
	}
	for _, arg := range cmd.Flags().Args() {
		act.Object += " " + arg
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !silent[f.Name] && (f.Name != "type" || path != "task redrive") {
			act.Object += " --" + f.Name + " " + f.Value.String()
		}
	})
	if reason := cmd.Flags().Lookup("reason"); reason != nil && reason.Changed {
		act.Reason = reason.Value.String()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWithin)
	defer cancel()
	_ = using(ctx, a, operator.Open, func(o *operator.Operator) error { return o.Note(ctx, []operator.PastAct{act}) })
}

// person names who runs the command: the user of the host, behind sudo too.
func person() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // "": the name alone says it
	return strings.TrimSuffix(cmp.Or(name, "unknown")+"@"+host, "@")
}
