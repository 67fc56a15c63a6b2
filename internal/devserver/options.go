package devserver

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

const (
	socketName = "mariadb.sock"
	maxSocket  = 103 // bytes of a socket's path that every unix takes

	maxConnections = 500
	spareFiles     = 200    // of a server beside connections and tables: logs, system tables, temporary files
	maxCache       = 20000  // tables; 8 x 1024 in use by two connections at once, and room
	maxFiles       = 100000 // more is of no use, and the server keeps an array of this size
	defaultFiles   = 4096   // where the limit is unknown
)

// commonArgs are those of the bootstrap and of the server.
func (m *MariaDB) commonArgs(data string) []string {
	args := []string{
		"--no-defaults",
		"--datadir=" + data,
		"--tmpdir=" + m.folder.path, // a server that starts removes the temporary tables of all others in its tmpdir
		"--skip-log-bin",
		"--performance-schema=OFF",
		"--character-set-server=utf8mb4",
		"--collation-server=utf8mb4_general_ci",
		fmt.Sprintf("--innodb-buffer-pool-size=%d", cmp.Or(m.cfg.Memory, 256<<20)),
		"--innodb-buffer-pool-dump-at-shutdown=OFF",
		"--innodb-buffer-pool-load-at-startup=OFF",
	}
	args = append(args, m.productArgs()...)
	if os.Geteuid() == 0 { // a change of user would lose the parent-death signal, and the right to the folder
		args = append(args, "--user=root")
	}
	return append(args, m.commitArgs()...)
}

// productArgs are those that one of the products knows. MySQL's default of secure-file-priv is a folder that a server in
// a folder of its own may lack.
func (m *MariaDB) productArgs() []string {
	if m.program.mysql {
		return []string{
			"--secure-file-priv=",
			"--loose-mysqlx=OFF",
			fmt.Sprintf("--loose-innodb-redo-log-capacity=%d", m.redoLog()),
		}
	}
	return []string{
		fmt.Sprintf("--loose-innodb-log-file-size=%d", m.redoLog()),
		"--loose-aria-log-file-size=8M",
		"--lc-messages-dir=" + m.program.share,
	}
}

// redoLog is small where many test servers share a disk, and roomy where writes are measured.
func (m *MariaDB) redoLog() int {
	switch {
	case m.cfg.RedoLog != 0:
		return m.cfg.RedoLog
	case m.cfg.Durable:
		return 256 << 20
	default:
		return 64 << 20
	}
}

// commitArgs say what a commit waits for. With Durable they are the defaults of all products, so that one's figures can
// be compared with another's. Without Durable it still reaches the kernel (2, not 0), so that no committed
// row is lost by Kill; and torn pages are still guarded against, as a kill can tear one too.
func (m *MariaDB) commitArgs() []string {
	if m.cfg.Durable {
		return []string{"--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=O_DIRECT"}
	}
	return []string{
		"--innodb-flush-log-at-trx-commit=2",
		"--innodb-flush-method=nosync",
		"--loose-sync-frm=0",
	}
}

// serverArgs are those of the server itself.
func (m *MariaDB) serverArgs() []string {
	args := append(m.commonArgs(filepath.Join(m.folder.path, dataName)),
		"--skip-networking=0",
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", m.Port()),
		"--socket="+m.socket,
		"--pid-file="+filepath.Join(m.folder.path, "mariadb.pid"),
		"--skip-name-resolve",
		"--back-log=512",
		fmt.Sprintf("--max-connections=%d", maxConnections),
	)
	args = append(args, cacheArgs(fileLimit(), m.program.mysql)...)
	return append(args, m.cfg.Args...)
}

// cacheArgs sizes the table caches for a limit of open files. The server counts two files for every entry of every
// cache instance, and shrinks what does not fit with a warning. MySQL divides the cache between the instances, and a connection
// uses only one instance, so there is one instance, which holds all tables.
func cacheArgs(files int, mysql bool) []string {
	room := max(files-maxConnections-spareFiles, 0) / 2
	tables := max(min(room, maxCache), 400)
	instances := max(min(room/tables, 8), 1)
	if mysql {
		instances = 1
	}
	return []string{
		fmt.Sprintf("--open-files-limit=%d", files),
		fmt.Sprintf("--table-open-cache=%d", tables),
		fmt.Sprintf("--table-open-cache-instances=%d", instances),
		fmt.Sprintf("--table-definition-cache=%d", maxCache),
		fmt.Sprintf("--innodb-open-files=%d", tables),
	}
}
