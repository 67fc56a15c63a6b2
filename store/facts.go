package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// asks is how often Facts asks one connection who answers.
const asks = 4

// Facts reads what an operator's check wants to know of a server.
func (s *Store) Facts(ctx context.Context, server int) (Facts, error) {
	sv := s.servers[server]
	taken, err := s.measure(ctx, sv)
	if err != nil {
		return Facts{}, s.wrap(err, "read the clock", sv)
	}
	values, err := s.variables(ctx, sv)
	if err != nil {
		return Facts{}, s.wrap(err, "read the variables", sv)
	}
	answers, err := s.answers(ctx, sv)
	if err != nil {
		return Facts{}, s.wrap(err, "ask who answers", sv)
	}
	facts := factsOf(values)
	facts.Clock = taken.offset()
	facts.Proxy = proxied(facts, answers)
	return facts, nil
}

func (s *Store) variables(ctx context.Context, sv *server) (map[string]string, error) {
	values := make(map[string]string)
	err := s.read(ctx, sv.DB, variables.name, variables.render(nil, nil), func(_ int, rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		values[strings.ToLower(name)] = value
		return err
	})
	return values, err
}

// answer is who answered a statement.
type answer struct {
	connection uint64
	host       string
}

// answers asks several times on one connection.
func (s *Store) answers(ctx context.Context, sv *server) ([]answer, error) {
	conn, err := sv.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	all := make([]answer, asks)
	for i := range all {
		err := s.read(ctx, conn, session.name, session.render(nil, nil), func(_ int, rows *sql.Rows) error {
			return rows.Scan(&all[i].connection, &all[i].host)
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func factsOf(values map[string]string) Facts {
	on := func(name string) bool { return values[name] == "ON" || values[name] == "1" }
	number := func(name string) int {
		n, err := strconv.Atoi(values[name])
		if err != nil {
			return -1
		}
		return n
	}
	f := Facts{
		Version:          values["version"],
		VersionComment:   values["version_comment"],
		Hostname:         values["hostname"],
		ServerID:         values["server_id"],
		ReadOnly:         on("read_only") || on("super_read_only"),
		LogBin:           on("log_bin"),
		FlushLogAtCommit: number("innodb_flush_log_at_trx_commit"),
		SyncBinlog:       number("sync_binlog"),
		TableOpenCache:   number("table_open_cache"),
		TableDefCache:    number("table_definition_cache"),
		OpenFilesLimit:   number("open_files_limit"),
		MaxConnections:   number("max_connections"),
		MaxAllowedPacket: number("max_allowed_packet"),
	}
	for _, unique := range []string{"server_uid", "server_uuid"} {
		if values[unique] != "" {
			f.ServerID = values[unique]
		}
	}
	return f
}

// proxied says why a proxy seems to stand between, "" if none does. One that
// spreads a connection's statements breaks transactions and session settings.
func proxied(f Facts, answers []answer) string {
	for _, name := range []string{"ProxySQL", "MaxScale"} {
		if strings.Contains(strings.ToLower(f.Version+" "+f.VersionComment), strings.ToLower(name)) {
			return "the server calls itself " + name
		}
	}
	for _, a := range answers {
		if a != answers[0] {
			return fmt.Sprintf("one connection was answered by connection %d of %s and by %d of %s",
				answers[0].connection, answers[0].host, a.connection, a.host)
		}
	}
	return ""
}
