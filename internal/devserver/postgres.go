package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNoPostgreSQL says that there is no PostgreSQL to run, and how to get one.
var ErrNoPostgreSQL = errors.New("postgres not found in PATH, nor in /usr/lib/postgresql: install it with `scripts/install-deps.sh test`")

// PostgreSQL is a private PostgreSQL in a process of its own, with a temporary folder, a free port on 127.0.0.1 and the
// superuser postgres, who needs no password. It takes prepared transactions. Its methods may be called at any time from any
// goroutine.
type PostgreSQL struct {
	bin    string // the folder of its programs
	folder *folder
	log    *logTail
	file   *os.File // of the log
	port   int

	mu   sync.Mutex // held while the server is started, killed or stopped
	proc *process   // nil until it has been launched

	stopOnce sync.Once
	stopErr  error
}

// StartPostgreSQL starts a PostgreSQL and returns when it answers. ctx bounds the start, not its life. It returns
// ErrNoPostgreSQL, or an error with the last error of its log.
func StartPostgreSQL(ctx context.Context) (*PostgreSQL, error) {
	bin, err := findPostgreSQL(append(systemDirs(), postgresDirs()...))
	if err != nil {
		return nil, err
	}
	folder, err := openFolder(ctx, "", "postgres")
	if err != nil {
		return nil, err
	}
	p := &PostgreSQL{bin: bin, folder: folder}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres in %s: %w", folder.path, err), p.Stop())
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

// findPostgreSQL returns the first of dirs that has all programs of a server.
func findPostgreSQL(dirs []string) (string, error) {
	for _, dir := range dirs {
		if !slices.ContainsFunc([]string{"postgres", "initdb", "pg_isready"}, func(name string) bool {
			return !isProgram(filepath.Join(dir, executable(name)))
		}) {
			return dir, nil
		}
	}
	return "", ErrNoPostgreSQL
}

func (p *PostgreSQL) program(name string) string { return filepath.Join(p.bin, executable(name)) }

func (p *PostgreSQL) data() string { return filepath.Join(p.folder.path, dataName) }

// start makes the data and launches the server, with another port if somebody else was faster.
func (p *PostgreSQL) start(ctx context.Context) (err error) {
	p.file, err = os.OpenFile(filepath.Join(p.folder.path, "postgres.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.log = &logTail{dst: p.file, failure: postgresFailure}
	if err := os.Mkdir(p.data(), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(p.folder.path, 0o711); err != nil { // another user goes through it
		return err
	}
	if err := p.makeData(ctx); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		p.port = FreePort()
		err := p.launch(ctx)
		if err == nil || attempt == portAttempts || !p.log.portTaken() {
			return err
		}
	}
}

func (p *PostgreSQL) makeData(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, p.program("initdb"), "-D", p.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	cmd.Dir = p.data()
	if err := otherUser(p.data(), cmd); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// postgresSettings are for a server that is thrown away. A commit still reaches the kernel, so that no committed row is
// lost when the process is killed.
var postgresSettings = []string{
	"listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200", "max_prepared_transactions=20", "shared_buffers=64MB",
	"fsync=off", "full_page_writes=off",
}

func (p *PostgreSQL) launch(ctx context.Context) error {
	p.log.reset()
	args := []string{"-D", p.data(), "-p", strconv.Itoa(p.port)}
	for _, s := range postgresSettings {
		args = append(args, "-c", s)
	}
	cmd := exec.Command(p.program("postgres"), args...)
	cmd.Dir = p.data()
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.ExtraFiles = []*os.File{p.folder.lockFile()}
	if err := otherUser(p.data(), cmd); err != nil {
		return err
	}
	proc, err := startProcess(cmd, p.folder.leave)
	if err != nil {
		return err
	}
	p.proc = proc
	if err := proc.await(ctx, 10*answerEvery, p.log, func() bool { return p.ready(ctx) }); err != nil {
		p.end()
		return err
	}
	return nil
}

// ready reports whether the server takes connections.
func (p *PostgreSQL) ready(ctx context.Context) bool {
	return exec.CommandContext(ctx, p.program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-t", "1").Run() == nil
}

// postgresFailure returns the error that a line of its log tells, or "".
func postgresFailure(line string) string {
	for _, level := range []string{"FATAL:  ", "PANIC:  ", "LOG:  could not bind"} {
		if _, text, ok := strings.Cut(line, level); ok {
			return text
		}
	}
	return ""
}

// Kill ends the server with SIGKILL, as a crash would. Its sessions end by themselves. The data stays: Restart brings it back.
func (p *PostgreSQL) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proc.kill()
}

// Restart launches a server that was killed, on its port and with what it held. It returns when the server answers. It tries
// again while sessions of the killed server still use the data.
func (p *PostgreSQL) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		err := p.launch(ctx)
		if err == nil {
			return nil
		}
		pause := time.NewTimer(10 * answerEvery)
		select {
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("restart postgres in %s: %w", p.folder.path, err)
		case <-pause.C:
		}
	}
}

// URL returns how a driver reaches a database of the server.
func (p *PostgreSQL) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", loopback(p.port), database)
}

// Stop ends the server, as nobody will see its data again, and removes its folder. It may be called again and then returns
// the same.
func (p *PostgreSQL) Stop() error {
	p.stopOnce.Do(func() { p.stopErr = p.stop() })
	return p.stopErr
}

func (p *PostgreSQL) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	if p.proc != nil {
		p.end()
	}
	if p.file != nil {
		errs = append(errs, p.file.Close())
	}
	return errors.Join(append(errs, p.folder.close())...)
}

// end has the server end its sessions and itself at once. A kill would leave a segment of shared memory behind.
func (p *PostgreSQL) end() {
	p.proc.signal(syscall.SIGQUIT)
	limit := time.NewTimer(StopTimeout)
	defer limit.Stop()
	select {
	case <-p.proc.done:
	case <-limit.C:
		p.proc.kill()
	}
}
