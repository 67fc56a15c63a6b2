package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/ddl"
)

func newDDLGrants(a *app) *cobra.Command {
	var opt ddl.GrantOptions
	var dir string
	var help strings.Builder
	for _, r := range ddl.Roles() {
		help.WriteString("\n  " + r.Name + strings.Repeat(" ", 15-len(r.Name)) + r.Does)
	}
	cmd := &cobra.Command{
		Use: "grants --role ROLE", Short: "Show the GRANT statements that a user needs, without running any", Args: noArgs,
		Long: "Show the GRANT statements that a user needs for a role, or for several, on each server of\n" +
			"the config. An administrator runs them with a SQL client. It connects to no server, and needs\n" +
			"no password: variables of the config may be unset. The roles:\n" + help.String(),
		Example: "  tocsin ddl grants --role node\n" +
			"  tocsin ddl grants --role node,sweep --user tocsin --host 10.0.0.% --out grants",
		RunE: func(*cobra.Command, []string) error { return a.grants(opt, dir) },
	}
	roleFlag(cmd, &opt.Roles, "a role, or several (needed)")
	cmd.Flags().StringVar(&opt.User, "user", "", "the user's name (default tocsin_ and the first role)")
	cmd.Flags().StringVar(&opt.Host, "host", "%", "the host from which the user connects")
	cmd.Flags().BoolVar(&opt.PerTable, "per-table", false, "grant on each task table instead of on whole databases: least rights, but a GRANT for each table")
	cmd.Flags().BoolVar(&opt.Literal, "partial-revokes", false, "for MySQL servers with partial_revokes on: don't escape _ in names of databases")
	cmd.Flags().StringVar(&dir, "out", "", "write one .sql file per server into this folder")
	return cmd
}

func (a *app) grants(opt ddl.GrantOptions, dir string) error {
	if len(opt.Roles) == 0 {
		return usage("--role is needed: see `tocsin ddl grants --help`")
	}
	if err := knownRoles(opt.Roles, "ddl grants"); err != nil {
		return err
	}
	file, err := config.LoadToPlan(a.configPath)
	if err != nil {
		return err
	}
	plans, err := ddl.Grants(file.Tocsin(), opt)
	if err != nil {
		return err
	}
	return a.showPlans(plans, dir)
}

// roleFlag adds the flag that names roles.
func roleFlag(cmd *cobra.Command, roles *[]string, usage string) {
	cmd.Flags().StringSliceVar(roles, "role", nil, usage)
	var names []string
	for _, r := range ddl.Roles() {
		names = append(names, r.Name)
	}
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails for a flag that does not exist only
}

// knownRoles refuses a role that there is not.
func knownRoles(names []string, command string) error {
	for _, name := range names {
		if !slices.ContainsFunc(ddl.Roles(), func(r ddl.Role) bool { return r.Name == name }) {
			return usage("unknown role %q: see `tocsin %s --help`", name, command)
		}
	}
	return nil
}
