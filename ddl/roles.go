package ddl

import (
	"fmt"
	"slices"
	"strings"
)

// Role is one way to use the tables, with the rights that it needs and no others. Several roles may be given to one user.
type Role struct {
	Name string
	Does string // the commands and calls that it is for

	rights map[string][]string // by the name of a table's SQL file
	aside  bool                // the rights hold for the names of retired tables too
}

// selected are the rights of a role that only reads the table.
var selected = []string{"SELECT"}

// changing are the rights on a table that `ddl apply` makes and alters: an ALTER needs all three.
var changing = []string{"CREATE", "ALTER", "INSERT"}

// moving are the rights on a table that `ddl move` compares and renames.
var moving = []string{"SELECT", "CREATE", "ALTER", "DROP", "INSERT"}

// keeping are the rights on the table mark that a program needs to raise marks: see layoutrow.Marks.
var keeping = []string{"SELECT", "INSERT", "UPDATE"}

// beating are the rights on the tables of sessions of a program that claims rows.
var beating = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}

// roles is the only place that says who needs which rights.
var roles = []Role{
	{
		Name: "ddl", Does: "tocsin ddl apply, verify, plan, finish, ownership and grace",
		rights: map[string][]string{
			layoutTable: append([]string{"SELECT", "UPDATE"}, changing...), "biz_type": changing, "owner": changing, "doorbell": changing,
			"relayed": changing, "mark": changing,
			"schedule": changing, "run": changing, "act": changing, "session": append([]string{"SELECT", "DELETE"}, changing...),
			"session_about": append([]string{"DELETE"}, changing...), taskFile: changing,
		},
	},
	{
		Name: "move", Does: "tocsin ddl move", aside: true,
		rights: map[string][]string{
			layoutTable: {"SELECT", "UPDATE"}, "biz_type": selected, "owner": moving, "doorbell": moving, "relayed": moving,
			"mark": moving, "schedule": moving, "run": moving, "act": moving, "session": moving, "session_about": moving, taskFile: moving,
		},
	},
	{
		Name: "restore", Does: "tocsin ddl restore-check",
		rights: map[string][]string{
			layoutTable: {"SELECT", "UPDATE"}, "biz_type": selected, "mark": keeping, "schedule": {"SELECT", "UPDATE"},
			taskFile: {"SELECT", "UPDATE"},
		},
	},
	{
		Name: "biz", Does: "tocsin biz apply, list, show, pause and resume; nodes whose code brings policies",
		rights: map[string][]string{layoutTable: selected, "biz_type": {"SELECT", "INSERT", "UPDATE"}},
	},
	{
		Name: "biz-delete", Does: "tocsin biz delete, which looks for tasks and schedules of the biz type first",
		rights: map[string][]string{layoutTable: selected, "biz_type": {"SELECT", "DELETE"}, "schedule": selected, taskFile: selected},
	},
	{
		Name: "node", Does: "tocsin serve, and nodes inside services",
		rights: map[string][]string{
			layoutTable: {"SELECT", "UPDATE"}, "biz_type": selected, "owner": {"SELECT", "INSERT", "UPDATE"}, "doorbell": {"SELECT", "INSERT"},
			"mark": keeping, "schedule": {"SELECT", "UPDATE"}, "run": {"INSERT"},
			"session": beating, "session_about": beating, taskFile: {"SELECT", "INSERT", "UPDATE"},
		},
	},
	{
		Name: "sweep", Does: "tocsin sweep",
		rights: map[string][]string{
			layoutTable: {"SELECT", "UPDATE"}, "biz_type": selected, "doorbell": {"INSERT"}, "mark": keeping, "schedule": {"SELECT", "UPDATE"},
			"run": {"INSERT"}, "session": beating, "session_about": {"SELECT", "INSERT", "DELETE"}, taskFile: {"SELECT", "INSERT", "UPDATE"},
		},
	},
	{
		Name: "purge", Does: "tocsin purge",
		rights: map[string][]string{
			layoutTable: selected, "biz_type": selected, "doorbell": {"SELECT", "DELETE"}, "run": {"SELECT", "DELETE"}, "act": {"SELECT", "DELETE"},
			taskFile: {"SELECT", "DELETE"},
		},
	},
	{
		Name: "audit", Does: "tocsin audit",
		rights: map[string][]string{layoutTable: selected, "biz_type": selected, "relayed": selected, "schedule": selected, "run": selected, taskFile: selected},
	},
	{
		Name: "client-add", Does: "Add and AddTx of services, tocsin task add; nodes and sweepers that raise alarms; AddMany and Unique need client-cancel too",
		rights: map[string][]string{
			layoutTable: selected, "biz_type": selected, "doorbell": {"INSERT"},
			taskFile: {"SELECT", "INSERT"},
		},
	},
	{
		Name: "client-cancel", Does: "Cancel, Reschedule and CompleteTx of services, tocsin task cancel, reschedule, redrive and bury",
		rights: map[string][]string{
			layoutTable: selected, "biz_type": selected, "doorbell": {"INSERT"}, taskFile: {"SELECT", "UPDATE"},
		},
	},
	{
		Name: "relay", Does: "tocsin relay, and nodes that relay outboxes: both need rights on the outbox too, see tocsin outbox plan",
		rights: map[string][]string{
			layoutTable: selected, "biz_type": selected, "doorbell": {"INSERT"}, "relayed": {"SELECT", "INSERT", "UPDATE", "DELETE"},
			taskFile: {"SELECT", "INSERT", "UPDATE"},
		},
	},
	{
		Name: "schedule", Does: "tocsin schedule, and those who use package schedule",
		rights: map[string][]string{
			layoutTable: selected, "biz_type": selected, "doorbell": {"INSERT"}, "schedule": {"SELECT", "INSERT", "UPDATE", "DELETE"},
			"run": {"SELECT", "INSERT"}, taskFile: {"SELECT", "INSERT", "UPDATE"},
		},
	},
	{
		Name: "read-only", Does: "every command that only reads: tocsin task get, list, dead, runs and why, runs, biz list, schedule list, show, next and runs, cluster nodes and tables, ddl verify, ddl restore-check without --accept, audit",
		rights: map[string][]string{
			layoutTable: selected, "biz_type": selected, "owner": selected, "doorbell": selected, "relayed": selected,
			"mark": selected, "schedule": selected, "run": selected, "act": selected, "session": selected, "session_about": selected, taskFile: selected,
		},
	},
	{
		Name: "acts", Does: "tocsin acts; and every command that changes something, and the HTTP API, to write down who did it: without this role they work and write nothing",
		rights: map[string][]string{layoutTable: selected, "act": {"SELECT", "INSERT"}},
	},
}

// Roles returns all roles, in a fixed order.
func Roles() []Role { return slices.Clone(roles) }

// rolesOf finds roles by their names.
func rolesOf(names []string) ([]Role, error) {
	var found []Role
	for _, name := range names {
		i := slices.IndexFunc(roles, func(r Role) bool { return r.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown role %q: there are %s", name, strings.Join(roleNames(), ", "))
		}
		found = append(found, roles[i])
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no role: there are %s", strings.Join(roleNames(), ", "))
	}
	return found, nil
}

func roleNames() []string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = r.Name
	}
	return names
}

// rightsOn returns what some roles need together on the tables of one SQL file.
func rightsOn(some []Role, file string) (all []string) {
	for _, r := range some {
		for _, right := range r.rights[file] {
			if !slices.Contains(all, right) {
				all = append(all, right)
			}
		}
	}
	return all
}

// Rights returns what roles, by their names, need together, by table; "task" stands for the task tables.
func Rights(names []string) (map[string][]string, error) {
	some, err := rolesOf(names)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, file := range append(slices.Clone(fixedTables), taskFile) {
		if rights := rightsOn(some, file); len(rights) > 0 {
			all[file] = rights
		}
	}
	return all, nil
}

// Needs lists the role's rights, tables with the same ones together: "layout, biz_type: SELECT". The task tables are task_*.
func (r Role) Needs() (all []string) {
	tables := map[string][]string{}
	var order []string
	for _, file := range append(slices.Clone(fixedTables), taskFile) {
		rights := strings.Join(r.rights[file], ", ")
		if rights == "" {
			continue
		}
		if tables[rights] == nil {
			order = append(order, rights)
		}
		if file == taskFile {
			file = "task_*"
		}
		tables[rights] = append(tables[rights], file)
	}
	for _, rights := range order {
		all = append(all, strings.Join(tables[rights], ", ")+": "+rights)
	}
	return all
}
