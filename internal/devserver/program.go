package devserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrNoMariaDB, ErrNoMySQL and ErrNoEtcd say that there is no server to run, and how to get one.
var (
	ErrNoMariaDB = errors.New("mariadbd not found in PATH: install it with `apt-get install mariadb-server-core`")
	ErrNoMySQL   = errors.New("no MySQL found: install one with scripts/install-mysql.sh, or set " + EnvMySQLDir + " to the folder of its mysqld")
	ErrNoEtcd    = errors.New("etcd not found in PATH: install it with `apt-get install etcd-server`, or set " + EnvEtcd + " to the program")
)

// Product names what kind of server to run. "" is what EnvProduct names, or else the MariaDB in PATH, or else the
// MySQL there.
type Product string

// The products.
const (
	ProductMariaDB Product = "mariadb"
	ProductMySQL   Product = "mysql"
)

// These environment variables choose the server. EnvServerDir and EnvMySQLDir name the one folder to look for a mariadbd
// or a mysqld in, where the one that would be found is not the one to run; EnvEtcd names the etcd itself.
const (
	EnvProduct   = "TOCSIN_TEST_SERVER"
	EnvServerDir = "TOCSIN_MARIADB_DIR"
	EnvMySQLDir  = "TOCSIN_MYSQL_DIR"
	EnvEtcd      = "TOCSIN_ETCD"
)

// program is an installed server.
type program struct {
	path  string // absolute
	mysql bool   // MySQL's own mysqld, which sets itself up
	share string // the folder of MariaDB's system SQL and messages; "" for MySQL
}

// String returns the server's name, for messages.
func (p program) String() string {
	if p.mysql {
		return "MySQL"
	}
	return "MariaDB"
}

// ParseProduct checks a product's name; "" is one.
func ParseProduct(name string) (Product, error) {
	switch p := Product(name); p {
	case "", ProductMariaDB, ProductMySQL:
		return p, nil
	}
	return "", fmt.Errorf("unknown server %q: want %s or %s", name, ProductMariaDB, ProductMySQL)
}

// chosen returns the product that is meant by p.
func (p Product) chosen() (Product, error) {
	if p != "" {
		return ParseProduct(string(p))
	}
	p, err := ParseProduct(os.Getenv(EnvProduct))
	if err != nil {
		return "", fmt.Errorf("%s: %w", EnvProduct, err)
	}
	return p, nil
}

// find returns the server to run.
func (p Product) find() (program, error) {
	p, err := p.chosen()
	if err != nil {
		return program{}, err
	}
	if p == ProductMySQL {
		return findServer(p, mysqlDirs())
	}
	return findServer(p, serverDirs())
}

// serverDirs returns where to look: PATH, and the folders of system programs that an ordinary user's PATH lacks; or the
// folder that EnvServerDir names, alone.
func serverDirs() []string {
	if dir := os.Getenv(EnvServerDir); dir != "" {
		return []string{dir}
	}
	return systemDirs()
}

func systemDirs() []string {
	return append(filepath.SplitList(os.Getenv("PATH")),
		"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin", "/opt/homebrew/bin")
}

// mysqlDirs returns where to look for MySQL: the folders of scripts/install-mysql.sh, then those of the system; or the
// folder that EnvMySQLDir names, alone.
func mysqlDirs() []string {
	if dir := os.Getenv(EnvMySQLDir); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		return []string{dir}
	}
	dirs := []string{"/var/lib/tocsin-mysql"}
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append([]string{filepath.Join(cache, "tocsin", "mysql")}, dirs...)
	}
	return append(dirs, systemDirs()...)
}

// findEtcd returns the absolute path of the etcd to run: the named program, or else the first one in dirs.
func findEtcd(named string, dirs []string) (string, error) {
	if named != "" {
		path, err := filepath.Abs(named)
		if err == nil && !isProgram(path) {
			err = fmt.Errorf("%s: %s is not a program", EnvEtcd, path)
		}
		return path, err
	}
	for _, dir := range dirs {
		if path := filepath.Join(dir, executable("etcd")); isProgram(path) {
			return path, nil
		}
	}
	return "", ErrNoEtcd
}

// isProgram reports whether the path is absolute and leads to a file.
func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && filepath.IsAbs(path)
}

// findServer returns the first server of the product in dirs; of any product, the first mariadbd, or else the first
// mysqld.
func findServer(product Product, dirs []string) (program, error) {
	for _, name := range []string{"mariadbd", "mysqld"} {
		for _, dir := range dirs {
			path := filepath.Join(dir, executable(name))
			if !isProgram(path) {
				continue
			}
			if found, err := inspect(path, name); err != nil || found.is(product) {
				return found, err
			}
		}
	}
	if product == ProductMySQL {
		return program{}, ErrNoMySQL
	}
	return program{}, ErrNoMariaDB
}

// is reports whether the server is of the product, or of any if that is "".
func (p program) is(product Product) bool {
	return product == "" || p.mysql == (product == ProductMySQL)
}

func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}

// inspect finds out what stands behind the name, as MariaDB too is installed as mysqld.
func inspect(path, name string) (program, error) {
	if name == "mysqld" {
		out, err := exec.Command(path, "--no-defaults", "--version").Output()
		if err != nil {
			return program{}, fmt.Errorf("%s --version: %w", path, err)
		}
		if !strings.Contains(string(out), "MariaDB") {
			return program{path: path, mysql: true}, nil
		}
	}
	share, err := findShare(path)
	return program{path: path, share: share}, err
}

// findShare returns the folder of the system SQL that belongs to the server, beside it or in a package's place.
func findShare(path string) (string, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	base := filepath.Dir(filepath.Dir(path))
	dirs := []string{
		filepath.Join(base, "share", "mysql"), filepath.Join(base, "share", "mariadb"), filepath.Join(base, "share"),
		"/usr/share/mysql", "/usr/share/mariadb",
	}
	for _, dir := range dirs {
		if _, err := systemSQL(dir, "system_tables"); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s: its mysql_system_tables.sql is in none of %s", path, strings.Join(dirs, ", "))
}

// systemSQL reads one of MariaDB's SQL files, which are named after MariaDB since version 11.
func systemSQL(share, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(share, "mariadb_"+name+".sql"))
	if errors.Is(err, os.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(share, "mysql_"+name+".sql"))
	}
	return string(text), err
}
