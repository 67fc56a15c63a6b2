package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
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
	values, err := s.values(ctx, sv, variables)
	if err != nil {
		return Facts{}, s.wrap(err, "read the variables", sv)
	}
	answers, err := s.answers(ctx, sv)
	if err != nil {
		return Facts{}, s.wrap(err, "ask who answers", sv)
	}
	facts := factsOf(values)
	facts.Clock = taken.offset()
	if facts.ReadOnly, err = s.readOnly(ctx, sv); err != nil {
		return Facts{}, err
	}
	facts.Proxy = proxied(facts, answers)
	if err := s.replication(ctx, sv, values, &facts); err != nil {
		return Facts{}, s.wrap(err, "read the replicas and rights", sv)
	}
	facts.Schemas, err = s.schemas(ctx, sv)
	return facts, err
}

// values reads rows of a name and a value.
func (s *Store) values(ctx context.Context, sv *server, of statement) (map[string]string, error) {
	values := make(map[string]string)
	err := s.read(ctx, sv.DB, of.name, of.render(nil, nil), func(_ int, rows *sql.Rows) error {
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
		err := s.read(ctx, conn, session.name, session.render(nil, nil), scanOne(&all[i].connection, &all[i].host))
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func factsOf(values map[string]string) Facts {
	on := func(name string) bool { return mysql.IsOn(values[name]) }
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
		LogBin:           on("log_bin"),
		Unlogged:         on("log_bin") && values["binlog_format"] == "STATEMENT",
		ReadTransactions: on("transaction_read_only") || on("tx_read_only"),
		FlushLogAtCommit: number("innodb_flush_log_at_trx_commit"),
		SyncBinlog:       number("sync_binlog"),
		TableOpenCache:   number("table_open_cache"),
		OpenInstances:    number("table_open_cache_instances"),
		TableDefCache:    number("table_definition_cache"),
		InnoDBOpenFiles:  number("innodb_open_files"),
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

// replication adds what is known of a server's replicas, and the user's rights beyond read_only. A missing right is no
// error. variables are those of the server.
func (s *Store) replication(ctx context.Context, sv *server, variables map[string]string, f *Facts) error {
	status, err := s.values(ctx, sv, replication)
	if err != nil {
		return err
	}
	either := func(values map[string]string, source, master string) string {
		return cmp.Or(values[source], values[master])
	}
	f.SemiWanted = either(variables, "rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled") == "ON"
	clients, _ := strconv.Atoi(either(status, "rpl_semi_sync_source_clients", "rpl_semi_sync_master_clients"))
	f.SemiSync = f.SemiWanted && clients > 0 && either(status, "rpl_semi_sync_source_status", "rpl_semi_sync_master_status") == "ON"
	f.Followed = variables["gtid_slave_pos"] != "" || foreign(variables["gtid_executed"], f.ServerID)
	if connected, ok := status["slaves_connected"]; ok {
		if f.Replicas, err = strconv.Atoi(connected); err != nil {
			return err
		}
	} else if err = s.read(ctx, sv.DB, replicas.name, replicas.render(nil, nil), func(int, *sql.Rows) error { f.Replicas++; return nil }); err != nil {
		if !local(err) {
			return err
		}
		f.Replicas, f.Unlooked = -1, err
	}
	if clients > 0 && clients > f.Replicas {
		f.Replicas = clients
	}
	return s.read(ctx, sv.DB, grants.name, grants.render(nil, nil), func(_ int, rows *sql.Rows) error {
		var grant string
		err := rows.Scan(&grant)
		f.Exempt = append(f.Exempt, exempt(grant)...)
		return err
	})
}

// foreign reports whether a set of GTIDs of MySQL has some of another server.
func foreign(gtids, own string) bool {
	for part := range strings.SplitSeq(gtids, ",") {
		if uuid, _, found := strings.Cut(strings.TrimSpace(part), ":"); found && strings.Contains(uuid, "-") && !strings.EqualFold(uuid, own) {
			return true
		}
	}
	return false
}

// exempt returns the rights in a GRANT that may allow to write to a read-only server.
func exempt(grant string) (found []string) {
	rights, on, _ := strings.Cut(strings.TrimPrefix(grant, "GRANT "), " ON ")
	if !strings.HasPrefix(on, "*.* ") {
		return nil
	}
	for right := range strings.SplitSeq(rights, ",") {
		right = strings.ReplaceAll(strings.TrimSpace(right), "_", " ")
		if slices.Contains([]string{"ALL PRIVILEGES", "SUPER", "CONNECTION ADMIN", "READ ONLY ADMIN"}, right) {
			found = append(found, right)
		}
	}
	return found
}

// schemas reads the versions of the tables of a server's databases.
func (s *Store) schemas(ctx context.Context, sv *server) (all []Schema, err error) {
	rows, _, err := s.refusalsOver(ctx, sv, sv.DB)
	if err != nil {
		return nil, err
	}
	var older []string
	for _, database := range sv.Databases {
		row, ok := rows[database]
		if !ok || row.State != layoutrow.Active || row.Version < layoutrow.OldestSchema {
			continue
		}
		all = append(all, Schema{Database: s.layout.Database(database), Version: row.Version, WorksWith: row.WorksWith})
		if row.Version < layoutrow.SchemaVersion {
			older = append(older, "'"+s.layout.Database(database)+"'")
		}
	}
	if len(older) == 0 {
		return all, nil
	}
	text := begun.render(nil, slots{"databases": strings.Join(older, ", ")}.fill)
	err = s.read(ctx, sv.DB, begun.name, text, func(_ int, rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		if i := slices.IndexFunc(all, func(one Schema) bool { return one.Database == name }); i >= 0 {
			all[i].Begun = all[i].Version < layoutrow.SchemaVersion
		}
		return err
	})
	return all, s.wrap(err, "look for the newest tables", sv)
}

// variables reads the settings that Facts holds; servers skip those they do
// not have.
var variables = prepare(`
SHOW /* tocsin facts */ GLOBAL VARIABLES
WHERE Variable_name IN (
    'version',
    'version_comment',
    'hostname',
    'server_id',
    'server_uid',
    'server_uuid',
    'log_bin',
    'binlog_format',
    'transaction_read_only',
    'tx_read_only',
    'innodb_flush_log_at_trx_commit',
    'sync_binlog',
    'table_open_cache',
    'table_open_cache_instances',
    'table_definition_cache',
    'innodb_open_files',
    'open_files_limit',
    'max_connections',
    'max_allowed_packet',
    'gtid_slave_pos',
    'gtid_executed',
    'rpl_semi_sync_source_enabled',
    'rpl_semi_sync_master_enabled')`)

// replication reads how many replicas are connected, on MariaDB, and whether commits wait for one. It needs no right.
var replication = prepare(`
SHOW /* tocsin replication */ GLOBAL STATUS
WHERE Variable_name IN (
    'Slaves_connected',
    'Rpl_semi_sync_source_status',
    'Rpl_semi_sync_source_clients',
    'Rpl_semi_sync_master_status',
    'Rpl_semi_sync_master_clients')`)

// replicas lists the replicas of a MySQL server. It needs REPLICATION SLAVE.
var replicas = prepare(`SHOW /* tocsin replicas */ REPLICAS`)

// grants lists the rights of the user, who needs none for it.
var grants = prepare(`SHOW /* tocsin grants */ GRANTS FOR CURRENT_USER()`)

// begun finds databases that have the table which came with the newest schema version. {databases} are their names.
var begun = prepare(`
SELECT /* tocsin begun */
    table_schema
FROM information_schema.tables
WHERE table_schema IN ({databases})
    AND table_name = 'schedule'`)

// session asks who answers: the same each time unless a proxy spreads the
// statements of one connection.
var session = prepare(`
SELECT /* tocsin session */
    CONNECTION_ID(),
    @@hostname`)
