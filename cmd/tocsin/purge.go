package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/upkeep"
)

// purgeFlags are those of `tocsin purge`; they win over the config file.
type purgeFlags struct {
	cron   string
	once   bool
	dryRun bool
	dead   bool

	out outlet
}

func newPurge(a *app) *cobra.Command {
	var f purgeFlags
	c := &cobra.Command{
		Use: "purge", Short: "Remove finished tasks and runs past their retention, and old rings of the doorbell", Args: noArgs,
		Long: `Removes done and cancelled tasks that were settled longer ago than the retention of their
biz type (30 days unless its policy says otherwise), runs of the history that began longer ago
than that, and rings of the doorbell older than an hour. Pending and claimed tasks stay, and dead ones too without --dead. Batches are short,
shrink where a row is locked, and leave the servers half of the time. It needs MySQL only;
several may run at once. For cron: one summary line, exit code 1 if a server could not be
purged. If the user has no right to the runs yet, as after an upgrade, all else is purged, a line
on standard error has the GRANT, and the exit code is 0. With --cron, or purge.cron in the config, it stays and purges at those times.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.purge(cmd.Context(), f) },
	}
	c.Flags().StringVar(&f.cron, "cron", "", `stay, and purge at the times of a cron expression: "30 4 * * *", "@every 24h" (default: purge.cron of the config)`)
	c.Flags().BoolVar(&f.once, "once", false, "purge once, though the config has purge.cron")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "count what would be removed and change nothing")
	c.Flags().BoolVar(&f.dead, "dead", false, "remove dead tasks too: they can't be redriven then")
	outletFlags(c, &f.out)
	return c
}

func (a *app) purge(ctx context.Context, f purgeFlags) error {
	if err := checkTimes(f.cron, f.once); err != nil {
		return err
	}
	file, err := a.load()
	if err != nil {
		return err
	}
	tables, err := store.Connect(ctx, file.Tocsin())
	if err != nil {
		return err
	}
	defer tables.Close()
	if f.cron == "" {
		f.cron = file.Purge.Cron
	}
	resident := f.cron != "" && !f.once && !f.dryRun
	if err := f.out.check(f.dryRun); err != nil {
		return err
	}
	if resident {
		return a.purgeOn(ctx, f, file, tables)
	}
	return a.purgeOnce(ctx, f, file, tables)
}

// checkTimes refuses flags of a command that works once, or stays and works at the times of a cron expression.
func checkTimes(cron string, once bool) error {
	switch _, err := upkeep.ParseTimes(cron); {
	case once && cron != "":
		return usage("--once and --cron exclude each other")
	case cron != "" && err != nil:
		return usageError{err}
	}
	return nil
}

// purgeOn stays until ctx ends.
func (a *app) purgeOn(ctx context.Context, f purgeFlags, file config.File, tables *store.Store) error {
	at, err := upkeep.ParseTimes(f.cron)
	if err != nil {
		return err
	}
	cfg := purgeConfig(f, file, tables)
	cfg.Logger = a.logger(file.Log.Level, file.Log.Format)
	registry := prometheus.NewRegistry()
	cfg.Registerer = prometheus.WrapRegistererWith(ofCluster(file), registry)
	p := upkeep.NewPurger(cfg)
	return f.out.whileResident(ctx, outletOf("purge", file), registry, func() error { p.Run(ctx, at); return nil })
}

func (a *app) purgeOnce(ctx context.Context, f purgeFlags, file config.File, tables *store.Store) error {
	cfg := purgeConfig(f, file, tables)
	seen := a.tableProgress("purge", tables.Layout().Total())
	cfg.Progress = seen.add
	p := upkeep.NewPurger(cfg)
	result, failed := p.Purge(ctx)
	seen.end()
	failed = errors.Join(failed, f.out.once(ctx, "purge", file, result.Ended(failed == nil)))
	label := "purge: "
	if f.dryRun {
		label = "purge (dry run): "
	}
	a.sayLacking(ctx, file, tables, result.Lacking)
	return errors.Join(a.print(result, func(w io.Writer) { fmt.Fprintf(w, "%s%s\n", label, result) }), failed)
}

// sayLacking says in one line which rights the user lacks on the runs and acts of some databases, with the statements that grant them.
func (a *app) sayLacking(ctx context.Context, file config.File, tables *store.Store, lacking []int) {
	if len(lacking) == 0 {
		return
	}
	fmt.Fprintf(a.err, "tocsin: the runs or acts of %d databases were left, as the user is denied SELECT or DELETE on their tables run and act; an administrator may run: %s\n",
		len(lacking), strings.Join(runGrants(ctx, file, tables, lacking), " "))
}

// runGrants are the statements of role purge for the runs and acts of some databases.
func runGrants(ctx context.Context, file config.File, tables *store.Store, lacking []int) (all []string) {
	for server := range tables.Servers() {
		user, err := tables.User(ctx, server)
		if err != nil {
			continue // it is among the failed servers
		}
		at := max(strings.LastIndex(user, "@"), 0)
		plans, err := ddl.Grants(file.Tocsin(), ddl.GrantOptions{Roles: []string{"purge"}, User: user[:at], Host: strings.TrimPrefix(user[at:], "@"), PerTable: true})
		if err != nil {
			continue // the layout and the role are right
		}
		for line := range strings.Lines(plans[server].Text) {
			for _, database := range tables.DatabasesOf(server) {
				on := " ON `" + tables.Layout().Database(database)
				if slices.Contains(lacking, database) && (strings.Contains(line, on+"`.`run` TO ") || strings.Contains(line, on+"`.`act` TO ")) {
					all = append(all, strings.TrimSpace(line))
				}
			}
		}
	}
	return all
}

func purgeConfig(f purgeFlags, file config.File, tables *store.Store) upkeep.PurgeConfig {
	return upkeep.PurgeConfig{
		Store:    tables,
		Policies: func(ctx context.Context) ([]biztype.Policy, error) { return biztype.Load(ctx, file.Tocsin()) },
		Dead:     f.dead, DryRun: f.dryRun, Logger: slog.New(slog.DiscardHandler),
	}
}
