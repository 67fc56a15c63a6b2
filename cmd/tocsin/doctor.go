package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/doctor"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/seam"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator/cluster"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/store"
	"github.com/tocsinhq/tocsin/webhook"
)

// diagnosis is the JSON of `doctor`.
type diagnosis struct {
	OK     bool           `json:"ok"` // no check failed
	Checks []doctor.Check `json:"checks"`
}

func newDoctor(a *app) *cobra.Command {
	var nodes int
	var roles []string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check config, servers and etcd, and say what to change", Args: noArgs,
		Long: "Check the config, every server (layout, tables, rights, commits, durability, replicas, caches,\n" +
			"limits, clock), the biz types with the secrets of their callbacks, paused schedules, the\n" +
			"programs of the nodes, and etcd. It changes nothing that lasts: to see whether commits end it\n" +
			"inserts and deletes one row, with job_id 0, in one transaction on each server. Exit code 1 if\n" +
			"a check failed; warnings are no failures.\n\n" +
			"The rights are those that nodes, clients and purges need together, or with --role those of a\n" +
			"user with the roles of `tocsin ddl grants`. Without the rights to insert and delete tasks, it\n" +
			"does not test commits.",
		Example: "  tocsin doctor\n  tocsin doctor --role node --config node.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if nodes < 0 {
				return usage("--nodes %d: give how many nodes there will be", nodes)
			}
			if err := knownRoles(roles, "doctor"); err != nil {
				return err
			}
			d := diagnosis{Checks: a.examine(cmd.Context(), nodes, roles)}
			d.OK = doctor.Worst(d.Checks) < doctor.Fail
			if err := a.print(d, d.write); err != nil || d.OK {
				return err
			}
			return errSilent
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 0, "judge the servers' max_connections for this number of nodes (default: the live nodes)")
	roleFlag(cmd, &roles, "judge the user's rights for a role, or several (default: all that nodes, clients and purges do)")
	return cmd
}

// examine makes all checks. If the config can't be read, that is the only check.
func (a *app) examine(ctx context.Context, nodes int, roles []string) []doctor.Check {
	file, err := a.load()
	config := doctor.Check{Subject: "config", Name: "valid"}
	if err != nil {
		config.Level, config.Is, config.Fix = doctor.Fail, cluster.OneLine(err), "correct the config file, see configs/production.yaml for every key"
		return []doctor.Check{config}
	}
	cfg := file.Tocsin()
	p, closeAll, err := patient(file)
	if err != nil {
		config.Level, config.Is, config.Fix = doctor.Fail, cluster.OneLine(err), "correct the servers of the config file"
		return []doctor.Check{config}
	}
	defer closeAll()
	if len(roles) > 0 {
		p.Roles = strings.Join(roles, ",")
		p.Rights, _ = ddl.Rights(roles) // their names are known
	}
	p.Secrets = secretsHere(file.Node.SecretsDir)
	p.Paused = a.pausedSchedules
	if file.Layout.Ownership == ddl.ByRows {
		p.Open, p.Members = true, a.members
	} else if etcd, err := file.EtcdConfig(); err != nil || len(etcd.Endpoints) > 0 {
		p.Etcd = func(ctx context.Context) (string, error) {
			if err != nil {
				return "", err
			}
			return askEtcd(ctx, etcd, cfg.Cluster, cfg.Layout.Total())
		}
		p.Identity = a.identityInEtcd
		p.Members = a.members
	}
	if nodes == 0 {
		bounded, cancel := context.WithTimeout(ctx, doctor.DefaultTimeout)
		defer cancel()
		nodes = len(a.nodeNames(bounded)) // 0 if etcd can't be asked, which is a check of its own
	}
	servers := make([]string, len(p.Uses))
	for i := range p.Uses {
		p.Uses[i].Nodes = nodes
		servers[i] = p.Uses[i].Name
	}
	config.Is = fmt.Sprintf("layout %s on %s; grace of sweeps %s", cfg.Layout, strings.Join(servers, ", "), file.Sweep.Grace.D())
	checks := append([]doctor.Check{config}, doctor.Examine(ctx, p)...)
	for i, c := range checks {
		checks[i].Is = cluster.Plain(c.Is)
	}
	return checks
}

// secretsHere looks for a callback's secrets where a node on this host would.
func secretsHere(dir string) func(biztype.Policy) error {
	secrets := webhook.Secrets{Dir: dir, Getenv: os.Getenv}
	return func(policy biztype.Policy) error {
		sink, err := webhook.FromPolicy(policy, "doctor", secrets.Value)
		if err == nil {
			sink.Close()
		}
		return err
	}
}

// members returns what the live nodes of all groups deliver.
func (a *app) members(ctx context.Context) (all []doctor.Member, err error) {
	groups, err := a.nodes(ctx, "")
	for _, g := range groups {
		all = append(all, g.Members()...)
	}
	return all, err
}

// pausedMost is how many paused schedules are counted.
const pausedMost = 1000

// pausedSchedules returns the names of the schedules that were paused as their runs failed, at most pausedMost. An error
// beside names is of servers that could not be asked.
func (a *app) pausedSchedules(ctx context.Context) (names []string, err error) {
	err = using(ctx, a, schedule.Open, func(s *schedule.Schedules) error {
		found, err := s.List(ctx, schedule.Query{State: schedule.Paused, Limit: pausedMost})
		for _, one := range found {
			names = append(names, one.Name)
		}
		return err
	})
	return names, err
}

func patient(file config.File) (p doctor.Patient, closeAll func(), err error) {
	cfg := file.Tocsin()
	tables, err := store.Open(cfg, store.Ownership(cmp.Or(file.Layout.Ownership, ddl.ByEtcd)), store.SweepGrace(file.Sweep.Grace.D()))
	if err != nil {
		return p, nil, err
	}
	p.Servers = tables
	p.Types = func(ctx context.Context) ([]biztype.Policy, error) { return biztype.Load(ctx, cfg) }
	for i, spec := range seam.Specs(cfg) {
		if spec.MaxConns <= 0 {
			spec.MaxConns = mysql.DefaultMaxConns
		}
		p.Uses = append(p.Uses, doctor.Use{Name: spec.Name, Tables: len(tables.TablesOf(i)), Conns: spec.MaxConns})
	}
	return p, func() { _ = tables.Close() }, nil
}

// askEtcd wants a read that a majority agrees to, not just an open port.
func askEtcd(ctx context.Context, cfg node.EtcdConfig, cluster string, tables int) (string, error) {
	keys, err := assign.OpenRegistry(ctx, cfg, cluster, tables)
	if err != nil {
		return "", err
	}
	defer keys.Close()
	groups, err := keys.Groups(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s answers; groups with nodes: %s", strings.Join(cfg.Endpoints, ", "), handlers(groups)), nil
}

func (d diagnosis) write(w io.Writer) {
	for _, c := range d.Checks {
		fmt.Fprintf(w, "%-5s %-12s %s: %s\n", c.Level, c.Subject, c.Name, oneCell(c.Is))
		if c.Fix != "" {
			fmt.Fprintf(w, "%-5s -> %s\n", "", c.Fix)
		}
	}
	fmt.Fprintf(w, "%d ok, %d to warn of, %d failed\n",
		doctor.Count(d.Checks, doctor.OK), doctor.Count(d.Checks, doctor.Warn), doctor.Count(d.Checks, doctor.Fail))
}
