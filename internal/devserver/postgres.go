package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNoPostgreSQL says that there is no PostgreSQL to run, and how to get one.
var ErrNoPostgreSQL = errors.New("postgres not found in PATH, nor in /usr/lib/postgresql: install it with `scripts/install-deps.sh test`")

// PostgreSQL is a private PostgreSQL with a temporary folder and the superuser postgres, who needs no password. It takes
// prepared transactions.
type PostgreSQL struct {
	server
	settings []string
}

// StartPostgreSQL starts a PostgreSQL and returns when it answers. Its own settings are for tests; those of the caller,
// "name=value", come last, so they win. ctx bounds the start, not its life. It returns ErrNoPostgreSQL, or an error with the
// last error of its log.
func StartPostgreSQL(ctx context.Context, settings ...string) (*PostgreSQL, error) {
	path, err := firstProgram(append(systemDirs(), postgresDirs()...), ErrNoPostgreSQL, "postgres")
	if err != nil {
		return nil, err
	}
	p := &PostgreSQL{settings: append(slices.Clone(testSettings), settings...)}
	p.spec = spec{
		name: "PostgreSQL", path: path, ports: []int{0}, args: p.serverArgs, prepare: p.makeData,
		ready: "database system is ready to accept connections", failure: postgresFailure,
		quit: syscall.SIGQUIT, // it ends its sessions first; a kill would leave a segment of shared memory behind
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// postgresDirs are where Debian puts the programs of each version, the newest first.
func postgresDirs() []string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is valid
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Compare(postgresVersion(b), postgresVersion(a)) })
	return dirs
}

func postgresVersion(bin string) int {
	version, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin))) // 0 is the oldest
	return version
}

func (p *PostgreSQL) data() string { return filepath.Join(p.folder.path, dataName) }

// makeData makes the data directory with the program beside the server.
func (p *PostgreSQL) makeData(ctx context.Context) (err error) {
	if err := os.Mkdir(p.data(), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(p.folder.path, 0o711); err != nil { // another user goes through it
		return err
	}
	if p.attr, err = notRoot(p.data()); err != nil {
		return err
	}
	initdb := filepath.Join(filepath.Dir(p.path), executable("initdb"))
	return p.run(ctx, p.command(initdb, "-D", p.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"))
}

// testSettings are for a server that is thrown away. A commit still reaches the kernel, so that no committed row is
// lost when the process is killed.
var testSettings = []string{
	"listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200", "max_prepared_transactions=20", "shared_buffers=64MB",
	"fsync=off", "full_page_writes=off",
}

func (p *PostgreSQL) serverArgs() []string {
	args := []string{"-D", p.data(), "-p", strconv.Itoa(p.Port())}
	for _, s := range p.settings {
		args = append(args, "-c", s)
	}
	return args
}

// postgresFailure returns the error that a line of the log tells, of the server or of initdb, or "".
func postgresFailure(line string) string {
	for _, level := range []string{"FATAL:  ", "PANIC:  ", "LOG:  could not bind", "initdb: error: "} {
		if _, text, ok := strings.Cut(line, level); ok {
			return text
		}
	}
	return ""
}

// Restart retries server.Restart while sessions of the killed server still use the data.
func (p *PostgreSQL) Restart(ctx context.Context) error {
	for {
		err := p.server.Restart(ctx)
		if err == nil {
			return nil
		}
		pause := time.NewTimer(50 * time.Millisecond)
		select {
		case <-ctx.Done():
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
}

// URL returns how a driver reaches a database of the server.
func (p *PostgreSQL) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", p.Endpoint(), database)
}
