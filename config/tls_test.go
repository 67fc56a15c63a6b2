package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// ping makes a connection to the first server of a config.
func ping(t *testing.T, f File) error {
	t.Helper()
	server, err := mysql.Open(client.Specs(f.Tocsin())[0])
	if err != nil {
		t.Fatal(err)
	}
	defer server.DB.Close()
	return server.DB.PingContext(t.Context())
}

// move overwrites a file with another one's text.
func move(t *testing.T, from, to string) {
	t.Helper()
	text := read(t, from)
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAClientCertificateMayBeRenewedWhileTheProcessLives(t *testing.T) {
	t.Parallel()
	authority, stranger := devtest.NewAuthority(t), devtest.NewAuthority(t)
	server := secureMariaDB(t, authority)
	cert, key := stranger.Issue(t, "client")
	newCert, newKey := authority.Issue(t, "renewed")
	text := fmt.Sprintf("layout: {databases: 1, tables: 1}\nservers:\n  - dsn: safe@tcp(127.0.0.1:%d)/\n    tls: {ca: %s, cert: %s, key: %s}\n",
		server.Port(), authority.File, cert, key)
	f := parsed(t, []byte(text))
	if err := ping(t, f); err == nil {
		t.Fatal("the server has taken a stranger's certificate")
	}
	move(t, newCert, cert)
	if err := ping(t, f); err == nil {
		t.Fatal("half of a pair is shown")
	}
	move(t, newKey, key)
	if err := ping(t, f); err != nil {
		t.Errorf("the renewed certificate: %v", err)
	}
	move(t, "config_test.go", key)
	if err := ping(t, f); err != nil {
		t.Errorf("while the next one is written: %v", err)
	}
}

// secureMariaDB starts a server whose user safe must show a certificate of the
// authority.
func secureMariaDB(t *testing.T, authority *devtest.Authority) *devserver.MariaDB {
	t.Helper()
	cert, key := authority.Issue(t, "server")
	server, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{
		Args: []string{"--ssl-ca=" + authority.File, "--ssl-cert=" + cert, "--ssl-key=" + key},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	root, err := mysql.Open(mysql.Spec{DSN: server.DSN()})
	if err != nil {
		t.Fatal(err)
	}
	defer root.DB.Close()
	for _, statement := range []string{"CREATE USER 'safe'@'%' REQUIRE X509", "GRANT ALL ON *.* TO 'safe'@'%'"} {
		if _, err := root.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return server
}

func TestTLSInBothPlacesIsRefused(t *testing.T) {
	t.Parallel()
	ca := devtest.NewAuthority(t).File
	text := "layout: {databases: 1, tables: 1}\nservers:\n  - dsn: root@tcp(h:1)/?tls=skip-verify\n    tls: {ca: " + ca + "}\n"
	_, err := Parse([]byte(text), "f.yaml", env)
	if want := "f.yaml:4: server number 1: the dsn has a parameter tls too: use one of them"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestAServersCertificateIsChecked(t *testing.T) {
	t.Parallel()
	authority, stranger := devtest.NewAuthority(t), devtest.NewAuthority(t)
	server := secureMariaDB(t, authority)
	cert, key := authority.Issue(t, "client")
	for name, c := range map[string]struct{ tls, host, want string }{
		"all is right":              {fmt.Sprintf("{ca: %s, cert: %s, key: %s}", authority.File, cert, key), "127.0.0.1", ""},
		"another authority":         {fmt.Sprintf("{ca: %s, cert: %s, key: %s}", stranger.File, cert, key), "127.0.0.1", "certificate signed by unknown authority"},
		"the system's authorities":  {fmt.Sprintf("{cert: %s, key: %s}", cert, key), "127.0.0.1", "certificate signed by unknown authority"},
		"another host":              {fmt.Sprintf("{ca: %s, cert: %s, key: %s}", authority.File, cert, key), "localhost", "wanted to match localhost"},
		"no certificate of our own": {fmt.Sprintf("{ca: %s}", authority.File), "127.0.0.1", "Access denied"},
		"plain text":                {"{}", "127.0.0.1", "Access denied"},
	} {
		f := parsed(t, fmt.Appendf(nil, "layout: {databases: 1, tables: 1}\nservers:\n  - dsn: safe@tcp(%s:%d)/\n    tls: %s\n", c.host, server.Port(), c.tls))
		if err := ping(t, f); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// inPostgres is a config with an outbox in PostgreSQL, with further lines of it.
func inPostgres(dsn, more string) []byte {
	return []byte("layout: {databases: 1, tables: 1}\nservers:\n  - dsn: root@tcp(h:1)/\noutboxes:\n  - dsn: " + dsn + "\n    table: public.tocsin_outbox\n" + more)
}

func TestAnOutboxInPostgreSQL(t *testing.T) {
	t.Parallel()
	secret := func(name string) (string, bool) { return "p@ss/w:rd", name == "A" }
	f, err := Parse(inPostgres("postgres://u@h:5432/shop?sslmode=require", "    password_env: A\n"), "f.yaml", secret)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Relayed()[0]; got.DSN != "postgres://u:p%40ss%2Fw%3Ard@h:5432/shop?sslmode=require" || !got.OnPostgreSQL() || got.Driver != nil {
		t.Errorf("%+v", got)
	}
	ca := devtest.NewAuthority(t).File
	if f, err = Parse(inPostgres("postgresql://u@h/shop", "    tls: {ca: "+ca+"}\n"), "f.yaml", secret); err != nil || f.Relayed()[0].TLS == nil {
		t.Error(err)
	}
	for name, c := range map[string]struct{ dsn, more, want string }{
		"two passwords":      {"postgres://u:x@h/shop", "    password_env: A\n", "holds a password too"},
		"TLS in both places": {"postgres://u@h/shop?sslmode=require", "    tls: {ca: " + ca + "}\n", "a parameter tls or sslmode too"},
	} {
		if _, err := Parse(inPostgres(c.dsn, c.more), "f.yaml", secret); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	bad := strings.Replace(string(inPostgres("postgres://u@h/shop", "")), "public.", "", 1)
	if _, err := Parse([]byte(bad), "f.yaml", secret); err == nil || !strings.Contains(err.Error(), "name its schema too") {
		t.Error(err)
	}
}
