package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// PostgresURL is where the superuser of a private PostgreSQL gets at it.
func PostgresURL(addr string) string {
	return fmt.Sprintf("postgres://tocsin@%s/postgres?sslmode=disable", addr)
}

// StartPostgres starts a PostgreSQL whose commits reach the disk, with the
// further settings, "name=value".
func StartPostgres(ctx context.Context, settings ...string) (*Server, error) {
	as, err := postgresUser()
	if err != nil {
		return nil, err
	}
	return spec{
		program: "postgres", pkg: "postgresql", versionFlag: "--version", ask: syscall.SIGQUIT, user: as,
		prepare: func(ctx context.Context, path, dir string) error { return initdb(ctx, path, dir, as) },
		args: func(dir string, port int) []string {
			args := []string{
				"-D", filepath.Join(dir, "data"), "-k", dir, "-p", strconv.Itoa(port),
				"-c", "listen_addresses=127.0.0.1", "-c", "fsync=on", "-c", "synchronous_commit=on",
			}
			for _, s := range settings {
				args = append(args, "-c", s)
			}
			return args
		},
		ready: pingPostgres,
	}.start(ctx)
}

// initdb makes the data directory with the program beside the server.
func initdb(ctx context.Context, server, dir string, as *syscall.Credential) error {
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(server), "initdb"),
		"-D", filepath.Join(dir, "data"), "-U", "tocsin", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// pingPostgres reports whether the server takes a query: its port is open before.
func pingPostgres(ctx context.Context, addr string) error {
	conn, err := pgx.Connect(ctx, PostgresURL(addr))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.Ping(ctx)
}

// postgresUser is who runs the server where this process is root's: PostgreSQL
// refuses to be root's.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("PostgreSQL refuses to run as root, and there is no other user for it: %w", err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}
