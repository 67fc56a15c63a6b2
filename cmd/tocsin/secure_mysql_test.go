package main

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// secureMySQL starts a server whose user safe must show a certificate, and returns
// the matching lines of the config.
func secureMySQL(t *testing.T, authority *devtest.Authority) string {
	t.Helper()
	cert, key := authority.Issue(t, "mysql")
	server, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{
		Args: []string{"--ssl-ca=" + authority.File, "--ssl-cert=" + cert, "--ssl-key=" + key},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	root, err := sql.Open("mysql", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, statement := range []string{"CREATE USER 'safe'@'%' REQUIRE X509", "GRANT ALL ON *.* TO 'safe'@'%'"} {
		if _, err := root.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	cert, key = authority.Issue(t, "tocsin")
	return fmt.Sprintf("    dsn: safe@tcp(127.0.0.1:%d)/\n    tls:\n      ca: %s\n      cert: %s\n      key: %s\n", server.Port(), authority.File, cert, key)
}

func TestNodesAndCommandsReachAMySQLThatWantsTLSAndACertificate(t *testing.T) {
	t.Parallel()
	s, c := bareSite(t), newCallbacks(t)
	authority, stranger := devtest.NewAuthority(t), devtest.NewAuthority(t)
	plain, secure := s.yaml(s.layout, s.dsn()), secureMySQL(t, authority)
	withServer := func(lines string) string { return strings.Replace(plain, "    dsn: "+s.dsn()+"\n", lines, 1) }
	s.write("tocsin.yaml", withServer(secure))
	s.write("biz.yaml", fmt.Sprintf("biz_types:\n  - name: coupon.remind\n    number: 2\n    webhook:\n      url: %s\n      allow: [127.0.0.0/8]\n", c.URL))
	s.applyDDL()
	for _, command := range [][]string{
		{"ddl", "verify"}, {"biz", "apply", "biz.yaml"}, {"task", "add", "--type", "coupon.remind", "--biz-id", "1", "--in", "0s"},
		{"sweep", "--grace", "0s", "--once"}, {"purge", "--once"}, {"audit"},
	} {
		s.run(command...).ok(t)
	}
	page := s.servePage("safe")
	s.ownedBy(map[string]int{"safe": 8})
	wantExpiry(t, page, `tocsin_node_certificate_expires_timestamp_seconds{of="db1"}`)
	s.run("task", "add", "--type", "coupon.remind", "--biz-id", "2", "--in", "0s").ok(t)
	s.waitFor("both callbacks", func() bool { seen, _, _ := c.counts(); return seen == 2 })
	for lines, want := range map[string]string{
		strings.Replace(secure, authority.File, stranger.File, 1): "certificate signed by unknown authority",
		secure[:strings.Index(secure, "    tls:")]:                "Access denied",
	} {
		s.write("tocsin.yaml", withServer(lines))
		if r := s.run("task", "list", "--biz-id", "1"); r.code != exitFailed || !strings.Contains(r.stderr, want) {
			t.Errorf("exit code %d, want 1 and %q: %s", r.code, want, r.stderr)
		}
	}
}
