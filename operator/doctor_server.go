package operator

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// What a server should have beyond its tables.
const (
	spareDefinitions = 200         // of tables that are not ours, and room
	spareFiles       = 200         // logs, system tables, temporary files
	leastNodes       = 2           // of a cluster that survives the loss of one
	others           = 1           // processes beside the nodes: a sweeper
	leastPacket      = 1 << 20     // bytes; a batch of ours may be so large
	goodPacket       = 4 << 20     // bytes
	clockLimit       = time.Second // between the server's clock and this machine's
)

// serverUse is what the cluster wants of one server.
type serverUse struct {
	Name   string // of the server
	Tables int    // task tables that it holds
	Conns  int    // connections that one process may open
	Nodes  int    // that may be connected at the same time; fewer than 2 count as 2
}

// settings judges the facts of one server: which settings Tocsin's promises rest on, and what to change if they are not met. It gives
// one check of each kind, in a fixed order.
func settings(f store.Facts, use serverUse) []Check {
	return []Check{
		version(f),
		readOnly(f),
		proxied(f),
		durable(f),
		openTables(f, use.Tables),
		atLeast("table_definition_cache", f.TableDefCache, use.Tables+spareDefinitions, use.Tables),
		atLeast("innodb_open_files", f.InnoDBOpenFiles, use.Tables, use.Tables),
		files(f, use.Tables),
		connections(f, use),
		packet(f),
		clock(f),
	}
}

func readOnly(f store.Facts) Check {
	const name = "read-only"
	switch {
	case f.ReadOnly != "":
	case f.Unlogged:
		return bad(Fail, name, "binlog_format is STATEMENT: the server refuses each write of a transaction at READ COMMITTED", inMyCnf("binlog_format = ROW"))
	case f.ReadTransactions:
		return bad(Warn, name, "takes writes, but its default transaction_read_only is on: Tocsin's own connections turn it off, the transactions of programs that call AddTx fail",
			"turn transaction_read_only (in MariaDB tx_read_only) off, while the server runs and in my.cnf")
	default:
		return good(name, "takes writes")
	}
	setting, _, _ := strings.Cut(f.ReadOnly, " ")
	role, known := readOnlyRoles[setting]
	if !known {
		role = readOnlyRole{"it takes no writes for now", "turn that off, or point this server's dsn at the primary"}
	}
	return bad(Fail, name, f.ReadOnly+": "+role.is, role.fix)
}

// readOnlyRole is what a server is that takes no writes, and what to do.
type readOnlyRole struct{ is, fix string }

// readOnlyRoles are the roles by the setting that tells.
var readOnlyRoles = map[string]readOnlyRole{
	"read_only":             {"it is a replica, or was demoted", "point this server's dsn at the primary; if there is none but this one, turn read_only off there"},
	"innodb_read_only":      {"it is a reader, of a cluster like Aurora's, or was started to be read only", "point this server's dsn at the primary, the writer"},
	"innodb_force_recovery": {"InnoDB was started to recover data", "restart the server without innodb_force_recovery once its data are saved, or point this server's dsn at the primary"},
	"offline_mode":          {"it admits administrators only", "turn offline_mode off there when its maintenance is over"},
}

func proxied(f store.Facts) Check {
	const name = "proxy"
	if f.Proxy != "" {
		return bad(Warn, name, f.Proxy, "point this server's dsn at the MySQL server itself, or make the proxy keep one server connection for each of ours")
	}
	return good(name, "none seen")
}

// durable fails on what may lose a committed task when the host loses power, or when a replica takes over.
func durable(f store.Facts) Check {
	const name = "durability"
	var is, fix []string
	if f.FlushLogAtCommit != 1 && f.FlushLogAtCommit != -1 {
		is = append(is, fmt.Sprintf("innodb_flush_log_at_trx_commit is %d", f.FlushLogAtCommit))
		fix = append(fix, "innodb_flush_log_at_trx_commit = 1")
	}
	if f.LogBin && f.SyncBinlog != 1 && f.SyncBinlog != -1 {
		is = append(is, fmt.Sprintf("sync_binlog is %d", f.SyncBinlog))
		fix = append(fix, "sync_binlog = 1")
	}
	if len(is) > 0 {
		return bad(Fail, name, strings.Join(is, " and ")+": a crash of the host may lose committed tasks", inMyCnf(fix...))
	}
	if !f.LogBin {
		return good(name, "every commit reaches the disk; no binary log")
	}
	return good(name, "every commit reaches the disk and the binary log")
}

// openTables wants each table open twice: one connection peeks while another settles. MySQL divides the cache into instances, and a
// connection has one of them for all tables that it reads: a peek over more tables than that instance holds opens each of them anew.
func openTables(f store.Facts, tables int) Check {
	const name = "table_open_cache"
	want, instances := 2*tables, 1
	if !isMariaDB(f) && f.OpenInstances > 1 {
		instances = f.OpenInstances
	}
	if f.TableOpenCache == -1 || f.TableOpenCache >= max(want, instances*tables) {
		return good(name, "%s for %d task tables", number(f.TableOpenCache), tables)
	}
	is, cache := fmt.Sprintf("table_open_cache is %d for %d task tables", f.TableOpenCache, tables), max(round(want), f.TableOpenCache)
	fix := []string{fmt.Sprintf("table_open_cache = %d", cache)}
	if instances > 1 {
		is = fmt.Sprintf("table_open_cache is %d in %d instances, so a connection has room for %d of %d task tables", f.TableOpenCache, instances, f.TableOpenCache/instances, tables)
		fix = append(fix, "table_open_cache_instances = 1")
	}
	if need := 2*cache + max(f.MaxConnections, 0) + spareFiles; f.OpenFilesLimit > 0 && f.OpenFilesLimit < need { // or the server lowers the cache when it starts
		fix = append(fix, fmt.Sprintf("open_files_limit = %d", round(need)))
	}
	return bad(Warn, name, is, inMyCnf(fix...))
}

func atLeast(setting string, is, want, tables int) Check {
	if is != -1 && is < want {
		return bad(Warn, setting, fmt.Sprintf("%s is %d for %d task tables", setting, is, tables), inMyCnf(fmt.Sprintf("%s = %d", setting, round(want))))
	}
	return good(setting, "%s for %d task tables", number(is), tables)
}

// files wants a file for each table and each connection: InnoDB opens a table's file once, however many use it.
func files(f store.Facts, tables int) Check {
	const name = "open_files_limit"
	want := tables + max(f.MaxConnections, 0) + spareFiles
	if f.OpenFilesLimit > 0 && f.OpenFilesLimit < want {
		is := fmt.Sprintf("open_files_limit is %d for %d task tables and %d connections", f.OpenFilesLimit, tables, f.MaxConnections)
		fix := fmt.Sprintf("open_files_limit = %d", round(want))
		return bad(Warn, name, is, inMyCnf(fix)+fmt.Sprintf(", and LimitNOFILE=%d in its systemd unit", round(want)))
	}
	return good(name, "%s", number(f.OpenFilesLimit))
}

// connections wants room for every node and a sweeper. The services that add tasks come on top: nobody here knows them.
func connections(f store.Facts, use serverUse) Check {
	const name = "max_connections"
	nodes := max(use.Nodes, leastNodes)
	level, want := OK, (nodes+others)*use.Conns
	switch {
	case f.MaxConnections == -1:
	case f.MaxConnections < use.Conns:
		level = Fail
	case f.MaxConnections < want:
		level = Warn
	}
	if level == OK {
		return good(name, "%s; %d nodes and a sweeper open %d at most", number(f.MaxConnections), nodes, want)
	}
	is := fmt.Sprintf("max_connections is %d, and %d nodes and a sweeper may open %d, %d each", f.MaxConnections, nodes, want, use.Conns)
	return bad(level, name, is, inMyCnf(fmt.Sprintf("max_connections = %d", round(want)))+", or lower max_conns in the config")
}

func packet(f store.Facts) Check {
	const name = "max_allowed_packet"
	level := OK
	switch {
	case f.MaxAllowedPacket == -1:
	case f.MaxAllowedPacket < leastPacket:
		level = Fail
	case f.MaxAllowedPacket < goodPacket:
		level = Warn
	}
	if level == OK {
		return good(name, "%s bytes", number(f.MaxAllowedPacket))
	}
	return bad(level, name, fmt.Sprintf("max_allowed_packet is %d bytes", f.MaxAllowedPacket), inMyCnf("max_allowed_packet = 16M"))
}

// clock only warns: tasks are due by the server's clock, whatever this machine's says.
func clock(f store.Facts) Check {
	const name = "clock"
	ahead := f.Clock.Ahead
	if off := ahead.Abs() - f.Clock.RoundTrip/2; off > clockLimit {
		word := "ahead of"
		if ahead < 0 {
			word = "behind"
		}
		is := fmt.Sprintf("%s %s this machine's", ahead.Abs().Round(time.Millisecond), word)
		return bad(Warn, name, is, "run an NTP client (chrony) on both; tasks are due by the server's clock")
	}
	return good(name, "%s from this machine's", ahead.Abs().Round(time.Millisecond))
}

func inMyCnf(settings ...string) string {
	return "set " + strings.Join(settings, " and ") + " in my.cnf"
}

// round gives the next multiple of a thousand: a figure that people write.
func round(n int) int { return (n + 999) / 1000 * 1000 }

// number writes a setting that may be unknown.
func number(n int) string {
	if n == -1 {
		return "unknown"
	}
	return fmt.Sprint(n)
}

// release is a version of a server program, its first two numbers.
type release struct{ major, minor int }

// The oldest releases that Tocsin's statements run on.
var (
	oldestMySQL   = release{8, 0}
	oldestMariaDB = release{10, 6}
)

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) before(other release) bool {
	return r.major < other.major || r.major == other.major && r.minor < other.minor
}

// version checks that the server is new enough.
func version(f store.Facts) Check {
	const name = "version"
	program, oldest := "MySQL", oldestMySQL
	if isMariaDB(f) {
		program, oldest = "MariaDB", oldestMariaDB
	}
	is := program + " " + f.Version
	r, ok := parseRelease(f.Version)
	other := otherServers.FindString(f.Version + " " + f.VersionComment)
	switch {
	case other != "":
		return bad(Warn, name, fmt.Sprintf("unknown: %s, version %q, is neither MySQL nor MariaDB", other, f.Version),
			"use MySQL or MariaDB: what Tocsin relies on was not tried on this server, and the checks of rights below try one statement of each kind only")
	case !ok:
		return bad(Warn, name, fmt.Sprintf("version %q is not one of MySQL or MariaDB", f.Version), "run the tests of Tocsin against this server first")
	case r.before(oldest):
		return bad(Fail, name, is, fmt.Sprintf("upgrade to %s %s or newer", program, oldest))
	}
	return good(name, "%s", is)
}

// otherServers speak the protocol of MySQL, and give themselves a version of MySQL. They name themselves behind it, or in their comment.
var otherServers = regexp.MustCompile(`(?i)tidb|oceanbase|vitess|planetscale|polardb-x|dolt|singlestore|memsql|starrocks|doris|clickhouse|cockroach`)

// isMariaDB goes by either text: packagers change one of them.
func isMariaDB(f store.Facts) bool {
	return strings.Contains(strings.ToLower(f.Version+" "+f.VersionComment), "mariadb")
}

// versionForm leaves out the "5.5.5-" that MariaDB once put before its version for the sake of old replicas.
var versionForm = regexp.MustCompile(`^(?:5\.5\.5-)?(\d{1,4})\.(\d{1,4})`)

func parseRelease(version string) (release, bool) {
	m := versionForm.FindStringSubmatch(version)
	if m == nil {
		return release{}, false
	}
	major, _ := strconv.Atoi(m[1]) // digits, by the form
	minor, _ := strconv.Atoi(m[2])
	return release{major, minor}, true
}

// same warns of names that lead to one server: it then gets the connections and the load of several. A server without
// facts has the zero Facts.
func same(uses []serverUse, facts []store.Facts) []Check {
	first := map[string]string{}
	var checks []Check
	for i, f := range facts {
		if _, err := strconv.Atoi(f.ServerID); f.ServerID == "" || err == nil {
			continue // a server_id is no generated id: it is a number that two servers may well share
		}
		if other, seen := first[f.ServerID]; seen {
			c := bad(Warn, "identity", "is the same server as "+other, "list its databases under one name in the config")
			checks = append(checks, of("server "+uses[i].Name, c)...)
			continue
		}
		first[f.ServerID] = uses[i].Name
	}
	return checks
}

// addresses judges what was seen at the addresses of a server; nothing if it has only one.
func addresses(seen []mysql.Sighting) []Check {
	const name = "addresses"
	if len(seen) == 0 {
		return nil
	}
	var all, split, silent []string
	used := "none"
	for _, s := range seen {
		all = append(all, s.Address+" "+s.Why)
		switch {
		case s.Used:
			used = s.Address
		case s.Split:
			split = append(split, s.Address)
		case s.Silent:
			silent = append(silent, s.Address)
		}
	}
	is := strings.Join(all, "; ")
	switch {
	case len(split) > 0:
		return []Check{bad(Fail, name, "several take writes, "+used+" is used: "+is, "turn read_only on at "+strings.Join(split, " and ")+", and see which of the servers has writes that the other lacks")}
	case len(silent) > 0:
		return []Check{bad(Warn, name, is, "start "+strings.Join(silent, " and ")+" as a replica: until then there is nothing to fail over to, or one less")}
	}
	return []Check{good(name, "%s", is)}
}
