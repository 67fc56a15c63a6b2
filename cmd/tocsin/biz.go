package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

func newBiz(a *app) *cobra.Command {
	return group("biz", "Apply, show, count, pause, resume and delete biz types",
		newBizApply(a), newBizList(a), newBizShow(a), newBizStats(a), newBizPause(a), newBizResume(a), newBizDelete(a))
}

// appliedBiz is the JSON of `biz apply`.
type appliedBiz struct {
	Types     []appliedType `json:"types"`
	Revision  uint64        `json:"revision"`
	Databases int           `json:"databases"` // written
	DryRun    bool          `json:"dry_run,omitempty"`
}

type appliedType struct {
	Name    string          `json:"name"`
	Number  uint64          `json:"number"`
	Verdict biztype.Verdict `json:"verdict"`
}

func newBizApply(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Write the policies of a YAML file into every database", Args: exactArgs("FILE"),
		Long: "Write the policies of a YAML file into every database. Biz types that are not in the\n" +
			"file are left alone. Nodes follow in about a second.",
		RunE: func(cmd *cobra.Command, args []string) error { return a.applyBiz(cmd, args[0], dryRun) },
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be written, and write nothing")
	return cmd
}

func (a *app) applyBiz(cmd *cobra.Command, path string, dryRun bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	policies, err := biztype.Parse(text, path)
	if err != nil {
		return err
	}
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	if dryRun {
		res, failed := biztype.Preview(cmd.Context(), cfg, policies)
		if len(res.Types) == 0 {
			return failed
		}
		return errors.Join(a.printTypes(res, true), failed)
	}
	res, failed := biztype.Apply(cmd.Context(), cfg, policies)
	return a.printApplied(res, failed)
}

// printApplied says what was written, unless nothing was for a failure.
func (a *app) printApplied(res biztype.Result, failed error) error {
	if failed != nil && res.Databases == 0 {
		return failed
	}
	return errors.Join(a.printTypes(res, false), failed)
}

func (a *app) printTypes(res biztype.Result, dryRun bool) error {
	done := appliedBiz{Types: make([]appliedType, len(res.Types)), Revision: res.Revision, Databases: res.Databases, DryRun: dryRun}
	for i, t := range res.Types {
		done.Types[i] = appliedType(t)
	}
	return a.print(done, done.write)
}

func (b appliedBiz) write(w io.Writer) {
	rows := make([][]string, len(b.Types))
	for i, t := range b.Types {
		rows[i] = []string{t.Name, "number " + strconv.FormatUint(t.Number, 10), string(t.Verdict)}
	}
	columns(w, rows...)
	if b.DryRun {
		fmt.Fprintln(w, "nothing was written")
		return
	}
	fmt.Fprintf(w, "revision %d, %d databases written\n", b.Revision, b.Databases)
}

func newBizList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the stored biz types", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policies, err := a.policies(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(policies, func(w io.Writer) { writePolicies(w, policies) })
		},
	}
}

// policies reads the stored policies, with the defaults filled in: people ask
// what holds.
func (a *app) policies(ctx context.Context) ([]biztype.Policy, error) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, err
	}
	stored, err := biztype.Load(ctx, cfg)
	policies := make([]biztype.Policy, len(stored))
	for i, p := range stored {
		policies[i] = p.WithDefaults()
	}
	return policies, err
}

func writePolicies(w io.Writer, policies []biztype.Policy) {
	rows := [][]string{{"NAME", "NUMBER", "GROUP", "TARGET", "TIMEOUT", "ATTEMPTS", "CONCURRENCY", "STATE"}}
	for _, p := range policies {
		rows = append(rows, []string{
			p.Name, strconv.FormatUint(p.Number, 10), p.Group, target(p), p.Timeout.String(),
			strconv.Itoa(p.Attempts), strconv.Itoa(p.Concurrency), state(p),
		})
	}
	columns(w, rows...)
}

func target(p biztype.Policy) string {
	if p.Webhook == nil {
		return "Go handler"
	}
	return p.Webhook.URL
}

func state(p biztype.Policy) string {
	if p.Paused {
		return "paused"
	}
	return "active"
}

func newBizShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show the policy of a biz type and what its nodes do", Args: exactArgs("NAME"),
		Long: `Show the policy of a biz type, with its defaults, as YAML that "biz apply" takes. A comment for each node of its group
says, by the node's status page, whether tasks begin there: open, limited (they wait for the rate), paused, lacking (no
handler or secret), away (the target can't be reached) or busy (the target wants to rest).`,
		ValidArgsFunction: a.completeTypes,
		RunE: func(cmd *cobra.Command, args []string) error {
			policies, err := a.policies(cmd.Context())
			if err != nil {
				return err
			}
			i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("unknown biz type %q: `tocsin biz list` names those that are applied", args[0])
			}
			v, err := a.view()
			if err != nil {
				return err
			}
			shown := shownPolicy{Policy: policies[i]}
			if shown.Nodes, err = v.Lanes(cmd.Context(), shown.WithDefaults().Group, shown.Name); err != nil {
				shown.Unasked = cluster.OneLine(err)
			}
			return a.showPolicy(shown)
		},
	}
}

// shownPolicy is the JSON of `biz show`.
type shownPolicy struct {
	biztype.Policy
	Nodes   []cluster.Lane `json:"nodes,omitempty"`
	Unasked string         `json:"nodes_not_asked,omitempty"` // why
}

func (a *app) showPolicy(p shownPolicy) error {
	text, err := yaml.Marshal(struct {
		BizTypes []biztype.Policy `yaml:"biz_types"`
	}{[]biztype.Policy{p.Policy}})
	if err != nil {
		return fmt.Errorf("show biz type %s: %w", p.Name, err)
	}
	return a.print(p, func(w io.Writer) {
		_, _ = w.Write(text)
		for _, n := range p.Nodes {
			fmt.Fprintf(w, "# %s: %s\n", oneCell(n.Node), oneCell(laneState(n)))
		}
		if p.Unasked != "" {
			fmt.Fprintf(w, "# its nodes were not asked: %s\n", oneCell(p.Unasked))
		}
	})
}

// laneState says whether tasks begin on a node, and what keeps them from it.
func laneState(n cluster.Lane) string {
	l := n.Lane
	switch {
	case n.Error != "":
		return "not asked: " + n.Error
	case l == nil:
		return "has not read the policy yet"
	}
	says := fmt.Sprintf("%s, %d of %d slots in use, %d tasks wait", l.State, l.Running, l.Limit, l.Queued+l.Ready)
	if !l.AwaySince.IsZero() {
		says += fmt.Sprintf(", since %s, next try %s: %s", l.AwaySince.UTC().Format(time.RFC3339), l.NextTry.UTC().Format(time.RFC3339), l.Why)
	}
	return says
}
