package devserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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
}

// MariaDB is a private MariaDB, or MySQL.
type MariaDB struct {
	server
	cfg     MariaDBConfig
	program program
	socket  string
}

// StartMariaDB starts a server and returns when it answers. ctx bounds the start, not the server's life.
// It returns ErrNoMariaDB, ErrPortInUse or ErrFolderInUse, or an error with the last error of the server's log.
func StartMariaDB(ctx context.Context, cfg MariaDBConfig) (*MariaDB, error) {
	prog, err := cfg.Product.find()
	if err != nil {
		return nil, err
	}
	m := &MariaDB{cfg: cfg, program: prog}
	m.spec = spec{
		name: prog.String(), path: prog.path, dir: cfg.Dir, env: append(os.Environ(), cfg.Env...),
		ports: []int{cfg.Port}, args: m.serverArgs, prepare: m.prepare, ready: ": ready for connections", failure: mariadbFailure,
	}
	if err := m.start(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// prepare places the socket, in a folder of its own if the server's has too long a path for one, and makes the data
// directory.
func (m *MariaDB) prepare(ctx context.Context) error {
	if m.socket = filepath.Join(m.folder.path, socketName); len(m.socket) > maxSocket {
		f, err := openFolder(ctx, "", "socket")
		if err != nil {
			return err
		}
		m.folders, m.socket = append(m.folders, f), filepath.Join(f.path, socketName)
	}
	return m.bootstrap(ctx)
}

// mariadbFailure returns the text of an [ERROR] line.
func mariadbFailure(line string) string {
	_, text, ok := strings.Cut(line, "[ERROR]")
	if !ok {
		_, text, ok = strings.Cut(line, "ERROR:") // of a bootstrap
	}
	if text = strings.TrimSpace(text); !ok || strings.HasSuffix(text, "Aborting") {
		return "" // the last word of every failed start, which explains nothing
	}
	return text
}

// DSN returns the go-sql-driver DSN of user root over TCP, without a database.
func (m *MariaDB) DSN() string { return fmt.Sprintf("root@tcp(%s)/", m.Endpoint()) }

// Socket returns the path of the unix socket.
func (m *MariaDB) Socket() string { return m.socket }

// IsMySQL reports whether the server is MySQL; else it is MariaDB.
func (m *MariaDB) IsMySQL() bool { return m.program.mysql }
