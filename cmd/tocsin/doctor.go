package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/webhook"
)

// diagnosis is the JSON of `doctor`.
type diagnosis struct {
	OK     bool             `json:"ok"` // no check failed
	Checks []operator.Check `json:"checks"`
}

func newDoctor(a *app) *cobra.Command {
	var x operator.Examination
	var roles []string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check config, servers and etcd, and say what to change", Args: noArgs,
		Long: "Check the config, every server (layout, tables, rights, commits, durability, replicas, caches,\n" +
			"limits, clock), the biz types with the secrets of their callbacks and the topics of their\n" +
			"sinks, the topics of entrances, paused schedules, the programs of the nodes, and etcd. It\n" +
			"changes nothing that lasts: to see whether commits end it inserts and deletes one row, with\n" +
			"job_id 0, in one transaction on each server. Exit code 1 if a check failed; warnings are no failures.\n\n" +
			"The rights are those that nodes, clients and purges need together, or with --role those of a\n" +
			"user with the roles of `tocsin ddl grants`. Without the rights to insert and delete tasks, it\n" +
			"does not test commits.",
		Example: "  tocsin doctor\n  tocsin doctor --role node --config node.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(roles) > 0 {
				var err error
				if x.Rights, err = ddl.Rights(roles); err != nil {
					return usageError{err}
				}
				x.Roles = strings.Join(roles, ",")
			}
			d := diagnosis{Checks: a.examine(cmd.Context(), x)}
			d.OK = operator.Worst(d.Checks) < operator.Fail
			if err := a.print(d, d.write); err != nil || d.OK {
				return err
			}
			return errSilent
		},
	}
	cmd.Flags().IntVar(&x.Nodes, "nodes", 0, "judge the servers' max_connections for this number of nodes (default: the live nodes)")
	roleFlag(cmd, &roles, "judge the user's rights for a role, or several (default: all that nodes, clients and purges do)")
	return cmd
}

// examine makes all checks. If the config can't be read, that is the only check.
func (a *app) examine(ctx context.Context, x operator.Examination) []operator.Check {
	valid := operator.Check{Subject: "config", Name: "valid"}
	refused := func(err error, fix string) []operator.Check {
		valid.Level, valid.Is, valid.Fix = operator.Fail, operator.OneLine(err), fix
		return []operator.Check{valid}
	}
	file, err := a.load()
	if err != nil {
		return refused(err, "correct the config file, see configs/production.yaml for every key")
	}
	v := viewOf(file)
	x.Secrets = secretsHere(file.Node.SecretsDir)
	sinks, err := a.sinks(file)
	if err != nil {
		return refused(err, "correct the sinks of the config file, see docs/sinks.md")
	}
	defer sinks.close(ctx)
	x.Sinks = sinks.ping
	checks, err := v.Examine(ctx, x)
	if err != nil {
		return refused(err, "correct the servers of the config file")
	}
	var servers []string
	for _, spec := range client.Specs(v.Tables) {
		servers = append(servers, spec.Name)
	}
	valid.Is = fmt.Sprintf("layout %s on %s; grace of sweeps %s", v.Tables.Layout, strings.Join(servers, ", "), v.Grace)
	checks = append([]operator.Check{valid}, checks...)
	for _, ask := range askedByDoctor {
		checks = append(checks, ask(a, ctx, visit{file, x.Roles, checks})...)
	}
	return checks
}

// entrances asks the brokers of each entrance for its topics and the user's rights.
func (a *app) entrances(ctx context.Context, v visit) (checks []operator.Check) {
	for _, o := range a.relayed(v.file) {
		e, ok := o.Driver.(tocsinkafka.Entrance)
		if !ok {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, sinkWithin)
		c := operator.Check{Subject: "entrances", Name: o.Name, Is: "the brokers have topic " + o.Table + " and its dead-letter topic"}
		if err := e.Ping(asked, o); err != nil {
			c.Level, c.Is, c.Fix = operator.Fail, operator.OneLine(err), "its commands wait: see docs/operations.md#entrances"
		}
		cancel()
		checks = append(checks, c)
	}
	return checks
}

// secretsHere looks for a callback's secrets where a node on this host would.
func secretsHere(dir string) func(biztype.Policy) error {
	secrets := webhook.Secrets{Dir: dir, Getenv: os.Getenv}
	return func(policy biztype.Policy) error {
		for _, way := range biztype.Links(policy) {
			if way.Webhook == nil {
				continue
			}
			callback, err := webhook.FromPolicy(way, "doctor", secrets.Value)
			if err != nil {
				return err
			}
			callback.Close()
		}
		return nil
	}
}

func (d diagnosis) write(w io.Writer) {
	count := map[operator.Level]int{}
	for _, c := range d.Checks {
		count[c.Level]++
		fmt.Fprintf(w, "%-5s %-12s %s: %s\n", c.Level, c.Subject, c.Name, oneCell(c.Is))
		if c.Fix != "" {
			fmt.Fprintf(w, "%-5s -> %s\n", "", c.Fix)
		}
	}
	fmt.Fprintf(w, "%d ok, %d to warn of, %d failed\n", count[operator.OK], count[operator.Warn], count[operator.Fail])
}
