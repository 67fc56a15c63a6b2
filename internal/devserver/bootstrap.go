package devserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// dataName is the data directory in a server's folder, freshData what it is called until it is complete.
const (
	dataName  = "data"
	freshData = "data.new"
)

// bootstrap makes the data directory unless there is one.
func (m *MariaDB) bootstrap(ctx context.Context) error {
	data, fresh := filepath.Join(m.folder.path, dataName), filepath.Join(m.folder.path, freshData)
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(fresh); err != nil { // of a start that was interrupted
		return err
	}
	fill := m.fillMariaDB
	if m.program.mysql {
		fill = m.fillMySQL
	}
	if err := fill(ctx, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, data)
}

// fillMariaDB does what mariadb-install-db does, with MariaDB's own grant tables and its users without a password, but
// without the help texts and the sys schema, which take seconds.
func (m *MariaDB) fillMariaDB(ctx context.Context, data string) error {
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	sql, err := bootstrapSQL(m.program.share)
	if err != nil {
		return err
	}
	cmd := m.command(m.path, append(m.commonArgs(data), "--bootstrap")...)
	cmd.Stdin = strings.NewReader(sql)
	return m.run(ctx, cmd)
}

// bootstrapSQL returns the statements that make the system tables, each on lines of its own as --bootstrap wants.
func bootstrapSQL(share string) (string, error) {
	tables, err := systemSQL(share, "system_tables")
	if err != nil {
		return "", err
	}
	rows, err := systemSQL(share, "system_tables_data")
	if err != nil {
		return "", err
	}
	return "CREATE DATABASE mysql;\nUSE mysql;\n" + tables + "\n" + withoutHost(rows), nil
}

// withoutHost removes the rows for this machine's own name, as mariadb-install-db does for a server without names.
func withoutHost(sql string) string {
	var b strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.Contains(line, "@current_hostname") {
			b.WriteString(line)
		}
	}
	return b.String()
}
