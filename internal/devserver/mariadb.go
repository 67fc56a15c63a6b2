package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// StopTimeout bounds a clean shutdown of a server; after it the process is killed.
const StopTimeout = 20 * time.Second

// portAttempts bounds the search for a port which nobody takes between the choice and the server's bind.
const portAttempts = 5

// MariaDBConfig says how to run a private MariaDB. The zero value is a temporary server on a port of its own choice.
type MariaDBConfig struct {
	// Product is the kind of server.
	Product Product
	// Dir is the server's folder; it is made if missing. One that holds data is started again with its data.
	// "" makes a temporary one, which Stop removes.
	Dir string
	// Port is the TCP port on 127.0.0.1; 0 picks a free one.
	Port int
	// Durable makes a commit reach the disk, as in production. False survives the death of the server, though not
	// of the machine, and is faster.
	Durable bool
	// Memory is the size of the buffer pool in bytes, RedoLog that of the redo log. 0: room for tests, or for a
	// Durable server.
	Memory, RedoLog int
	// Args are further options of the server. They come last, so they win.
	Args []string
	// Env are further variables of the server's environment, "NAME=value".
	Env []string
	// Log takes the server's log; a slow writer slows the server. nil keeps it in Dir/error.log.
	Log io.Writer
}

// MariaDB is a private server process. Its methods may be called at any time from any goroutine.
type MariaDB struct {
	cfg     MariaDBConfig
	program program
	folder  *folder
	sockets *folder // nil unless Dir is too long for a socket's path
	log     *logTail
	logFile *os.File // nil if the caller takes the log
	port    int
	proc    *process // nil until a server has been launched; constant once StartMariaDB has returned

	stopOnce sync.Once
	stopErr  error
}

// StartMariaDB starts a server and returns when it answers. ctx bounds the start, not the server's life.
// It returns ErrNoMariaDB, ErrPortInUse or ErrFolderInUse, or an error with the last error of the server's log.
func StartMariaDB(ctx context.Context, cfg MariaDBConfig) (*MariaDB, error) {
	prog, err := cfg.Product.find()
	if err != nil {
		return nil, err
	}
	if cfg.Port != 0 {
		if err := probePort(cfg.Port); err != nil {
			return nil, err
		}
	}
	m := &MariaDB{cfg: cfg, program: prog}
	if err := m.start(ctx); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// start does everything that Stop has to undo.
func (m *MariaDB) start(ctx context.Context) (err error) {
	if m.folder, err = openFolder(ctx, m.cfg.Dir, "mariadb"); err != nil {
		return err
	}
	if m.socketTooLong() {
		if m.sockets, err = openFolder(ctx, "", "socket"); err != nil {
			return err
		}
	}
	if err := m.openLog(); err != nil {
		return err
	}
	if err := m.bootstrap(ctx); err != nil {
		return fmt.Errorf("set up %s in %s: %w", m.program, m.folder.path, err)
	}
	if err := m.launchOnPort(ctx); err != nil {
		return fmt.Errorf("start %s in %s: %w", m.program, m.folder.path, err)
	}
	return nil
}

// openLog opens error.log unless the caller takes the log.
func (m *MariaDB) openLog() (err error) {
	if m.cfg.Log != nil {
		m.log = &logTail{dst: m.cfg.Log}
		return nil
	}
	m.logFile, err = os.OpenFile(filepath.Join(m.folder.path, "error.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	m.log = &logTail{dst: m.logFile}
	return err
}

// launchOnPort launches the server, with another port if somebody else was faster and we may choose.
func (m *MariaDB) launchOnPort(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		m.port = m.cfg.Port
		if m.port == 0 {
			m.port = FreePort()
		}
		err := m.launch(ctx)
		if err == nil || m.cfg.Port != 0 || attempt == portAttempts || !m.log.portTaken() {
			return err
		}
	}
}

// launch starts the process and waits until it answers; on an error the process has ended.
func (m *MariaDB) launch(ctx context.Context) error {
	m.log.reset()
	proc, err := startProcess(m.command(m.serverArgs()), m.folder.leave)
	if err != nil {
		return err
	}
	m.proc = proc
	if err := m.awaitAnswer(ctx); err != nil {
		proc.kill()
		return err
	}
	return nil
}

// DSN returns the go-sql-driver DSN of user root over TCP, without a database.
func (m *MariaDB) DSN() string { return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", m.port) }

// SocketDSN returns the go-sql-driver DSN of user root over the unix socket, without a database.
func (m *MariaDB) SocketDSN() string { return fmt.Sprintf("root@unix(%s)/", m.Socket()) }

// Socket returns the path of the unix socket.
func (m *MariaDB) Socket() string {
	if m.sockets != nil {
		return filepath.Join(m.sockets.path, socketName)
	}
	return filepath.Join(m.folder.path, socketName)
}

// Dir returns the server's folder.
func (m *MariaDB) Dir() string { return m.folder.path }

// Port returns the TCP port on 127.0.0.1.
func (m *MariaDB) Port() int { return m.port }

// IsMySQL reports whether the server is MySQL; else it is MariaDB.
func (m *MariaDB) IsMySQL() bool { return m.program.mysql }

// Pid returns the process id of the server.
func (m *MariaDB) Pid() int { return m.proc.pid }

// Done is closed when the process has ended, for whatever reason, and its folder may be started again.
func (m *MariaDB) Done() <-chan struct{} { return m.proc.done }

// Err says how the process ended, with the last error of its log; nil while it runs and after a clean shutdown.
func (m *MariaDB) Err() error {
	select {
	case <-m.proc.done:
		return m.log.explain(m.proc.err)
	default:
		return nil
	}
}

// Kill ends the server with SIGKILL and waits. The data stays: StartMariaDB with the same Dir and Port brings it back,
// if Dir is the caller's. Stop is still to be called.
func (m *MariaDB) Kill() error {
	m.proc.kill()
	return nil
}

// Stop shuts the server down, waits, and removes a temporary folder. A server with a temporary folder is killed, as
// nobody will see its data again. Stop may be called again and then returns the same.
func (m *MariaDB) Stop() error {
	m.stopOnce.Do(func() { m.stopErr = m.stop() })
	return m.stopErr
}

func (m *MariaDB) stop() error {
	var errs []error
	if m.proc != nil {
		errs = append(errs, m.endProcess())
	}
	if m.logFile != nil {
		errs = append(errs, m.logFile.Close())
	}
	for _, f := range []*folder{m.sockets, m.folder} {
		if f != nil {
			errs = append(errs, f.close())
		}
	}
	return errors.Join(errs...)
}

// endProcess returns when the process has ended, at the latest StopTimeout and a kill later.
func (m *MariaDB) endProcess() error {
	if m.folder.temporary {
		m.proc.kill()
		return nil
	}
	return m.proc.shutDown(fmt.Sprintf("%s in %s", m.program, m.folder.path))
}
