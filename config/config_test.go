package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/goccy/go-yaml"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/schedule"
)

// env is the environment of the tests.
func env(name string) (string, bool) {
	value, ok := map[string]string{
		"PASSWORD":             "p@ss:w/rd",
		"TOCSIN_DB_PASSWORD":   "p@ss:w/rd",
		"TOCSIN_DB2_DSN":       "tocsin@tcp(db2.internal:3306)/",
		"TOCSIN_ETCD_PASSWORD": "etcd-secret",
	}[name]
	return value, ok
}

// parsed reads the text of a file that is fine.
func parsed(t *testing.T, text []byte) File {
	t.Helper()
	f, err := Parse(text, "f.yaml", env)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestBadFilesHaveTheirMessages(t *testing.T) {
	t.Parallel()
	text := read(t, "testdata/bad.yaml")
	var table struct {
		Base  string
		Cases []struct {
			Name, Text, Want string
			Alone            bool
		}
	}
	if err := yaml.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	for _, c := range table.Cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			whole := c.Text
			if !c.Alone {
				whole = table.Base + c.Text
			}
			_, err := Parse([]byte(whole), "f.yaml", env)
			if err == nil || err.Error() != c.Want {
				t.Errorf("got  %v\nwant %s", err, c.Want)
			}
		})
	}
}

func TestTheExampleConfigsLoad(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../configs/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		text := read(t, path)
		var err error
		switch filepath.Base(path) {
		case "biz.yaml":
			_, err = biztype.Parse(text, path)
		case "schedules.yaml":
			_, err = schedule.Parse(text, path)
		default:
			_, err = Parse(text, path, env)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestProductionIsEightServersWithOneDatabaseEach(t *testing.T) {
	t.Parallel()
	text := read(t, "../configs/production.yaml")
	f := parsed(t, text)
	cfg := f.Tocsin()
	if cfg.Layout.String() != "8x1024" || len(cfg.Servers) != 8 || cfg.Cluster != "orders-prod" {
		t.Errorf("%s on %d servers, cluster %s", cfg.Layout, len(cfg.Servers), cfg.Cluster)
	}
	for i, s := range cfg.Servers {
		if !reflect.DeepEqual(s.Databases, []int{i}) || strings.Contains(s.DSN, "${") {
			t.Errorf("server %d: %+v", i, s)
		}
	}
	if want := "tocsin:p@ss:w/rd@tcp(db0.internal:3306)/"; cfg.Servers[0].DSN != want {
		t.Errorf("db0: %s, want %s", cfg.Servers[0].DSN, want)
	}
	if !strings.HasPrefix(cfg.Servers[1].DSN, "tocsin:p@ss:w/rd@tcp(db1.internal:3306)/") {
		t.Errorf("db1: %s", cfg.Servers[1].DSN)
	}
	etcd, err := f.EtcdConfig()
	if err != nil || len(etcd.Endpoints) != 3 || etcd.Username != "tocsin" || etcd.Password != "etcd-secret" || etcd.TLS != nil {
		t.Errorf("etcd %+v, %v", etcd, err)
	}
}

// TestEveryKeyIsExplained keeps production.yaml and the program together.
func TestEveryKeyIsExplained(t *testing.T) {
	t.Parallel()
	for file, root := range map[string]any{"../configs/production.yaml": File{}, "../configs/biz.yaml": biztype.Policy{}} {
		text := read(t, file)
		for _, key := range keys(reflect.TypeOf(root)) {
			if key != "-" && !strings.Contains(string(text), key+":") {
				t.Errorf("%s does not show the key %s", file, key)
			}
		}
	}
}

func keys(t reflect.Type) []string {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var all []string
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			continue
		}
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		all = append(append(all, key), keys(t.Field(i).Type)...)
	}
	return all
}

func TestDefaultsAreThoseOfAFileThatLeavesThemOut(t *testing.T) {
	t.Parallel()
	f := parsed(t, []byte("layout: {databases: 8, tables: 16}\nservers: [{dsn: root@tcp(h:1)/}]\n"))
	f.Servers = nil
	if want := Default(); !reflect.DeepEqual(f, want) {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
	slow, err := Parse([]byte("layout: {databases: 1, tables: 1}\nservers: [{dsn: root@tcp(h:1)/}]\nscan: {interval: 20s}\n"), "f.yaml", env)
	if err != nil || slow.Scan.LookAhead.D() != 40*time.Second {
		t.Errorf("look-ahead %s, %v: want twice the interval", slow.Scan.LookAhead, err)
	}
}

func TestDatabasesAreNumbersAndRanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Databases{
		"[0-2, 3]":      {0, 1, 2, 3},
		"0-3":           {0, 1, 2, 3},
		"[3, 0, '1-2']": {3, 0, 1, 2},
	} {
		f, err := Parse([]byte("layout: {databases: 4, tables: 1}\nservers:\n- dsn: root@tcp(h:1)/\n  databases: "+text+"\n"), "f.yaml", env)
		if err != nil || !reflect.DeepEqual(f.Servers[0].Databases, want) {
			t.Errorf("%s: %+v, %v", text, f.Servers, err)
		}
	}
}

func TestLoadLooksAtThePathThenTheVariableThenHere(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv(EnvPath, "")
	if _, err := Load(""); err == nil || err.Error() != "no config: give --config, set $TOCSIN_CONFIG or write ./tocsin.yaml (configs/dev.yaml is an example)" {
		t.Errorf("none: %v", err)
	}
	write := func(name, cluster string) {
		text := "cluster: " + cluster + "\nlayout: {databases: 1, tables: 1}\nservers: [{dsn: root@tcp(h:1)/}]\n"
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(DefaultPath, "here")
	write("env.yaml", "env")
	write("flag.yaml", "flag")
	read := func(path, want string) {
		t.Helper()
		if f, err := Load(path); err != nil || f.Cluster != want {
			t.Errorf("cluster %q, %v, want %s", f.Cluster, err, want)
		}
	}
	read("", "here")
	t.Setenv(EnvPath, "env.yaml")
	read("", "env")
	read("flag.yaml", "flag")
	if _, err := Load("no.yaml"); err == nil || err.Error() != "read the config: open no.yaml: no such file or directory" {
		t.Errorf("missing file: %v", err)
	}
}

func TestAPasswordMayLookLikeAReference(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"p${ss", "${HOME}", "$${PASSWORD}", "a}${b}{"} {
		lookup := func(string) (string, bool) { return password, true }
		text := `
layout: {databases: 2, tables: 1}
servers:
  - {dsn: "me:${A}@tcp(h:1)/", databases: [0]}
  - {dsn: "me@tcp(h:2)/", databases: [1], password_env: A}
etcd: {username: me, password: "${A}"}
`
		f, err := Parse([]byte(text), "f.yaml", lookup)
		if err != nil {
			t.Errorf("%s: %v", password, err)
			continue
		}
		for _, s := range f.Servers {
			if dsn, err := mysql.ParseDSN(s.DSN); err != nil || dsn.Passwd != password || dsn.User != "me" {
				t.Errorf("%s became %+v, %v", password, dsn, err)
			}
		}
		if f.Etcd.Password != password {
			t.Errorf("etcd: %s became %s", password, f.Etcd.Password)
		}
	}
}

func TestEtcdFilesThatCannotBeReadAreNamed(t *testing.T) {
	t.Parallel()
	f := Default()
	f.Etcd.TLS.CA = filepath.Join(t.TempDir(), "ca.pem")
	if _, err := f.EtcdConfig(); err == nil || !strings.HasPrefix(err.Error(), "etcd.tls.ca: open ") {
		t.Errorf("missing: %v", err)
	}
	if err := os.WriteFile(f.Etcd.TLS.CA, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.EtcdConfig(); err == nil || !strings.Contains(err.Error(), "holds no certificate in PEM form") {
		t.Errorf("no PEM: %v", err)
	}
}

func TestAnEntranceSaysHowItsBrokersAreReached(t *testing.T) {
	t.Parallel()
	f := parsed(t, []byte(`cluster: c1
layout: {databases: 1, tables: 1}
servers: [{dsn: "root@tcp(h:1)/"}]
entrances:
  in: {addresses: ["tls://k:9093"], username: u, password: "${PASSWORD}", mechanism: PLAIN, topic: orders.commands, require_key: true}
`))
	brokers, e := f.Entrance("in")
	if brokers.Addresses[0] != "k:9093" || brokers.TLS == nil || brokers.Username != "u" || brokers.Password != "p@ss:w/rd" || brokers.Mechanism != "PLAIN" {
		t.Errorf("%+v", brokers)
	}
	if e.Topic != "orders.commands" || e.Group != "tocsin-c1" || e.DeadLetter != "" || !e.RequireKey {
		t.Errorf("%+v", e)
	}
}
