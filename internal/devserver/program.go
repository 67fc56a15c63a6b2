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

// ErrNoMariaDB says that there is no server to run, and how to get one.
var ErrNoMariaDB = errors.New(
	"mariadbd not found in PATH: install it with `apt-get install mariadb-server-core`")

// program is an installed server.
type program struct {
	path  string // absolute
	mysql bool   // MySQL's own mysqld, which sets itself up
	share string // the folder of MariaDB's system SQL and messages; "" for MySQL
}

// EnvServerDir names the environment variable with the one folder to look for the server in, where the one that would be
// found is not the one to run.
const EnvServerDir = "TOCSIN_MARIADB_DIR"

// serverDirs returns where to look: PATH, and the folders of system programs that an ordinary user's PATH lacks; or the
// folder that EnvServerDir names, alone.
func serverDirs() []string {
	if dir := os.Getenv(EnvServerDir); dir != "" {
		return []string{dir}
	}
	return append(filepath.SplitList(os.Getenv("PATH")),
		"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin", "/opt/homebrew/bin")
}

// findServer returns the first mariadbd of dirs, or else the first mysqld.
func findServer(dirs []string) (program, error) {
	for _, name := range []string{"mariadbd", "mysqld"} {
		for _, dir := range dirs {
			path := filepath.Join(dir, executable(name))
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || !filepath.IsAbs(path) {
				continue
			}
			return inspect(path, name)
		}
	}
	return program{}, ErrNoMariaDB
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
