package dashboards

// cluster shows the nodes and what they own.
func cluster() board {
	return board{
		name: "cluster", title: "Cluster",
		means: "The nodes: in which mode they are, which tables they own and how tables move, their queues and memory, the message brokers that they deliver to, and etcd.",
		rows: []row{
			{"Nodes", clusterNodes()},
			{"Who owns the tables", clusterOwners()},
			{"Leases and etcd", clusterEtcd()},
			{"Queues and memory of each node", clusterMemory()},
			{"Outcomes and second deliveries", clusterOutcomes()},
			{"Message brokers", clusterBrokers()},
			{"Policies and processes", clusterProcesses()},
		},
	}
}

func clusterNodes() []panel {
	return []panel{{
		title: "Nodes, by mode", look: stacked, unit: count, runbook: "TocsinNodeOutOfOrder",
		means:   "ownership: owns tables by a lease in etcd. rows: works without etcd. claim: has no proven lease and claims each row. sweep: etcd has been away since its start, and it claims what is overdue. waiting: delivers nothing.",
		queries: []query{{`sum by (mode) (tocsin_node_mode)`, "{{mode}}"}},
	}, {
		title: "Versions", look: stacked, unit: count,
		means:   "Nodes by the version of the program and the schema that it writes. Several are normal during a rolling deploy only.",
		queries: []query{{`count by (version, schema, goversion) (tocsin_build_info)`, "{{version}}, schema {{schema}}, {{goversion}}"}},
	}, {
		title: "Live nodes, as each node sees them", unit: count,
		means: "By etcd's keys or, without etcd, by the session tables. Nodes that disagree for long don't reach etcd or a database.",
		queries: []query{
			{`tocsin_assign_peers`, "{{instance}}"},
			{`tocsin_presence_nodes`, "{{instance}}, by the session tables"},
		},
	}, {
		title: "Biz types of groups without nodes", unit: count, limits: limits{1, 1}, runbook: "TocsinGroupWithoutNodes",
		means:   "Biz types that are not paused and whose group has no live node: nobody but the sweeper delivers them.",
		queries: []query{{`sum(max by (cluster, group) (tocsin_node_group_biz_types{own="false"}) unless on (cluster, group) group by (cluster, group) (tocsin_node_group_biz_types{own="true"})) or vector(0)`, "biz types"}},
	}, {
		title: "Nodes of another cluster", unit: count, limits: limits{1, 1}, runbook: "TocsinForeignNodes",
		means:   "Live nodes whose databases belong to another cluster with the same id. They are refused: give one cluster another id.",
		queries: []query{{`max(tocsin_assign_foreign_nodes)`, "nodes"}},
	}}
}

func clusterOwners() []panel {
	return []panel{{
		title: "Tables owned", look: stacked, unit: count, runbook: "TocsinTablesUnowned",
		means: "Tables that each node owns or, without etcd, looks at first. The sum is the number of tables.",
		queries: []query{
			{`tocsin_assign_tables_owned`, "{{instance}}"},
			{`tocsin_presence_tables_first`, "{{instance}}, looks first"},
		},
	}, {
		title: "Tables that are not where they should be", unit: count, limits: limits{1, 100}, runbook: "TocsinTablesUnowned",
		means: "Without an owner: only the sweeper delivers their tasks. Wanted: tables that a node should own by its last plan, and does not. Both are 0 unless tables move.",
		queries: []query{
			{`max(tocsin_assign_tables_unowned)`, "without an owner"},
			{`clamp_min(tocsin_assign_tables_wanted - tocsin_assign_tables_owned, 0)`, "{{instance}}, wanted"},
		},
	}, {
		title: "Tables taken and given up in 5 minutes", unit: count, runbook: "TocsinLeaseFlapping",
		means: "Tables move when nodes come, go, or lose a server. Failed: the node could not start on a table, and gave it back.",
		queries: []query{
			{`sum by (instance) (increase(tocsin_assign_tables_taken_total[5m]))`, "{{instance}}, taken"},
			{`sum by (instance) (increase(tocsin_assign_tables_given_up_total[5m]))`, "{{instance}}, given up"},
			{`sum by (instance) (increase(tocsin_assign_take_failures_total[5m]))`, "{{instance}}, failed"},
		},
	}, {
		title: "Rebalances and plans in 5 minutes", unit: count,
		means: "Rebalances: times that tables of a node moved. Plans: times that a node worked out who should own what.",
		queries: []query{
			{`sum by (instance) (increase(tocsin_assign_rebalances_total[5m]))`, "{{instance}}, rebalances"},
			{`sum by (instance) (increase(tocsin_assign_plans_total[5m]))`, "{{instance}}, plans"},
		},
	}, {
		title: "Standing in for other nodes", unit: count,
		means:   "Tables of other nodes in which a node delivers biz types that their owners lack.",
		queries: []query{{`sum by (instance) (tocsin_standin_tables)`, "{{instance}}"}},
	}, {
		title: "Sessions that could not be renewed or read, in 5 minutes", unit: count, limits: limits{1, 10},
		means: "Without etcd only: a node that cannot renew its sessions starts nothing after 3 s there, and after 1.5 s the others look at its tables.",
		queries: []query{
			{`sum by (server) (increase(tocsin_session_failures_total[5m]))`, "{{server}}"},
			{`sum(increase(tocsin_session_lost_total[5m]))`, "ended by others"},
			{`sum(increase(tocsin_session_ended_total[5m]))`, "of others, ended"},
			{`min(tocsin_session_trusted_databases)`, "fewest databases in which a node is trusted"},
		},
	}}
}

func clusterEtcd() []panel {
	return []panel{{
		title: "Lease left", unit: seconds, limits: limits{5, 3}, runbook: "TocsinLeaseFlapping",
		means:   "For how long each node may still rely on its lease. It is renewed each second; at 0 the node claims each row.",
		queries: []query{{`tocsin_assign_lease_seconds`, "{{instance}}"}},
	}, {
		title: "Lease renewals", unit: perSec, runbook: "TocsinLeaseFlapping",
		means: "Renewals of the nodes' leases each second: those that worked and those that failed.",
		queries: []query{
			{`sum by (instance) (rate(tocsin_assign_lease_renewals_total[$__rate_interval]))`, "{{instance}}"},
			{`sum by (instance) (rate(tocsin_assign_lease_renewal_failures_total[$__rate_interval]))`, "{{instance}}, failed"},
		},
	}, {
		title: "Leases lost in 30 minutes", unit: count, limits: limits{1, 3}, runbook: "TocsinLeaseFlapping",
		means:   "Leases that ended while the node wanted to own tables: etcd was away, the node was frozen or cut off.",
		queries: []query{{`sum by (instance) (increase(tocsin_assign_leases_lost_total[30m]))`, "{{instance}}"}},
	}, {
		title: "etcd has a leader", look: states, unit: count, states: []state{{"no leader", red}, {"leader", green}},
		means:   "As each member of etcd sees it, from etcd's own metrics; empty if they are not collected.",
		queries: []query{{`etcd_server_has_leader`, "{{instance}}"}},
	}, {
		title: "How long etcd's disk takes", unit: seconds, limits: limits{.1, .5},
		means: "99 of 100 writes of etcd's log and commits of its store stay below. Leases need both: above a second they may run out.",
		queries: []query{
			{`histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket[5m])))`, "{{instance}}, log"},
			{`histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_backend_commit_duration_seconds_bucket[5m])))`, "{{instance}}, store"},
		},
	}, {
		title: "Size of etcd's store", unit: bytesUsed,
		means: "In use, and the size of the file. Tocsin needs a few megabytes; at its quota etcd refuses all writes.",
		queries: []query{
			{`etcd_mvcc_db_total_size_in_use_in_bytes`, "{{instance}}, in use"},
			{`etcd_mvcc_db_total_size_in_bytes`, "{{instance}}, file"},
		},
	}}
}

func clusterMemory() []panel {
	return []panel{{
		title: "Queue in use", unit: share, limits: limits{.8, 1}, runbook: "TocsinQueueFull",
		means:   "Ids in the due queues, as a share of the ids that may be there. A full queue is safe: what it refuses stays in the database and is found again.",
		queries: []query{{`tocsin_dispatcher_queued / tocsin_dispatcher_queue_capacity`, "{{instance}}"}},
	}, {
		title: "Payloads in memory", unit: share, limits: limits{.8, 1}, runbook: "TocsinQueueFull",
		means:   "Bytes of payloads that are read, wait or are in delivery, as a share of the limit. At 100 % less is delivered at once.",
		queries: []query{{`tocsin_dispatcher_payload_bytes / tocsin_dispatcher_payload_bytes_limit`, "{{instance}}"}},
	}, {
		title: "Rows in hand", unit: count, runbook: "TocsinOverrun",
		means: "Loading or ready to start; in delivery or waiting to be settled; over their time-out, with a handler that has not returned.",
		queries: []query{
			{`tocsin_dispatcher_rows_loaded`, "{{instance}}, loaded"},
			{`tocsin_dispatcher_open`, "{{instance}}, in delivery"},
			{`tocsin_dispatcher_overrun`, "{{instance}}, overrun"},
		},
	}, {
		title: "Rows loaded, claimed and dropped", unit: perSec,
		means: "Loaded: still pending, to be delivered. Claimed: before the delivery. Given back: not started. Dropped: cancelled, rescheduled, claimed or settled by another before the load.",
		queries: []query{
			{`sum(rate(tocsin_dispatcher_loaded_total[$__rate_interval]))`, "loaded"},
			{`sum(rate(tocsin_dispatcher_claimed_total[$__rate_interval]))`, "claimed"},
			{`sum(rate(tocsin_dispatcher_given_back_total[$__rate_interval]))`, "given back"},
			{`sum by (cause) (rate(tocsin_dispatcher_dropped_total[$__rate_interval]))`, "dropped: {{cause}}"},
		},
	}}
}

func clusterOutcomes() []panel {
	return []panel{{
		title: "Outcomes that wait to be stored", unit: count, runbook: "TocsinOutcomesWait",
		means: "Waiting for their batch; aside: refused by the database, and tried again one by one.",
		queries: []query{
			{`tocsin_dispatcher_unsettled`, "{{instance}}"},
			{`tocsin_dispatcher_aside`, "{{instance}}, aside"},
		},
	}, {
		title: "Age of the oldest outcome that is not stored", unit: seconds, limits: limits{10, 60}, runbook: "TocsinOutcomesWait",
		means:   "How long the oldest outcome has waited. If it grows, a server does not take writes. If the node dies, these tasks are delivered again.",
		queries: []query{{`tocsin_dispatcher_unsettled_age_seconds`, "{{instance}}"}},
	}, {
		title: "Second deliveries in 5 minutes", look: stacked, unit: count, runbook: "TocsinSecondDeliveries",
		means:   "cut_off: by the end of a node. overlapped: beside a delivery that ignores its time-out. elsewhere: another process had the task. crashed: the claim of a process that died ran out. resent: a kept connection broke under a callback.",
		queries: []query{{`sum by (cause) (increase(tocsin_dispatcher_second_deliveries_total[5m]))`, "{{cause}}"}},
	}, {
		title: "Handlers that ignore their time-out, in 5 minutes", unit: count, limits: limits{1, 100}, runbook: "TocsinOverrun",
		means: "Waited: attempts put off since an earlier delivery of the task had not returned. Overlapped: started beside it. Refused: outcomes that the database did not take.",
		queries: []query{
			{`sum by (instance) (increase(tocsin_dispatcher_waited_total[5m]))`, "{{instance}}, waited"},
			{`sum by (instance) (increase(tocsin_dispatcher_overlapped_total[5m]))`, "{{instance}}, overlapped"},
			{`sum by (instance) (increase(tocsin_dispatcher_set_aside_total[5m]))`, "{{instance}}, refused"},
		},
	}, {
		title: "Alarms that wait", unit: count, runbook: "TocsinAlarmFails",
		means: "Alarms about dead tasks or missed runs that a node has to raise: one waits for a few seconds, or until the next one may come. Failed: tries to raise one, in 15 minutes.",
		queries: []query{
			{`tocsin_alarms_waiting`, "{{instance}}"},
			{`sum by (instance) (increase(tocsin_alarms_failures_total[15m]))`, "{{instance}}, failed"},
		},
	}, {
		title: "Runs of the history", unit: perSec,
		means: "Recorded; dropped, since too many waited or the process ended; failed, since their database did not take them. Deliveries are not affected.",
		queries: []query{
			{`sum(rate(tocsin_history_recorded_total[$__rate_interval]))`, "recorded"},
			{`sum(rate(tocsin_history_dropped_total[$__rate_interval]))`, "dropped"},
			{`sum(rate(tocsin_history_failed_total[$__rate_interval]))`, "failed"},
		},
	}, {
		title: "Runs that wait to be recorded", unit: share, limits: limits{.5, 1},
		means:   "As a share of the room for them. While it is full, runs are dropped.",
		queries: []query{{`tocsin_history_queue_bytes / tocsin_history_queue_capacity_bytes`, "{{instance}}"}},
	}}
}

func clusterBrokers() []panel {
	return []panel{{
		title: "Records, by sink and result", look: stacked, unit: perSec, runbook: "TocsinTargetAway",
		means:   "stored: the broker has it. unavailable: the task waits, without an attempt. refused: the broker will never take it, and the task is dead. unfit: the same, found without asking the broker. failed: tried again.",
		queries: []query{{`sum by (sink, result) (rate(tocsin_sink_records_total[$__rate_interval]))`, "{{sink}}: {{result}}"}},
	}, {
		title: "Time to the broker's answer", unit: seconds, limits: limits{1, 10}, runbook: "TocsinLaneFull",
		means: "From the sending of a delivery's records until the broker had stored them: the mean of each sink, and what 99 of 100 deliveries stay below, read from buckets that end at 0.01, 0.1, 1 and 10 s.",
		queries: []query{
			{`sum by (sink) (rate(tocsin_sink_ack_seconds_sum[$__rate_interval])) / sum by (sink) (rate(tocsin_sink_ack_seconds_count[$__rate_interval]))`, "{{sink}}, mean"},
			{`histogram_quantile(0.99, sum by (sink, le) (rate(tocsin_sink_ack_seconds_bucket[$__rate_interval])))`, "{{sink}}, 99 % below"},
		},
	}, {
		title: "Since the last record was stored", unit: seconds, runbook: "TocsinTargetAway",
		means:   "On any node. It grows while a broker is away, and while nothing is due for it: the records that are unavailable tell which.",
		queries: []query{{`time() - max by (sink) (tocsin_sink_last_stored_timestamp_seconds)`, "{{sink}}"}},
	}, {
		title: "Tasks that fallbacks have taken", look: stacked, unit: perSec, runbook: "TocsinFallbackDelivers",
		means:   "By biz type, while its first link is away. The dashboard Biz type has since when.",
		queries: []query{{`sum by (biz_type) (rate(tocsin_fallback_tasks_total[$__rate_interval]))`, "{{biz_type}}"}},
	}}
}

func clusterProcesses() []panel {
	return []panel{{
		title: "Revision of the policies", unit: count,
		means:   "The highest revision of a biz type that each node knows. A node that stays behind does not read a database: see the failures beside.",
		queries: []query{{`tocsin_biztype_revision`, "{{instance}}"}},
	}, {
		title: "Looks at the policies in 5 minutes", unit: count,
		means: "Questions whether a policy changed, those that failed, and changes.",
		queries: []query{
			{`sum by (instance) (increase(tocsin_biztype_polls_total[5m]))`, "{{instance}}, looks"},
			{`sum by (instance) (increase(tocsin_biztype_poll_failures_total[5m]))`, "{{instance}}, failed"},
			{`sum by (instance) (increase(tocsin_biztype_changes_total[5m]))`, "{{instance}}, changes"},
		},
	}, {
		title: "CPU", unit: count,
		means:   "Cores that each node's process uses.",
		queries: []query{{`rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) tocsin_build_info`, "{{instance}}"}},
	}, {
		title: "Memory", unit: bytesUsed,
		means:   "Resident memory of each node's process.",
		queries: []query{{`process_resident_memory_bytes and on (instance) tocsin_build_info`, "{{instance}}"}},
	}}
}
