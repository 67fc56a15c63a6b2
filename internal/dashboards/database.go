package dashboards

// database shows servers and databases as the nodes see them.
func database() board {
	return board{
		name: "database", title: "Database",
		means: "The MySQL servers and Tocsin's databases, as the nodes see them: who answers, how fast, with which errors, and how tasks are found.",
		vars:  []variable{{"server", "server", "tocsin_node_server_up"}},
		rows: []row{
			{"Does it answer?", databaseUp()},
			{"Statements", databaseStatements()},
			{"Connections", databaseConnections()},
			{"Finding tasks", databaseScans()},
			{"How exact the backlog figures are", databaseBacklog()},
		},
	}
}

func databaseUp() []panel {
	return []panel{{
		title: "Server answers", look: states, unit: count, states: []state{{"a node can't reach it", red}, {"answers", green}}, runbook: "TocsinServerDown",
		means:   "Whether each server answered all nodes when they last looked. While it is away, its tasks wait; those of other servers go on.",
		queries: []query{{`min by (server) (tocsin_node_server_up{server=~"$server"})`, "{{server}}"}},
	}, {
		title: "Database can be used", look: states, unit: count, states: []state{{"not by all nodes", red}, {"usable", green}}, runbook: "TocsinDatabaseUnusable",
		means:   "Not usable: its server does not answer, or its layout row is not as the config says. /status of a node tells why.",
		queries: []query{{`min by (database) (tocsin_node_database_usable)`, "{{database}}"}},
	}, {
		title: "Longest wait for an answer", unit: seconds, limits: limits{2, 10}, runbook: "TocsinServerHangs",
		means:   "How long the oldest statement sent to the server has been without an answer. Above 2 s the server hangs.",
		queries: []query{{`max by (server) (tocsin_node_server_waiting_seconds{server=~"$server"})`, "{{server}}"}},
	}, {
		title: "Clock of the server minus that of the node", unit: seconds, signed: true, runbook: "TocsinClockOffset",
		means:   "Tasks are due by the server's clock, so a difference delays nothing. A clock that jumps does: tasks are early or late by other clocks.",
		queries: []query{{`avg by (server) (tocsin_node_clock_offset_seconds{server=~"$server"})`, "{{server}}"}},
	}, {
		title: "Writes refused for lack of room", unit: perSec, limits: limits{.001, .01}, runbook: "TocsinDiskFull",
		means: "Statements each second that the server refused because its disk is full. Its tasks wait until there is room.",
		queries: []query{{`sum by (server) (rate(tocsin_store_server_errors_total{server=~"$server", class="full"}[$__rate_interval]))
  or 0 * min by (server) (tocsin_node_server_up{server=~"$server"})`, "{{server}}"}},
	}, {
		title: "Disk left", unit: share, signed: true, limits: limits{.4, .05}, runbook: "TocsinDiskFillsUp",
		means: "Of the MySQL hosts: now, and in a day at the pace of the last 6 hours. Below 0 the disk is full by then. Empty without node_exporter on these hosts, with the label mysql_server.",
		queries: []query{
			{`node_filesystem_avail_bytes{mysql_server!=""} / node_filesystem_size_bytes`, "{{mysql_server}} {{mountpoint}}"},
			{`predict_linear(node_filesystem_avail_bytes{mysql_server!=""}[6h], 24 * 3600) / node_filesystem_size_bytes`, "{{mysql_server}} {{mountpoint}}, in a day"},
		},
	}, {
		title: "Addresses of a server", look: states, unit: count, states: []state{{"read-only or away", blue}, {"takes writes or is in use", yellow}, {"takes writes and is in use", green}}, runbook: "TocsinTwoPrimaries",
		means: "Only of servers with several addresses: a primary and its replicas. One of them takes writes and is in use.",
		queries: []query{{`min by (server, address) (tocsin_node_server_address_writable{server=~"$server"})
  + min by (server, address) (tocsin_node_server_address_used{server=~"$server"})`, "{{server}} {{address}}"}},
	}, {
		title: "Fail-overs in an hour", unit: count, limits: limits{1, 3}, runbook: "TocsinFailedOver",
		means:   "Times that a node moved to another address of the server.",
		queries: []query{{`max by (server) (increase(tocsin_node_server_failovers_total{server=~"$server"}[1h]))`, "{{server}}"}},
	}, {
		title: "Certificates expire in", unit: seconds, limits: limits{1209600, 259200}, runbook: "TocsinCertificateExpires",
		means:   "Until the first certificate expires that connections to a server or to etcd use. Empty without TLS.",
		queries: []query{{`min by (of) (tocsin_node_certificate_expires_timestamp_seconds > 0) - time()`, "{{of}}"}},
	}}
}

func databaseStatements() []panel {
	return []panel{{
		title: "Time to the first answer", unit: seconds, limits: limits{.1, 1}, runbook: "TocsinServerHangs",
		means: "From sending a statement, or several in one packet, to the server's first answer: the mean, and what 99 of 100 stay below, read from buckets that end at 10 and 100 ms. At 100 ms it may be more.",
		queries: []query{
			{`sum by (server) (rate(tocsin_store_server_seconds_sum{server=~"$server"}[$__rate_interval]))
  / sum by (server) (rate(tocsin_store_server_seconds_count{server=~"$server"}[$__rate_interval]))`, "{{server}}, mean"},
			{`histogram_quantile(0.99, sum by (server, le) (rate(tocsin_store_server_seconds_bucket{server=~"$server"}[$__rate_interval])))`, "{{server}}, 99 % below"},
		},
	}, {
		title: "Errors, by server and class", look: stacked, unit: perSec, limits: limits{.1, 1}, runbook: "TocsinServerRefuses",
		means:   "Statements to the server that failed each second. Statements that no connection was made for are not counted.",
		queries: []query{{`sum by (server, class) (rate(tocsin_store_server_errors_total{server=~"$server"}[$__rate_interval]))`, "{{server}}: {{class}}"}},
	}, {
		title: "Slow statements, by server", look: stacked, unit: perSec, limits: limits{1, 10}, runbook: "TocsinServerHangs",
		means:   "Statements, or packets of several, whose first answer took the server 100 ms or more.",
		queries: []query{{`sum by (server, statement) (rate(tocsin_store_slow_total{server=~"$server"}[$__rate_interval]))`, "{{server}}: {{statement}}"}},
	}, {
		title: "Mean time of slow statements, by server", unit: seconds, limits: limits{1, 10}, runbook: "TocsinServerHangs",
		means: "Of the statements whose first answer took the server 100 ms or more.",
		queries: []query{{`sum by (server, statement) (rate(tocsin_store_slow_seconds_total{server=~"$server"}[$__rate_interval]))
  / sum by (server, statement) (rate(tocsin_store_slow_total{server=~"$server"}[$__rate_interval]))`, "{{server}}: {{statement}}"}},
	}, {
		title: "Round trips, by statement", look: stacked, unit: perSec,
		means:   "Statements, or packets of several, that all nodes send each second to all servers.",
		queries: []query{{`sum by (statement) (rate(tocsin_store_round_trip_seconds_count[$__rate_interval]))`, "{{statement}}"}},
	}, {
		title: "Mean time of a round trip, by statement", unit: seconds, limits: limits{.1, 1},
		means: "From sending the statement to its last row, over all servers.",
		queries: []query{{`sum by (statement) (rate(tocsin_store_round_trip_seconds_sum[$__rate_interval]))
  / sum by (statement) (rate(tocsin_store_round_trip_seconds_count[$__rate_interval]))`, "{{statement}}"}},
	}, {
		title: "Rows, by statement", look: stacked, unit: perSec,
		means:   "Rows read or changed each second, over all servers.",
		queries: []query{{`sum by (statement) (rate(tocsin_store_rows_total[$__rate_interval]))`, "{{statement}}"}},
	}, {
		title: "Errors, by statement and class", look: stacked, unit: perSec,
		means: "Round trips that failed each second and, of the dispatcher, the work that failed with them.",
		queries: []query{
			{`sum by (statement, class) (rate(tocsin_store_errors_total[$__rate_interval]))`, "{{statement}}: {{class}}"},
			{`sum by (statement, class) (rate(tocsin_dispatcher_errors_total[$__rate_interval]))`, "dispatcher, {{statement}}: {{class}}"},
		},
	}}
}

func databaseConnections() []panel {
	return []panel{{
		title: "Connections of all nodes", look: stacked, unit: count,
		means:   "Open connections, in use and idle. Their sum stays below max_connections of the server.",
		queries: []query{{`sum by (server, state) (tocsin_store_connections{server=~"$server"})`, "{{server}}, {{state}}"}},
	}, {
		title: "Pool in use", unit: share, limits: limits{.8, 1}, runbook: "TocsinConnectionsFull",
		means: "Connections in use as a share of the limit, on the node that uses most. At 100 % statements wait: raise max_conns, or look for a slow server.",
		queries: []query{{`max by (server) (tocsin_store_connections{server=~"$server", state="in_use"}
  / ignoring (state) tocsin_store_connections_limit{server=~"$server"})`, "{{server}}"}},
	}, {
		title: "Statements that waited for a connection", unit: perSec,
		means:   "Statements each second that found all connections in use.",
		queries: []query{{`sum by (server) (rate(tocsin_store_connection_waits_total{server=~"$server"}[$__rate_interval]))`, "{{server}}"}},
	}, {
		title: "Time spent waiting for a connection", unit: seconds, limits: limits{1, 10}, runbook: "TocsinConnectionsFull",
		means:   "Seconds that statements of all nodes waited in each second: 1 means that one statement waits at any time.",
		queries: []query{{`sum by (server) (rate(tocsin_store_connection_wait_seconds_total{server=~"$server"}[$__rate_interval]))`, "{{server}}"}},
	}}
}

func databaseScans() []panel {
	return []panel{{
		title: "How late scans are", unit: seconds, limits: limits{5, 30}, runbook: "TocsinScansLate",
		means:   "How late the last regular look into a group of tables was. A task without a doorbell may be as late.",
		queries: []query{{`max by (server) (tocsin_scanner_lag_seconds{server=~"$server"})`, "{{server}}"}},
	}, {
		title: "Since the doorbells were read", unit: seconds, limits: limits{1, 10}, runbook: "TocsinScansLate",
		means:   "Tasks that are added shortly before they are due are found by their doorbell; if it is not read, by the next scan.",
		queries: []query{{`max by (server) (tocsin_scanner_bell_lag_seconds{server=~"$server"})`, "{{server}}"}},
	}, {
		title: "Mean time of a scan", unit: seconds, limits: limits{.1, 1},
		means: "Of one statement that looks for due rows in up to 64 tables, failed ones included.",
		queries: []query{{`sum by (server) (rate(tocsin_scanner_peek_seconds_sum{server=~"$server"}[$__rate_interval]))
  / sum by (server) (rate(tocsin_scanner_peek_seconds_count{server=~"$server"}[$__rate_interval]))`, "{{server}}"}},
	}, {
		title: "What scans find", unit: perSec,
		means: "Entries: ids offered to the queues, again if they are known. Bells: rings of the doorbell. Refused: offers that found the queue full. Recovered: claims that ran out.",
		queries: []query{
			{`sum by (server) (rate(tocsin_scanner_entries_total{server=~"$server"}[$__rate_interval]))`, "{{server}}, entries"},
			{`sum by (server) (rate(tocsin_scanner_bells_total{server=~"$server"}[$__rate_interval]))`, "{{server}}, bells"},
			{`sum by (server) (rate(tocsin_scanner_refusals_total{server=~"$server"}[$__rate_interval]))`, "{{server}}, refused"},
			{`sum by (server) (rate(tocsin_scanner_recovered_total{server=~"$server"}[$__rate_interval]))`, "{{server}}, recovered"},
		},
	}, {
		title: "Scans that failed", look: stacked, unit: perSec, limits: limits{.1, 1}, runbook: "TocsinServerDown",
		means:   "peek and bells: of a whole server. table, row and recover: of a single one.",
		queries: []query{{`sum by (server, of) (rate(tocsin_scanner_failures_total{server=~"$server"}[$__rate_interval]))`, "{{server}}: {{of}}"}},
	}, {
		title: "Claims read back", unit: perSec,
		means: "Claims whose answer got lost and that were found to stand, and rows loaded before they were due by the server's clock.",
		queries: []query{
			{`sum(rate(tocsin_dispatcher_claims_read_back_total[$__rate_interval]))`, "claims read back"},
			{`sum(rate(tocsin_dispatcher_early_total[$__rate_interval]))`, "loaded early"},
		},
	}}
}

func databaseBacklog() []panel {
	return []panel{{
		title: "Age of the backlog figures", unit: seconds, limits: limits{1200, 3600}, runbook: "TocsinBacklogNotMeasured",
		means: "Overdue tasks are measured each minute, and pending, claimed and dead tasks counted every ten. Walks take longer with very many tasks.",
		queries: []query{
			{`max by (server) (tocsin_backlog_overdue_age_seconds{server=~"$server"})`, "{{server}}, overdue"},
			{`max by (server) (tocsin_backlog_count_age_seconds{server=~"$server"})`, "{{server}}, counts"},
		},
	}, {
		title: "Tables that were not measured in full", unit: count, limits: limits{1, 100}, runbook: "TocsinBacklogNotMeasured",
		means: "Capped: more overdue tasks than were counted, so the figures are lower bounds. Not read: the statement failed.",
		queries: []query{
			{`max by (database) (tocsin_backlog_capped_tables)`, "{{database}}, capped"},
			{`max by (database) (tocsin_backlog_unread_tables)`, "{{database}}, not read"},
		},
	}, {
		title: "Nodes that measure the backlog", look: number, unit: count, limits: limits{1, 0}, wide: 6, runbook: "TocsinBacklogNotMeasured",
		means:   "One for each group of nodes. 0: the backlog is not known.",
		queries: []query{{`sum(tocsin_backlog_leads)`, ""}},
	}}
}
