package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/store"
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

// Use is what the cluster wants of one server.
type Use struct {
	Name   string // of the server
	Tables int    // task tables that it holds
	Conns  int    // connections that one process may open
	Nodes  int    // that may be connected at the same time; fewer than 2 count as 2
}

// Server judges the facts of one server. It gives one check of each kind, in a fixed order.
func Server(f store.Facts, use Use) []Check {
	return []Check{
		version(f),
		readOnly(f),
		proxied(f),
		durable(f),
		openTables(f, use.Tables),
		definitions(f, use.Tables),
		files(f, use.Tables),
		connections(f, use),
		packet(f),
		clock(f),
	}
}

func readOnly(f store.Facts) Check {
	const name = "read-only"
	if f.ReadOnly {
		return bad(Fail, name, "read_only is on: it is a replica, or was demoted", "point this server's dsn at the primary")
	}
	return good(name, "takes writes")
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

// openTables wants each table open twice: one connection peeks while another settles.
func openTables(f store.Facts, tables int) Check {
	return atLeast("table_open_cache", f.TableOpenCache, 2*tables, tables)
}

func definitions(f store.Facts, tables int) Check {
	return atLeast("table_definition_cache", f.TableDefCache, tables+spareDefinitions, tables)
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
func connections(f store.Facts, use Use) Check {
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
