package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
)

// envOutbox names the variable with the DSN of a business server.
const envOutbox = "TOCSIN_OUTBOX_DSN"

func newOutbox(a *app) *cobra.Command {
	return group("outbox", "Make and verify outboxes in business databases, and look after rows that can't be moved",
		newOutboxPlan(a), newOutboxApply(a), newOutboxVerify(a), newOutboxList(a),
		outboxChange(a, "retry", "Let relays move rows that were set aside", "will be tried again within seconds", (*outbox.Outbox).Retry,
			"Let relays try rows that were set aside again. Mend the cause first: apply the missing biz\ntype, for example."),
		outboxChange(a, "drop", "Delete rows that were set aside", "dropped", (*outbox.Outbox).Drop,
			"Delete rows that were set aside: what they ask for never happens. Then later rows of the\nsame biz_id are moved."),
		newOutboxForget(a))
}

// outboxFlags name an outbox: one of the config, or any other.
type outboxFlags struct{ dsn, table, name string }

func (f *outboxFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dsn, "dsn", "", "the business server, user:password@tcp(host:port)/, or postgres://user:password@host:port/database (default $"+envOutbox+", then the outbox of the config)")
	cmd.Flags().StringVar(&f.table, "table", "", "the table, as shop."+outbox.DefaultTable+" (default "+outbox.DefaultTable+" in the database of the DSN; in PostgreSQL public."+outbox.DefaultTable+"); without a DSN, that of an outbox of the config")
	cmd.Flags().StringVar(&f.name, "outbox", "", "name of an outbox of the config (default: the only one)")
}

// one returns the outbox that is meant.
func (f outboxFlags) one(a *app) (outbox.Config, error) {
	dsn := cmp.Or(f.dsn, os.Getenv(envOutbox))
	switch {
	case f.dsn != "" && f.name != "":
		return outbox.Config{}, usage("--dsn and --outbox exclude each other")
	case f.name != "" || dsn == "":
		return f.ofConfig(a)
	}
	cfg := tocsinpg.Drive([]outbox.Config{{DSN: dsn, Table: f.table}})[0]
	within := mysql.Database(dsn)
	if cfg.OnPostgreSQL() {
		within = "public"
	}
	if cfg.Table == "" && within != "" {
		cfg.Table = within + "." + outbox.DefaultTable
	}
	if cfg.Table == "" {
		return outbox.Config{}, usage("name the table: --table shop.%s", outbox.DefaultTable)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

// ofConfig finds the one outbox of the config that has the given name and the given table.
func (f outboxFlags) ofConfig(a *app) (outbox.Config, error) {
	file, err := a.load()
	if err != nil {
		return outbox.Config{}, err
	}
	var names []string
	var fits []outbox.Config
	for _, o := range tocsinpg.Drive(file.Relayed()) {
		o = o.WithDefaults()
		names = append(names, o.Name)
		if (f.name == "" || f.name == o.Name) && (f.table == "" || f.table == o.Table) {
			fits = append(fits, o)
		}
	}
	switch all := strings.Join(names, ", "); {
	case len(names) == 0:
		return outbox.Config{}, usage("the config has no outboxes: use --dsn and --table")
	case len(fits) == 1:
		return fits[0], nil
	case f.name != "" && !slices.Contains(names, f.name):
		return outbox.Config{}, usage("--outbox %q: the config has %s", f.name, all)
	case len(fits) == 0:
		return outbox.Config{}, usage("--table %q: no such outbox in the config, which has %s: use --dsn for another one", f.table, all)
	default:
		return outbox.Config{}, usage("the config has several outboxes: name one with --outbox: %s", all)
	}
}

// asDDL is an outbox on MySQL or MariaDB, as package ddl takes it.
func asDDL(cfg outbox.Config) ddl.Outbox {
	return ddl.Outbox{DSN: cfg.DSN, TLS: cfg.TLS, Table: cfg.Table}
}

// plannedOutbox is the JSON of `outbox plan`.
type plannedOutbox struct {
	Table string `json:"table"`
	SQL   string `json:"sql"`
}

func newOutboxPlan(a *app) *cobra.Command {
	var f outboxFlags
	var postgres bool
	cmd := &cobra.Command{
		Use: "plan", Short: "Show the statements that make an outbox, without running any", Args: noArgs,
		Long: "Show the statements that `outbox apply` would run, and the rights that a service and a\n" +
			"relay need, without connecting to any server. They may be run with a SQL client instead.",
		Example: "  tocsin outbox plan --table shop.tocsin_outbox\n  tocsin outbox plan --postgres --table public.tocsin_outbox",
		RunE:    func(*cobra.Command, []string) error { return a.planOutbox(f, postgres) },
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&postgres, "postgres", false, "for PostgreSQL, without a DSN that says so")
	return cmd
}

func (a *app) planOutbox(f outboxFlags, postgres bool) error {
	target := outbox.Config{DSN: cmp.Or(f.dsn, os.Getenv(envOutbox)), Table: f.table}
	if f.table == "" || f.name != "" {
		var err error
		if target, err = f.one(a); err != nil {
			return err
		}
	}
	var text string
	var err error
	if postgres || target.OnPostgreSQL() {
		text, err = tocsinpg.PlanOutbox(target.Table)
	} else {
		text, err = ddl.PlanOutbox(asDDL(target))
	}
	if err != nil {
		return usageError{err}
	}
	return a.print(plannedOutbox{target.Table, text}, func(w io.Writer) { fmt.Fprint(w, text) })
}

// appliedOutbox is the JSON of `outbox apply`.
type appliedOutbox struct {
	Table   string `json:"table"`
	Created bool   `json:"created"`
}

func newOutboxApply(a *app) *cobra.Command {
	var f outboxFlags
	cmd := &cobra.Command{
		Use: "apply", Short: "Make an outbox in a business database", Args: noArgs,
		Long: "Make the table of an outbox in a business database, which must be there, and give it an\n" +
			"identity. It drops nothing, changes no table that is no outbox, and may be run again.\n" +
			"Nothing in an outbox is delivered unless a relay runs: list it under outboxes in the\n" +
			"config of `tocsin serve`, or run `tocsin relay`.",
		Example: "  tocsin outbox apply --dsn 'root@tcp(shop-db:3306)/' --table shop.tocsin_outbox\n" +
			"  tocsin outbox apply --dsn postgres://postgres@shop-db/shop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := f.one(a)
			if err != nil {
				return err
			}
			var created bool
			if target.OnPostgreSQL() {
				created, err = tocsinpg.ApplyOutbox(cmd.Context(), target)
			} else {
				created, err = ddl.ApplyOutbox(cmd.Context(), asDDL(target))
			}
			return a.show(appliedOutbox{target.Table, created}, err, func(w io.Writer) {
				if created {
					fmt.Fprintf(w, "outbox %s is made: let a relay move its rows, see `tocsin relay --help`\n", target.Table)
				} else {
					fmt.Fprintf(w, "outbox %s was there: `tocsin outbox verify` compares it\n", target.Table)
				}
			})
		},
	}
	f.flags(cmd)
	return cmd
}

func newOutboxVerify(a *app) *cobra.Command {
	var f outboxFlags
	cmd := &cobra.Command{
		Use: "verify", Short: "Name what is missing or differs of an outbox and its server", Args: noArgs,
		Long: "Compare an outbox with what this program expects, and the settings of its server with what\n" +
			"a relay needs. Exit code 1 if anything is missing or differs.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := f.one(a)
			if err != nil {
				return err
			}
			var found []ddl.Finding
			if target.OnPostgreSQL() {
				found, err = tocsinpg.VerifyOutbox(cmd.Context(), target)
			} else {
				found, err = ddl.VerifyOutbox(cmd.Context(), asDDL(target))
			}
			if err != nil {
				return err
			}
			return a.printFindings(found, nil, fmt.Sprintf("outbox %s is as it should be", target.Table))
		},
	}
	f.flags(cmd)
	return cmd
}

// using opens the outbox that is meant, has work use it, and closes it.
func (f outboxFlags) using(a *app, work func(*outbox.Outbox) error) error {
	cfg, err := f.one(a)
	if err != nil {
		return err
	}
	opened, err := outbox.Open(cfg)
	if err != nil {
		return err
	}
	defer opened.Close()
	return work(opened)
}
