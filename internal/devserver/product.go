package devserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Product names what kind of server to run. "" is what EnvProduct names, or else the MariaDB in PATH, or else the
// MySQL there.
type Product string

// The products. scripts/install-server.sh installs those that have a version, and MySQL.
const (
	ProductMariaDB    Product = "mariadb" // of the system
	ProductMariaDB118 Product = "mariadb-11.8"
	ProductMySQL      Product = "mysql" // of the script, or else of the system
)

// products are all that have a name.
var products = []Product{ProductMariaDB, ProductMariaDB118, ProductMySQL}

// EnvProduct names the environment variable that chooses the server.
const EnvProduct = "TOCSIN_TEST_SERVER"

// These errors say that there is no server to run, and how to get one.
var (
	ErrNoMariaDB    = errors.New("mariadbd not found in PATH: install it with `apt-get install mariadb-server-core`")
	ErrNoMariaDB118 = notInstalled("MariaDB 11.8", ProductMariaDB118)
	ErrNoMySQL      = notInstalled("MySQL", ProductMySQL)
)

func notInstalled(title string, p Product) error {
	return fmt.Errorf("no %s found: install one with `scripts/install-server.sh %s`, or set %s to the folder of its server", title, p, p.EnvDir())
}

// ParseProduct checks a product's name; "" is one.
func ParseProduct(name string) (Product, error) {
	if p := Product(name); p == "" || slices.Contains(products, p) {
		return p, nil
	}
	return "", fmt.Errorf("unknown server %q: want %s", name, ProductNames())
}

// ProductNames lists the names of all products, for messages.
func ProductNames() string {
	last := len(products) - 1
	text := ""
	for _, p := range products[:last] {
		text += string(p) + ", "
	}
	return strings.TrimSuffix(text, ", ") + " or " + string(products[last])
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

// isMySQL reports whether the product is MySQL's own server.
func (p Product) isMySQL() bool { return p == ProductMySQL }

// missing returns the error for a product that is not there.
func (p Product) missing() error {
	switch p {
	case ProductMySQL:
		return ErrNoMySQL
	case ProductMariaDB118:
		return ErrNoMariaDB118
	}
	return ErrNoMariaDB
}

// EnvDir names the environment variable with the one folder to look for the product's server in, where the one that
// would be found is not the one to run: TOCSIN_MYSQL_DIR.
func (p Product) EnvDir() string {
	if p == "" {
		p = ProductMariaDB
	}
	return "TOCSIN_" + strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToUpper(string(p))) + "_DIR"
}

// dirs returns where to look for the product, all absolute: the folder that EnvDir names, alone; or the folders of
// scripts/install-server.sh and those of the system.
func (p Product) dirs() []string {
	if dir := os.Getenv(p.EnvDir()); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		return []string{dir}
	}
	switch p {
	case ProductMariaDB118:
		return p.installed()
	case ProductMySQL:
		return append(p.installed(), systemDirs()...)
	}
	return systemDirs()
}

// installed returns the folders that scripts/install-server.sh may have filled.
func (p Product) installed() (dirs []string) {
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(cache, "tocsin", string(p)))
	}
	return append(dirs, "/var/lib/tocsin-"+string(p))
}

// systemDirs returns PATH, and the folders of system programs that an ordinary user's PATH lacks.
func systemDirs() []string {
	return append(filepath.SplitList(os.Getenv("PATH")),
		"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin", "/opt/homebrew/bin")
}
