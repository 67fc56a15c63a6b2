package dashboards

// services shows what the programs see that add tasks.
func services() board {
	return board{
		name: "services", title: "Service developers",
		means: "What services see that use Tocsin's client or the HTTP API: their calls, errors and waiting times, and what becomes of their tasks. The client's needs tocsinprom.Observe in the service.",
		vars: []variable{
			{"op", "op", "tocsin_client_calls_total"},
			{"biz_type", "biz_type", "tocsin_client_tasks_total"},
		},
		rows: []row{
			{"Calls of the client", servicesCalls()},
			{"The HTTP API", servicesAPI()},
			{"Tasks", servicesTasks()},
			{"Schedules", servicesSchedules()},
			{"Outboxes", servicesOutboxes()},
		},
	}
}

func servicesCalls() []panel {
	return []panel{{
		title: "Calls", look: stacked, unit: perSec,
		means:   "Calls of all services each second, by operation.",
		queries: []query{{`sum by (op) (rate(tocsin_client_calls_total{op=~"$op"}[$__rate_interval]))`, "{{op}}"}},
	}, {
		title: "Calls that returned an error", look: stacked, unit: perSec, runbook: "TocsinClientErrors",
		means:   "By operation and error. invalid, unknown_biz_type, not_found and conflict are the caller's; unreachable and unknown_outcome, a server's. After unknown_outcome the task may be there or not: add it again with the same dedup_key.",
		queries: []query{{`sum by (op, result) (rate(tocsin_client_calls_total{op=~"$op", result!="ok"}[$__rate_interval]))`, "{{op}}: {{result}}"}},
	}, {
		title: "Share of calls that fail for no fault of the caller", unit: share, limits: limits{.001, .01}, runbook: "TocsinClientErrors",
		means: "Errors that are not invalid, unknown_biz_type, not_found, conflict or canceled, as a share of all calls of the operation.",
		queries: []query{{`sum by (op) (rate(tocsin_client_calls_total{op=~"$op", result=~"unreachable|unknown_outcome|layout|other_server|other"}[$__rate_interval]))
  / sum by (op) (rate(tocsin_client_calls_total{op=~"$op"}[$__rate_interval]))`, "{{op}}"}},
	}, {
		title: "How long calls take", unit: seconds, limits: limits{.1, 1},
		means: "The mean of each operation, and what 99 of 100 calls stay below, read from buckets that end at 1, 10 and 100 ms, 1 and 10 s. At 10 s it may be more.",
		queries: []query{
			{`sum by (op) (rate(tocsin_client_call_seconds_sum{op=~"$op"}[$__rate_interval]))
  / sum by (op) (rate(tocsin_client_call_seconds_count{op=~"$op"}[$__rate_interval]))`, "{{op}}, mean"},
			{`histogram_quantile(0.99, sum by (op, le) (rate(tocsin_client_call_seconds_bucket{op=~"$op"}[$__rate_interval])))`, "{{op}}, 99 % below"},
		},
	}}
}

func servicesAPI() []panel {
	return []panel{{
		title: "Requests to the HTTP API", look: stacked, unit: perSec,
		means:   "Requests to all nodes each second, by operation; none: refused before an operation was found.",
		queries: []query{{`sum by (operation) (rate(tocsin_api_requests_total[$__rate_interval]))`, "{{operation}}"}},
	}, {
		title: "Requests that failed", look: stacked, unit: perSec,
		means:   "Answers with 500 or 503, each second. 503 is a server's fault, and the request can be repeated; for 500 the log of the node has the cause.",
		queries: []query{{`sum by (operation) (rate(tocsin_api_requests_total{class="5xx"}[$__rate_interval]))`, "{{operation}}"}},
	}, {
		title: "Requests refused", look: stacked, unit: perSec,
		means:   "By reason. token: unknown or expired. scope: not allowed by its scope or for its biz types. rate: more requests than node.api.limits.rate. size: a body above its limit. page: a web page or host name that may not call. path: no such operation. malformed: not the JSON or the query that it should be.",
		queries: []query{{`sum by (reason) (rate(tocsin_api_refusals_total[$__rate_interval]))`, "{{reason}}"}},
	}, {
		title: "How long requests take", unit: seconds, limits: limits{.1, 1},
		means: "The mean of each operation, and what 99 of 100 requests stay below, read from buckets that end at 10 ms, 100 ms and 1 s. At 1 s it may be more.",
		queries: []query{
			{`sum by (operation) (rate(tocsin_api_request_seconds_sum[$__rate_interval])) / sum by (operation) (rate(tocsin_api_request_seconds_count[$__rate_interval]))`, "{{operation}}, mean"},
			{`histogram_quantile(0.99, sum by (operation, le) (rate(tocsin_api_request_seconds_bucket[$__rate_interval])))`, "{{operation}}, 99 % below"},
		},
	}, {
		title: "Requests in flight", unit: count,
		means:   "Requests that each node is answering. If it grows, a database server is slow, or callers are.",
		queries: []query{{`sum by (instance) (tocsin_api_requests_in_flight)`, "{{instance}}"}},
	}}
}

func servicesSchedules() []panel {
	return []panel{{
		title: "Runs made", look: stacked, unit: perSec, runbook: "TocsinSchedulesBehind",
		means: "made: tasks that schedules made, ten minutes or more ahead of their times. passed over: fire times that were missed, and for which no run was made, by the policies of their schedules.",
		queries: []query{
			{`sum(rate(tocsin_generator_runs_total[$__rate_interval]))`, "made"},
			{`sum(rate(tocsin_generator_passed_over_total[$__rate_interval]))`, "passed over"},
		},
	}, {
		title: "Fire times that are behind", unit: seconds, limits: limits{1, 60}, runbook: "TocsinSchedulesBehind",
		means:   "How long the earliest fire time has passed for which a node should have made a run, and has not.",
		queries: []query{{`max(tocsin_generator_behind_seconds)`, ""}},
	}, {
		title: "Passes over schedules", unit: perSec, runbook: "TocsinSchedulesBehind",
		means: "Each node passes over the schedules of each server every two minutes or so. failed: schedules whose runs could not be made, and passes that could not read all. another was first: the run was made by another node, as is normal without etcd.",
		queries: []query{
			{`sum(rate(tocsin_generator_passes_total[$__rate_interval]))`, "passes"},
			{`sum(rate(tocsin_generator_failures_total[$__rate_interval]))`, "failed"},
			{`sum(rate(tocsin_generator_lost_total[$__rate_interval]))`, "another was first"},
		},
	}, {
		title: "Runs, by what was decided about them", look: stacked, unit: perSec,
		means:   "By the policies of their schedules. missed: too late. skipped: an earlier run was open. queued: waits for an earlier run, counted each time it looks. replaced: by a later run. outdated: of a former revision of its schedule. failed: its schedule could not be read, so it is judged again.",
		queries: []query{{`sum by (verdict) (rate(tocsin_judge_runs_total[$__rate_interval]))`, "{{verdict}}"}},
	}, {
		title: "Schedules paused in 6 hours", unit: count, limits: limits{1, 10}, runbook: "TocsinSchedulePaused",
		means:   "Schedules that make no more runs, as their runs failed as often in a row as pause_after says. `tocsin schedule list --state paused` names them.",
		queries: []query{{`sum(increase(tocsin_schedules_paused_total[6h]))`, "paused"}},
	}}
}

func servicesTasks() []panel {
	return []panel{{
		title: "Tasks added", look: stacked, unit: perSec,
		means:   "new: added. existing: a task with the same dedup_key was there. failed: not added, or not known to be; without a biz type if there is none of that name. Those of AddTx are new even if the transaction is rolled back.",
		queries: []query{{`sum by (biz_type, result) (rate(tocsin_client_tasks_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}: {{result}}"}},
	}, {
		title: "Tasks done", look: stacked, unit: perSec,
		means: "Attempts each second after which the task was done.",
		queries: []query{{`sum by (biz_type) (rate(tocsin_dispatcher_attempts_total{biz_type=~"$biz_type", verb="complete"}[$__rate_interval])
  or rate(tocsin_pull_settled_total{biz_type=~"$biz_type", verb="complete", result="done"}[$__rate_interval]))`, "{{biz_type}}"}},
	}, {
		title: "Lateness, 99 % below", unit: seconds, limits: limits{1, 60}, runbook: "TocsinLatenessBudgetBurn",
		means:   "99 of 100 deliveries of the type started at most so long after their time.",
		queries: []query{{`histogram_quantile(0.99, sum by (biz_type, le) (rate(tocsin_dispatcher_lateness_seconds_bucket{biz_type=~"$biz_type"}[$__rate_interval])))`, "{{biz_type}}"}},
	}, {
		title: "Failed attempts, by cause", look: stacked, unit: perSec, runbook: "TocsinAttemptsFail",
		means:   "What your handlers and receivers answered: the class of the HTTP status, a time-out, an error or a panic.",
		queries: []query{{`sum by (biz_type, cause) (rate(tocsin_dispatcher_failures_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}: {{cause}}"}},
	}, {
		title: "Oldest overdue task", unit: seconds, limits: limits{60, 600}, runbook: "TocsinTaskOverdue",
		means:   "For how long the oldest task of the type has been due that is still pending.",
		queries: []query{{`max by (biz_type) (tocsin_backlog_oldest_overdue_seconds{biz_type=~"$biz_type"})`, "{{biz_type}}"}},
	}, {
		title: "Dead tasks", look: stacked, unit: count, runbook: "TocsinTasksDie",
		means:   "Tasks that failed for the last time and wait for somebody.",
		queries: []query{{`sum by (biz_type) (max by (cluster, biz_type) (tocsin_backlog_dead{biz_type=~"$biz_type"}))`, "{{biz_type}}"}},
	}}
}

func servicesOutboxes() []panel {
	return []panel{{
		title: "How far relays are behind", unit: seconds, limits: limits{10, 300}, runbook: "TocsinOutboxBehind",
		means:   "Age of the oldest row of each outbox that waits to be moved, without rows that were set aside.",
		queries: []query{{`max by (outbox) (tocsin_relay_lag_seconds)`, "{{outbox}}"}},
	}, {
		title: "Rows moved", look: stacked, unit: perSec, runbook: "TocsinOutboxBehind",
		means:   "Rows that relays move from each outbox each second.",
		queries: []query{{`sum by (outbox) (rate(tocsin_relay_moved_total[$__rate_interval]))`, "{{outbox}}"}},
	}, {
		title: "Rows set aside", unit: count, limits: limits{1, 100}, runbook: "TocsinOutboxRowsAside",
		means:   "Rows that can't be moved, because their biz type is unknown for example. They wait for an operator, and later rows of their biz_id behind them: tocsin outbox list --stuck.",
		queries: []query{{`max by (outbox) (tocsin_relay_stuck)`, "{{outbox}}"}},
	}, {
		title: "Active relays", unit: count, limits: limits{1, 0}, runbook: "TocsinOutboxNotRelayed",
		means:   "Processes that move the rows of an outbox. One is normal; 0: nobody does.",
		queries: []query{{`sum by (outbox) (tocsin_relay_active)`, "{{outbox}}"}},
	}, {
		title: "Commands that wait in topics", unit: count, runbook: "TocsinOutboxBehind",
		means: "Records of each partition of an entrance that are not done, and in how many ids the rows of an outbox stand that wait for a database that is away.",
		queries: []query{
			{`max by (outbox) (tocsin_relay_waiting)`, "{{outbox}}"},
			{`max by (outbox) (tocsin_relay_parked) > 0`, "{{outbox}} parked"},
		},
	}, {
		title: "Rows refused", look: stacked, unit: perSec, runbook: "TocsinOutboxRowsAside",
		means:   "Rows and commands that can't be moved each second, by reason. Those of an entrance are in its dead-letter topic.",
		queries: []query{{`sum by (outbox, reason) (rate(tocsin_relay_refused_total[$__rate_interval]))`, "{{outbox}} {{reason}}"}},
	}}
}
