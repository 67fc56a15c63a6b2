package dashboards

// overview answers the first questions of somebody on call.
func overview() board {
	return board{
		name: "overview", title: "Overview",
		means: "Is everything on time, overdue, failing, draining? Start here; the other dashboards go into detail.",
		rows: []row{
			{"Now", overviewNow()},
			{"Who works", overviewNodes()},
			{"On time?", overviewLateness()},
			{"Overdue and draining?", overviewOverdue()},
			{"Failing?", overviewFailing()},
		},
	}
}

func overviewNow() []panel {
	return []panel{{
		title: "On time, within 1 s", look: number, unit: share, limits: limits{.999, .99}, runbook: "TocsinLatenessBudgetBurn",
		means:   "Share of the deliveries of the last 5 minutes that started at most a second after their time. Empty if nothing was delivered.",
		queries: []query{{`sum(rate(tocsin_dispatcher_lateness_seconds_bucket{le=~"1|1.0"}[5m])) / sum(rate(tocsin_dispatcher_lateness_seconds_count[5m]))`, ""}},
	}, {
		title: "Oldest overdue task", look: number, unit: seconds, limits: limits{60, 600}, runbook: "TocsinTaskOverdue",
		means:   "For how long the oldest task of all types has been due that is still pending; 0 if none has been for a second. Measured each minute.",
		queries: []query{{`max(tocsin_backlog_oldest_overdue_seconds)`, ""}},
	}, {
		title: "Overdue tasks", look: number, unit: count, limits: limits{1000, 100000}, runbook: "TocsinTaskOverdue",
		means:   "Pending tasks that have been due for a second, in all databases. Tasks of paused types do not count.",
		queries: []query{{`sum(max by (cluster, biz_type) (tocsin_backlog_overdue))`, ""}},
	}, {
		title: "Drained in", look: number, unit: seconds, limits: limits{600, 3600}, runbook: "TocsinBacklogGrows",
		means:   "Until nothing is overdue, at the pace of the last two measurements, for the slowest type. Infinite if the backlog does not become less.",
		queries: []query{{`max(tocsin_backlog_drain_seconds)`, ""}},
	}, {
		title: "Failed attempts", look: number, unit: share, limits: limits{.01, .1}, runbook: "TocsinAttemptsFail",
		means:   "Share of the attempts of the last 5 minutes that failed.",
		queries: []query{{`(sum(rate(tocsin_dispatcher_failures_total[5m])) or vector(0)) / sum(rate(tocsin_dispatcher_attempts_total[5m]))`, ""}},
	}, {
		title: "Became dead in an hour", look: number, unit: count, limits: limits{1, 100}, runbook: "TocsinTasksDie",
		means:   "Tasks that were given up and wait for somebody: tocsin task dead lists them, tocsin task redrive revives them. The dashboard Biz type has all that there are.",
		queries: []query{{`sum(increase(tocsin_dispatcher_attempts_total{verb="bury"}[1h]))`, ""}},
	}}
}

func overviewNodes() []panel {
	return []panel{{
		title: "Nodes", look: number, unit: count, limits: limits{2, 1}, runbook: "TocsinNoMetrics",
		means:   "Nodes that Prometheus sees. With one node nobody takes over if it dies.",
		queries: []query{{`count(tocsin_build_info)`, ""}},
	}, {
		title: "Nodes without ownership", look: number, unit: count, limits: limits{1, 2}, runbook: "TocsinNodeOutOfOrder",
		means:   "Nodes that claim each row as they have no proven lease in etcd, that only sweep as etcd has been away since their start, or that wait and deliver nothing.",
		queries: []query{{`sum(tocsin_node_mode{mode=~"claim|sweep|waiting"})`, ""}},
	}, {
		title: "Tables without an owner", look: number, unit: count, limits: limits{1, 100}, runbook: "TocsinTablesUnowned",
		means:   "Their tasks are delivered by the sweeper only. Tables that move have no owner for a moment.",
		queries: []query{{`max(tocsin_assign_tables_unowned)`, ""}},
	}, {
		title: "Servers not reached", look: number, unit: count, limits: limits{1, 1}, runbook: "TocsinServerDown",
		means:   "MySQL servers that at least one node can't reach.",
		queries: []query{{`sum(1 - min by (cluster, server) (tocsin_node_server_up))`, ""}},
	}, {
		title: "Databases not usable", look: number, unit: count, limits: limits{1, 1}, runbook: "TocsinDatabaseUnusable",
		means:   "Databases that at least one node can't use: their server is away, or their layout row is not as the config says.",
		queries: []query{{`sum(1 - min by (cluster, database) (tocsin_node_database_usable))`, ""}},
	}, {
		title: "Since the last whole sweep", look: number, unit: seconds, limits: limits{180, 600}, runbook: "TocsinSweepNotRun",
		means:   "Since a sweep has ended that left nothing behind. Empty if the metrics of the sweeper are not collected.",
		queries: []query{{`time() - max(tocsin_sweeper_last_success_timestamp_seconds > 0)`, ""}},
	}}
}

func overviewLateness() []panel {
	return []panel{{
		title: "Lateness", unit: seconds, limits: limits{1, 60}, runbook: "TocsinLatenessBudgetBurn",
		means: "Start of the delivery minus the time the task was due, over all types. It is read from wide buckets, which end at 1, 10 and 100 ms, 1, 10 and 60 s.",
		queries: []query{
			{`histogram_quantile(0.5, sum by (le) (rate(tocsin_dispatcher_lateness_seconds_bucket[$__rate_interval])))`, "half of them below"},
			{`histogram_quantile(0.99, sum by (le) (rate(tocsin_dispatcher_lateness_seconds_bucket[$__rate_interval])))`, "99 % below"},
			{`histogram_quantile(0.999, sum by (le) (rate(tocsin_dispatcher_lateness_seconds_bucket[$__rate_interval])))`, "99.9 % below"},
		},
	}, {
		title: "Later than 1 s, by biz type", unit: share, limits: limits{.001, .01}, runbook: "TocsinLatenessBudgetBurn",
		means: "Share of the deliveries that started more than a second after their time.",
		queries: []query{{`1 - sum by (biz_type) (rate(tocsin_dispatcher_lateness_seconds_bucket{le=~"1|1.0"}[$__rate_interval]))
  / sum by (biz_type) (rate(tocsin_dispatcher_lateness_seconds_count[$__rate_interval]))`, "{{biz_type}}"}},
	}, {
		title: "Deliveries started", look: stacked, wide: 8, unit: perSec, runbook: "TocsinNothingSettled",
		means:   "Deliveries that started each second, retries included.",
		queries: []query{{`sum by (biz_type) (rate(tocsin_dispatcher_lateness_seconds_count[$__rate_interval]))`, "{{biz_type}}"}},
	}, {
		title: "Budget of lateness", wide: 8, unit: count, limits: limits{1, 14.4}, runbook: "TocsinLatenessBudgetBurn",
		means:   "How fast each type uses up its budget of late deliveries, over an hour. 1: it lasts for 30 days; 14.4: for two days. Empty unless Prometheus loads deploy/prometheus/recording.rules.yaml.",
		queries: []query{{`max by (biz_type) (biz_type:tocsin_lateness_burn:ratio_rate1h)`, "{{biz_type}}"}},
	}, {
		title: "Outcomes stored", look: stacked, wide: 8, unit: perSec, runbook: "TocsinNothingSettled",
		means:   "Outcomes written to the databases each second, by what became of them.",
		queries: []query{{`sum by (fate) (rate(tocsin_dispatcher_settled_total[$__rate_interval]))`, "{{fate}}"}},
	}}
}

func overviewOverdue() []panel {
	return []panel{{
		title: "Oldest overdue task, by biz type", unit: seconds, limits: limits{60, 600}, runbook: "TocsinTaskOverdue",
		means:   "For how long the oldest task of each type has been due that is still pending.",
		queries: []query{{`max by (biz_type) (tocsin_backlog_oldest_overdue_seconds)`, "{{biz_type}}"}},
	}, {
		title: "Overdue tasks, by biz type", look: stacked, unit: count, runbook: "TocsinBacklogGrows",
		means:   "Pending tasks that have been due for a second. A lower bound while tables are capped: see the dashboard Database.",
		queries: []query{{`sum by (biz_type) (max by (cluster, biz_type) (tocsin_backlog_overdue))`, "{{biz_type}}"}},
	}, {
		title: "Drained in, by biz type", unit: seconds, limits: limits{600, 3600}, runbook: "TocsinBacklogGrows",
		means:   "Until nothing of the type is overdue, at the pace of the last two measurements. No line: not known, or infinite, since the backlog does not become less.",
		queries: []query{{`max by (biz_type) (tocsin_backlog_drain_seconds)`, "{{biz_type}}"}},
	}, {
		title: "Pending tasks, by biz type", look: stacked, unit: count,
		means:   "Due or not. Counted every ten minutes.",
		queries: []query{{`sum by (biz_type) (max by (cluster, biz_type, database) (tocsin_backlog_pending))`, "{{biz_type}}"}},
	}}
}

func overviewFailing() []panel {
	return []panel{{
		title: "Failed attempts, by biz type", look: stacked, unit: perSec, runbook: "TocsinAttemptsFail",
		means:   "Attempts that failed each second. The dashboard Biz type tells the causes.",
		queries: []query{{`sum by (biz_type) (rate(tocsin_dispatcher_failures_total[$__rate_interval]))`, "{{biz_type}}"}},
	}, {
		title: "Failed attempts, by cause", look: stacked, unit: perSec, runbook: "TocsinAttemptsFail",
		means:   "Attempts that failed each second, by cause: the class of the HTTP status, a time-out, an error or a panic of a handler.",
		queries: []query{{`sum by (cause) (rate(tocsin_dispatcher_failures_total[$__rate_interval]))`, "{{cause}}"}},
	}, {
		title: "Tasks that became dead in 5 minutes", look: stacked, unit: count, runbook: "TocsinTasksDie",
		means:   "Attempts after which a task was given up: the last one failed, or the handler buried it.",
		queries: []query{{`sum by (biz_type) (increase(tocsin_dispatcher_attempts_total{verb="bury"}[5m]))`, "{{biz_type}}"}},
	}, {
		title: "Second deliveries in 5 minutes", look: stacked, unit: count, runbook: "TocsinSecondDeliveries",
		means:   "Deliveries that were made once more without a failed attempt. Receivers see them with the same job_id and version. A node that dies or is cut off causes some.",
		queries: []query{{`sum by (cause) (increase(tocsin_dispatcher_second_deliveries_total[5m]))`, "{{cause}}"}},
	}}
}
