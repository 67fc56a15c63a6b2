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

// ErrNoEtcd says that there is no etcd to run, and how to get one.
var ErrNoEtcd = errors.New("etcd not found in PATH: install it with `apt-get install etcd-server`, or set " + EnvEtcd + " to the program")

// EnvEtcd names the environment variable with the path of the etcd to run, where the one in PATH is not it.
const EnvEtcd = "TOCSIN_ETCD"

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

// find returns the server to run.
func (p Product) find() (program, error) {
	p, err := p.chosen()
	if err != nil {
		return program{}, err
	}
	return findServer(p, p.dirs())
}

// findEtcd returns the absolute path of the etcd to run: the named program, or else the first one in dirs.
func findEtcd(named string, dirs []string) (string, error) {
	if named == "" {
		return firstProgram(dirs, ErrNoEtcd, "etcd")
	}
	path, err := filepath.Abs(named)
	if err == nil && !isProgram(path) {
		err = fmt.Errorf("%s: %s is not a program", EnvEtcd, path)
	}
	return path, err
}

// firstProgram returns the path of the first program in dirs that has one of the names; missing if there is none.
func firstProgram(dirs []string, missing error, names ...string) (string, error) {
	for _, dir := range dirs {
		for _, name := range names {
			if path := filepath.Join(dir, executable(name)); isProgram(path) {
				return path, nil
			}
		}
	}
	return "", missing
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
	return program{}, product.missing()
}

// is reports whether the server is of the product, or of any if that is "".
func (p program) is(product Product) bool {
	return product == "" || p.mysql == product.isMySQL()
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
	own, base := filepath.Join(filepath.Dir(path), "usr"), filepath.Dir(filepath.Dir(path))
	dirs := []string{
		filepath.Join(own, "share", "mysql"), filepath.Join(own, "share", "mariadb"), // of scripts/install-server.sh
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
