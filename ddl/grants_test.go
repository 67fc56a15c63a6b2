package ddl

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// granted returns the statements for a cluster of two databases with two tables each, without comments.
func granted(t *testing.T, opt GrantOptions) []string {
	t.Helper()
	cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 2, Tables: 2}, Servers: []tocsin.Server{
		{Name: "db0", DSN: "a@tcp(h:1)/", Databases: []int{0}}, {Name: "db1", DSN: "a@tcp(h:2)/", Databases: []int{1}},
	}}
	plans, err := Grants(cfg, opt)
	if err != nil || len(plans) != 2 || plans[1].Server != "db1" {
		t.Fatalf("%+v, %v", plans, err)
	}
	var lines []string
	for line := range strings.Lines(plans[1].Text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	if !strings.HasPrefix(lines[0], "SET SESSION sql_mode = ") {
		t.Errorf("it begins with %s: a GRANT may make a user without a password", lines[0])
	}
	return lines[1:]
}

func TestGrantsNameDatabasesAndTablesAsTheServerReadsThem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opt  GrantOptions
		want string
	}{
		"the whole database, its _ escaped": {GrantOptions{Roles: []string{"node"}},
			"GRANT SELECT, INSERT, UPDATE ON `toc\\_1`.* TO `tocsin_node`@`%`;\nGRANT DELETE ON `toc_1`.`session` TO `tocsin_node`@`%`;\nGRANT DELETE ON `toc_1`.`session_about` TO `tocsin_node`@`%`;"},
		"names taken literally": {GrantOptions{Roles: []string{"audit"}, Literal: true}, "GRANT SELECT ON `toc_1`.* TO `tocsin_audit`@`%`;"},
		"table by table": {GrantOptions{Roles: []string{"sweep"}, PerTable: true, User: "s"},
			"GRANT SELECT, UPDATE ON `toc_1`.`layout` TO `s`@`%`;\nGRANT SELECT ON `toc_1`.`biz_type` TO `s`@`%`;\n" +
				"GRANT INSERT ON `toc_1`.`doorbell` TO `s`@`%`;\nGRANT SELECT, INSERT, UPDATE ON `toc_1`.`mark` TO `s`@`%`;\n" +
				"GRANT SELECT, UPDATE ON `toc_1`.`schedule` TO `s`@`%`;\nGRANT INSERT ON `toc_1`.`run` TO `s`@`%`;\n" +
				"GRANT SELECT, INSERT, UPDATE, DELETE ON `toc_1`.`session` TO `s`@`%`;\nGRANT SELECT, INSERT, DELETE ON `toc_1`.`session_about` TO `s`@`%`;\n" +
				"GRANT SELECT, INSERT, UPDATE ON `toc_1`.`task_0000` TO `s`@`%`;\nGRANT SELECT, INSERT, UPDATE ON `toc_1`.`task_0001` TO `s`@`%`;"},
		"two roles, a strange user": {GrantOptions{Roles: []string{"biz", "audit"}, User: "o'neil`\\", Host: "10.%"},
			"GRANT SELECT ON `toc\\_1`.* TO `o'neil``\\`@`10.%`;\nGRANT INSERT, UPDATE ON `toc_1`.`biz_type` TO `o'neil``\\`@`10.%`;"},
		"one right of two roles once": {GrantOptions{Roles: []string{"client-add", "client-cancel"}, User: "c"},
			"GRANT SELECT, INSERT, UPDATE ON `toc\\_1`.* TO `c`@`%`;"},
	} {
		if got := strings.Join(granted(t, c.opt), "\n"); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestGrantsAreRefused(t *testing.T) {
	t.Parallel()
	cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 1, Tables: 1}, Servers: []tocsin.Server{{DSN: "a@tcp(h:1)/"}}}
	for want, opt := range map[string]GrantOptions{
		"no role: there are ddl, move": {},
		`unknown role "root"`:          {Roles: []string{"node", "root"}},
		"control character":            {Roles: []string{"node"}, User: "a\nb"},
	} {
		if _, err := Grants(cfg, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
