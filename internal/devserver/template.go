package devserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// mysqlRoot lets MySQL's root, whom it sets up for the socket only, come in over TCP as MariaDB's does.
const mysqlRoot = "CREATE USER 'root'@'127.0.0.1';\nGRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"

// templateRedo is the size of a template's redo log, the least that MySQL takes: a server makes its own larger.
const templateRedo = "8M"

// uuidFile holds a server's server_uuid. A data directory without one gets a new one.
const uuidFile = "auto.cnf"

// templateAge keeps what other starts are making at this moment.
const templateAge = time.Hour

// making is held while this process makes a template: starts at the same time wait for it and copy.
var making sync.Mutex

// fillMySQL makes a fresh data directory. MySQL takes seconds for it, so the first start of a program keeps a copy in
// the user's cache, the template, and later starts copy that. Without a cache each start takes those seconds.
func (m *MariaDB) fillMySQL(ctx context.Context, data string) error {
	template, err := m.template()
	if err != nil || len(m.lasting()) > 0 {
		return m.initialize(ctx, data)
	}
	if copied, err := copyTemplate(data, template); copied || err != nil {
		return err
	}
	making.Lock()
	defer making.Unlock()
	if copied, err := copyTemplate(data, template); copied || err != nil {
		return err
	}
	if err := m.initialize(ctx, data); err != nil {
		return err
	}
	_ = keepTemplate(data, template) // the server runs without it; the next start tries again
	return nil
}

// copyTemplate reports whether data is now a copy of the template. If not, nothing is there.
func copyTemplate(data, template string) (bool, error) {
	if os.CopyFS(data, os.DirFS(template)) == nil {
		return true, os.Chmod(data, 0o700)
	}
	return false, os.RemoveAll(data) // what was copied while the template was removed
}

// lasting are the options that MySQL wants to see when a data directory is made, and ever after.
func (m *MariaDB) lasting() []string {
	return slices.DeleteFunc(slices.Clone(m.cfg.Args), func(arg string) bool { return !strings.HasPrefix(arg, "--lower-case-table-names=") })
}

// initialize has MySQL set itself up, by its own clock and not by one that the caller may have set.
func (m *MariaDB) initialize(ctx context.Context, data string) error {
	init := filepath.Join(m.folder.path, "init.sql")
	if err := os.WriteFile(init, []byte(mysqlRoot), 0o600); err != nil {
		return err
	}
	args := append(m.commonArgs(data), "--initialize-insecure", "--init-file="+init, "--loose-innodb-redo-log-capacity="+templateRedo)
	cmd := m.command(m.path, append(args, m.lasting()...)...)
	cmd.Env = os.Environ()
	if err := m.run(ctx, cmd); err != nil {
		return err
	}
	return os.Remove(filepath.Join(data, uuidFile))
}

// template returns the template's path, which no other program has.
func (m *MariaDB) template() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	info, err := os.Stat(m.program.path)
	if err != nil {
		return "", err
	}
	id := sha256.Sum256(fmt.Appendln(nil, m.program.path, info.Size(), info.ModTime().UnixNano()))
	return filepath.Join(cache, "tocsin", "mysql-data", fmt.Sprintf("%x", id[:8])), nil
}

// keepTemplate makes the template from data. It appears by a rename.
func keepTemplate(data, template string) error {
	parent := filepath.Dir(template)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	removeTemplates(parent)
	fresh, err := os.MkdirTemp(parent, newPrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := os.CopyFS(fresh, os.DirFS(data)); err != nil {
		return err
	}
	return os.Rename(fresh, template)
}

// removeTemplates removes what is old: templates of other programs, and what an interrupted start left. Each gets
// another name first, so that a start which is copying it fails and makes its own data directory.
func removeTemplates(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < templateAge {
			continue
		}
		gone := filepath.Join(parent, newPrefix+e.Name())
		if os.Rename(filepath.Join(parent, e.Name()), gone) == nil {
			_ = os.RemoveAll(gone)
		}
	}
}
