package devtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// Dump returns a dump of one database of a server, as operators make it: with mariadb-dump, or MySQL's mysqldump.
func Dump(tb testing.TB, dsn, database string) string {
	tb.Helper()
	return clientOutput(tb, program(tb, "mariadb-dump", "mariadb-client"), "", dsn, "--single-transaction", database)
}

// Load runs the statements of a dump in a database, which is made if it is missing.
func Load(tb testing.TB, dsn, database, dump string) {
	tb.Helper()
	use := "CREATE DATABASE IF NOT EXISTS `" + database + "`;\nUSE `" + database + "`;\n"
	clientOutput(tb, program(tb, "mariadb", "mariadb-client-core"), use+dump, dsn)
}

// CopyDatabase copies a database from the server of one DSN to that of another, by a dump. What is there of the same name is
// replaced.
func CopyDatabase(tb testing.TB, from, to, database string) {
	tb.Helper()
	const anew = "DROP DATABASE `%s`;\nCREATE DATABASE `%[1]s` DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;\nUSE `%[1]s`;\n"
	Load(tb, to, database, fmt.Sprintf(anew, database)+Dump(tb, from, database))
}

// CanBackUp reports whether BackUp works with the server of DSN: MySQL has no such program, and mariadb-backup is for
// servers of its own version.
func CanBackUp(tb testing.TB) bool {
	tb.Helper()
	if IsMySQL(tb) {
		return false
	}
	version := output(tb, "", program(tb, "mariadb", "mariadb-client-core"), append(clientArgs(tb, DSN(tb)), "-N", "-e", "SELECT VERSION()")...)
	parts := strings.SplitN(version, ".", 3)
	cmd := exec.Command(program(tb, "mariadb-backup", "mariadb-backup"), "--version")
	own, err := cmd.CombinedOutput()
	if err != nil || len(parts) != 3 {
		tb.Fatalf("server %q, mariadb-backup --version: %v, %s", version, err, own)
	}
	return strings.Contains(string(own), " "+parts[0]+"."+parts[1]+".")
}

// BackUp makes a physical copy of a running server in a new folder, with mariadb-backup, and returns the folder, from
// which MoveBack restores it.
func BackUp(tb testing.TB, server *devserver.MariaDB) (dir string) {
	tb.Helper()
	dir = filepath.Join(tb.TempDir(), "backup")
	backup := program(tb, "mariadb-backup", "mariadb-backup")
	output(tb, "", backup, "--no-defaults", "--backup", "--target-dir="+dir, "--socket="+server.Socket(), "--user=root",
		"--datadir="+filepath.Join(server.Dir(), "data"))
	output(tb, "", backup, "--no-defaults", "--prepare", "--target-dir="+dir)
	return dir
}

// MoveBack replaces the data of a server that was stopped by a physical copy.
func MoveBack(tb testing.TB, server *devserver.MariaDB, dir string) {
	tb.Helper()
	data := filepath.Join(server.Dir(), "data")
	if err := os.RemoveAll(data); err != nil {
		tb.Fatal(err)
	}
	output(tb, "", program(tb, "mariadb-backup", "mariadb-backup"), "--no-defaults", "--move-back", "--target-dir="+dir, "--datadir="+data)
}

// program finds a program of Debian's packages.
func program(tb testing.TB, name, debian string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("%s not found in PATH: run scripts/install-deps.sh test, or install Debian's %s", name, debian)
	}
	return path
}

// clientOutput runs a client of the server of a DSN.
func clientOutput(tb testing.TB, path, stdin, dsn string, args ...string) string {
	tb.Helper()
	return output(tb, stdin, path, append(clientArgs(tb, dsn), args...)...)
}

// clientArgs are the options with which clients reach the server of a DSN.
func clientArgs(tb testing.TB, dsn string) []string {
	tb.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	args := []string{"--no-defaults", "--user=" + cfg.User, "--password=" + cfg.Passwd}
	if cfg.Net == "unix" {
		return append(args, "--socket="+cfg.Addr)
	}
	host, port, _ := strings.Cut(cfg.Addr, ":")
	return append(args, "--protocol=tcp", "--host="+host, "--port="+port)
}

// output runs a program and returns what it prints.
func output(tb testing.TB, stdin, path string, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tb.Fatalf("%s %s: %v\n%s", path, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}
