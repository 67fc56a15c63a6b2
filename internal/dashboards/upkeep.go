package dashboards

// upkeep shows sweeps, purges and audits.
func upkeep() board {
	return board{
		name: "upkeep", title: "Sweeper and upkeep",
		means: "Sweeps of overdue tasks, purges of finished ones and audits: whether they ran, and what they found. One-shot commands leave these metrics with --textfile for node_exporter, or with --push in a Pushgateway.",
		rows: []row{
			{"Did they run?", append(upkeepRuns(), upkeepCosts()...)},
			{"Sweeps", upkeepSweeps()},
			{"Purges", upkeepPurges()},
			{"Audits", upkeepAudits()},
		},
	}
}

func upkeepRuns() []panel {
	return []panel{{
		title: "Since the last whole sweep", look: number, wide: 8, unit: seconds, limits: limits{180, 600}, runbook: "TocsinSweepNotRun",
		means:   "Since a sweep has ended that left nothing behind.",
		queries: []query{{`time() - max(tocsin_sweeper_last_success_timestamp_seconds > 0)`, ""}},
	}, {
		title: "Since the last whole purge", look: number, wide: 8, unit: seconds, limits: limits{172800, 604800}, runbook: "TocsinPurgeNotRun",
		means:   "Since a purge has ended that purged all servers. It should run once a day.",
		queries: []query{{`time() - max(tocsin_purger_last_success_timestamp_seconds > 0)`, ""}},
	}, {
		title: "Since the last audit without a fault", look: number, wide: 8, unit: seconds, limits: limits{7200, 86400}, runbook: "TocsinAuditFoundFaults",
		means: "Since an audit has ended that read everything and found nothing. It should run each hour, and that of outboxes every five minutes.",
		queries: []query{
			{`time() - max(tocsin_auditor_last_success_timestamp_seconds > 0)`, "rows"},
			{`time() - max(tocsin_auditor_outbox_last_success_timestamp_seconds > 0)`, "outboxes"},
		},
	}, {
		title: "Since the last run", unit: seconds, runbook: "TocsinAuditNotRun",
		means: "Since a sweep, purge or audit has ended, however it ended. A saw: it falls to 0 with each run.",
		queries: []query{
			{`time() - max(tocsin_sweeper_last_run_timestamp_seconds > 0)`, "sweep"},
			{`time() - max(tocsin_purger_last_run_timestamp_seconds > 0)`, "purge"},
			{`time() - max(tocsin_auditor_last_run_timestamp_seconds > 0)`, "audit"},
			{`time() - max(tocsin_auditor_outbox_last_run_timestamp_seconds > 0)`, "audit of outboxes"},
		},
	}, {
		title: "What reports", look: states, unit: count, states: []state{{"nothing", red}, {"reports", green}}, runbook: "TocsinUpkeepNotReported",
		means: "Whether Prometheus has metrics of sweeps, purges and audits. Without them, the alerts about these can't fire.",
		queries: []query{
			{`count(tocsin_sweeper_last_run_timestamp_seconds) > bool 0 or on () vector(0)`, "sweep"},
			{`count(tocsin_purger_last_run_timestamp_seconds) > bool 0 or on () vector(0)`, "purge"},
			{`count(tocsin_auditor_last_run_timestamp_seconds) > bool 0 or on () vector(0)`, "audit"},
		},
	}, {
		title: "Last run did all its work", look: states, unit: count, states: []state{{"no", red}, {"yes", green}}, runbook: "TocsinSweepNotRun",
		means: "The exit code was 0. A sweep that leaves tasks, and an audit that finds a fault, did not.",
		queries: []query{
			{`min(tocsin_sweeper_last_ok and tocsin_sweeper_last_run_timestamp_seconds > 0)`, "sweep"},
			{`min(tocsin_purger_last_ok and tocsin_purger_last_run_timestamp_seconds > 0)`, "purge"},
			{`min(tocsin_auditor_last_ok and tocsin_auditor_last_run_timestamp_seconds > 0)`, "audit"},
			{`min(tocsin_auditor_outbox_last_ok and tocsin_auditor_outbox_last_run_timestamp_seconds > 0)`, "audit of outboxes"},
		},
	}}
}

// upkeepCosts is what follows upkeepRuns in its row.
func upkeepCosts() []panel {
	return []panel{{
		title: "How long the last run took", unit: seconds,
		means: "A sweep has to end before the next one begins.",
		queries: []query{
			{`max(tocsin_sweeper_last_duration_seconds)`, "sweep"},
			{`max(tocsin_purger_last_duration_seconds)`, "purge"},
			{`max(tocsin_auditor_last_duration_seconds)`, "audit"},
			{`max(tocsin_auditor_outbox_last_duration_seconds)`, "audit of outboxes"},
		},
	}, {
		title: "Servers that the last run did not do in full", unit: count, limits: limits{1, 1}, runbook: "TocsinServerDown",
		means: "Their tasks were not swept, purged or audited. The next run tries them again. Runs that may not be purged: the databases in which the purge's user has no right to the table run, which therefore grows.",
		queries: []query{
			{`max(tocsin_sweeper_last_failed_servers)`, "sweep"},
			{`max(tocsin_purger_last_failed_servers)`, "purge"},
			{`max(tocsin_purger_last_lacking_databases)`, "databases whose runs may not be purged"},
			{`max(tocsin_auditor_last_failed_servers)`, "audit"},
			{`max(tocsin_auditor_outbox_last_failed)`, "audit of outboxes"},
		},
	}}
}

func upkeepSweeps() []panel {
	return []panel{{
		title: "What the last sweep found", unit: count, runbook: "TocsinTaskOverdue",
		means: "Overdue: tasks that were due longer than the grace time; the nodes had not delivered them. Claimed: those that the sweep took. Recovered: claims that ran out, of processes that died. Buried: of those, dead after the last crash.",
		queries: []query{
			{`max(tocsin_sweeper_last_overdue)`, "overdue"},
			{`max(tocsin_sweeper_last_claimed)`, "claimed"},
			{`max(tocsin_sweeper_last_recovered)`, "recovered"},
			{`max(tocsin_sweeper_last_buried)`, "buried"},
			{`max(tocsin_sweeper_last_unread_tables)`, "tables not read to their end"},
		},
	}, {
		title: "What the last sweep did", look: stacked, unit: count,
		means:   "Overdue tasks by what became of them: delivered, retried, dead, skipped (runs, by their schedules), elsewhere (another had them), in_delivery (they go on).",
		queries: []query{{`max by (outcome) (tocsin_sweeper_last_tasks)`, "{{outcome}}"}},
	}, {
		title: "What the last sweep left", look: stacked, unit: count, limits: limits{1, 1000}, runbook: "TocsinSweepLeavesTasks",
		means:   "Overdue tasks that it did not deliver, by biz type and reason. Empty if it left none.",
		queries: []query{{`max by (biz_type, reason) (tocsin_sweeper_last_left)`, "{{biz_type}}: {{reason}}"}},
	}, {
		title: "Resident sweeper", unit: count,
		means: "Of a process with --cron, in 5 minutes: overdue entries found, tasks claimed, claims that ran out and were given back, or buried; and the tasks that its last sweep could not deliver.",
		queries: []query{
			{`sum(increase(tocsin_sweeper_overdue_total[5m]))`, "overdue"},
			{`sum(increase(tocsin_sweeper_claimed_total[5m]))`, "claimed"},
			{`sum(increase(tocsin_sweeper_recovered_total[5m]))`, "recovered"},
			{`sum(increase(tocsin_sweeper_buried_total[5m]))`, "buried"},
			{`sum(tocsin_sweeper_left)`, "left by the last sweep"},
		},
	}, {
		title: "What a resident sweeper did in 5 minutes", look: stacked, unit: count,
		means:   "Overdue tasks by what became of them.",
		queries: []query{{`sum by (outcome) (increase(tocsin_sweeper_tasks_total[5m]))`, "{{outcome}}"}},
	}, {
		title: "What sweeps did beside delivering", unit: count, runbook: "TocsinSchedulesBehind",
		means: "Runs of schedules made, fire times passed over, alarms raised, and runs recorded in the history: by the last sweep, and by a resident sweeper in 5 minutes. While nodes work, they make the runs.",
		queries: []query{
			{`max by (what) (tocsin_sweeper_last_upkeep)`, "{{what}}"},
			{`sum by (what) (increase(tocsin_sweeper_upkeep_total[5m]))`, "{{what}}, in 5 minutes"},
		},
	}, {
		title: "Sweeps of a resident sweeper in 5 minutes, by result", look: stacked, unit: count, runbook: "TocsinSweepNotRun",
		means:   "ok, failed (a server was not swept in full) or timed_out.",
		queries: []query{{`sum by (result) (increase(tocsin_sweeper_sweeps_total[5m]))`, "{{result}}"}},
	}, {
		title: "Mean time of a sweep and of a purge", unit: seconds,
		means: "Of resident processes.",
		queries: []query{
			{`sum(rate(tocsin_sweeper_sweep_seconds_sum[5m])) / sum(rate(tocsin_sweeper_sweep_seconds_count[5m]))`, "sweep"},
			{`sum(rate(tocsin_purger_purge_seconds_sum[1d])) / sum(rate(tocsin_purger_purge_seconds_count[1d]))`, "purge"},
		},
	}}
}

func upkeepPurges() []panel {
	return []panel{{
		title: "What the last purge removed", look: stacked, unit: count, runbook: "TocsinPurgeNotRun",
		means: "Finished tasks past their retention, by status, runs of the history, and old rings of the doorbell.",
		queries: []query{
			{`max by (status) (tocsin_purger_last_removed)`, "{{status}}"},
			{`max(tocsin_purger_last_bells)`, "rings of the doorbell"},
			{`max(tocsin_purger_last_runs)`, "runs"},
		},
	}, {
		title: "What a resident purger removed in a day", look: stacked, unit: count,
		means: "Of a process with --cron.",
		queries: []query{
			{`sum by (status) (increase(tocsin_purger_removed_total[1d]))`, "{{status}}"},
			{`sum(increase(tocsin_purger_bells_total[1d]))`, "rings of the doorbell"},
			{`sum(increase(tocsin_purger_runs_total[1d]))`, "runs"},
		},
	}, {
		title: "Purges of a resident purger in a day, by result", look: stacked, unit: count, runbook: "TocsinPurgeNotRun",
		means:   "ok, or failed: a server was not purged in full.",
		queries: []query{{`sum by (result) (increase(tocsin_purger_purges_total[1d]))`, "{{result}}"}},
	}, {
		title: "Locks that hold a purge up", unit: count,
		means: "Tasks that were left because their row stayed locked, by the last purge and in a day; batches that a lock held up, and that were tried again with fewer rows.",
		queries: []query{
			{`max(tocsin_purger_last_locked)`, "left by the last purge"},
			{`sum(increase(tocsin_purger_locked_total[1d]))`, "left in a day"},
			{`sum(increase(tocsin_purger_timeouts_total[1d]))`, "batches held up in a day"},
		},
	}}
}

func upkeepAudits() []panel {
	return []panel{{
		title: "Faults that the last audit found", look: stacked, unit: count, limits: limits{1, 1}, runbook: "TocsinAuditFoundFaults",
		means: "Rows by fault; tocsin audit, or tocsin audit --outbox, names them. Empty if there is none.",
		queries: []query{
			{`max by (fault) (tocsin_auditor_last_faults)`, "{{fault}}"},
			{`max by (fault) (tocsin_auditor_outbox_last_faults)`, "{{fault}}"},
		},
	}, {
		title: "What the last audit read", unit: count,
		means: "Rows, tables and statements; of outboxes the tasks that were moved, those of them that may be purged, and the rows that wait.",
		queries: []query{
			{`max(tocsin_auditor_last_rows)`, "rows"},
			{`max(tocsin_auditor_last_tables)`, "tables"},
			{`max(tocsin_auditor_last_statements)`, "statements"},
			{`max(tocsin_auditor_outbox_last_outboxes)`, "outboxes"},
			{`max(tocsin_auditor_outbox_last_moved)`, "moved tasks"},
			{`max(tocsin_auditor_outbox_last_purged)`, "moved tasks that may be purged"},
			{`max(tocsin_auditor_outbox_last_waiting)`, "rows of outboxes"},
		},
	}}
}
