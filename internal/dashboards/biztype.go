package dashboards

// bizType shows one biz type or several.
func bizType() board {
	return board{
		name: "biz-type", title: "Biz type",
		means: "One biz type or several: are they on time, what fails and why, what waits, and what holds them up.",
		vars:  []variable{{"biz_type", "biz_type", "tocsin_dispatcher_lane_limit"}},
		rows: []row{
			{"On time?", bizTypeTimes()},
			{"Failing?", bizTypeFailures()},
			{"What waits", bizTypeWaiting()},
			{"What holds it up", bizTypeLanes()},
			{"Workers that ask", bizTypeWorkers()},
		},
	}
}

func bizTypeTimes() []panel {
	return []panel{{
		title: "Lateness", unit: seconds, limits: limits{1, 60}, runbook: "TocsinLatenessBudgetBurn",
		means: "Start of the delivery minus the time the task was due, over the chosen types.",
		queries: []query{
			{`histogram_quantile(0.5, sum by (le) (rate(tocsin_dispatcher_lateness_seconds_bucket{biz_type=~"$biz_type"}[$__rate_interval])))`, "half of them below"},
			{`histogram_quantile(0.9, sum by (le) (rate(tocsin_dispatcher_lateness_seconds_bucket{biz_type=~"$biz_type"}[$__rate_interval])))`, "90 % below"},
			{`histogram_quantile(0.99, sum by (le) (rate(tocsin_dispatcher_lateness_seconds_bucket{biz_type=~"$biz_type"}[$__rate_interval])))`, "99 % below"},
		},
	}, {
		title: "Lateness, 99 % below, by biz type", unit: seconds, limits: limits{1, 60}, runbook: "TocsinLatenessBudgetBurn",
		means:   "99 of 100 deliveries started at most so late.",
		queries: []query{{`histogram_quantile(0.99, sum by (biz_type, le) (rate(tocsin_dispatcher_lateness_seconds_bucket{biz_type=~"$biz_type"}[$__rate_interval])))`, "{{biz_type}}"}},
	}, {
		title: "Deliveries started", look: stacked, unit: perSec,
		means:   "Deliveries that started each second, retries included.",
		queries: []query{{`sum by (biz_type) (rate(tocsin_dispatcher_lateness_seconds_count{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}"}},
	}, {
		title: "How long deliveries take", unit: seconds,
		means: "Time of the handler or the HTTP callback: the mean of each type, and what 99 of 100 deliveries stay below, read from buckets that end at 0.1, 1 and 10 s. At 10 s it may be more.",
		queries: []query{
			{`sum by (biz_type) (rate(tocsin_dispatcher_delivery_seconds_sum{biz_type=~"$biz_type"}[$__rate_interval]))
  / sum by (biz_type) (rate(tocsin_dispatcher_delivery_seconds_count{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}, mean"},
			{`histogram_quantile(0.99, sum by (biz_type, le) (rate(tocsin_dispatcher_delivery_seconds_bucket{biz_type=~"$biz_type"}[$__rate_interval])))`, "{{biz_type}}, 99 % below"},
		},
	}}
}

func bizTypeFailures() []panel {
	return []panel{{
		title: "Attempts, by outcome", look: stacked, unit: perSec, runbook: "TocsinAttemptsFail",
		means:   "complete: done. retry: failed, tried again later. snooze: put off by the handler. bury: made dead. skip: a run that its schedule does not want.",
		queries: []query{{`sum by (verb) (rate(tocsin_dispatcher_attempts_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{verb}}"}},
	}, {
		title: "Failed attempts, by biz type and cause", look: stacked, unit: perSec, runbook: "TocsinAttemptsFail",
		means:   "Why attempts failed: the class of the HTTP status, a time-out, an error or a panic of a handler.",
		queries: []query{{`sum by (biz_type, cause) (rate(tocsin_dispatcher_failures_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}: {{cause}}"}},
	}, {
		title: "Share of attempts that fail", unit: share, limits: limits{.01, .1}, runbook: "TocsinAttemptsFail",
		means: "Of all attempts of the type. No line: none failed since the nodes started.",
		queries: []query{{`sum by (biz_type) (rate(tocsin_dispatcher_failures_total{biz_type=~"$biz_type"}[$__rate_interval]))
  / sum by (biz_type) (rate(tocsin_dispatcher_attempts_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}"}},
	}, {
		title: "Attempts over their time-out", unit: perSec,
		means:   "Attempts that were settled as failed before their handler or receiver had returned.",
		queries: []query{{`sum by (biz_type) (rate(tocsin_dispatcher_timeouts_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}"}},
	}, {
		title: "Dead tasks", look: stacked, unit: count, runbook: "TocsinTasksDie",
		means:   "Tasks that wait for somebody to redrive or forget them. Counted every ten minutes.",
		queries: []query{{`sum by (biz_type) (max by (cluster, biz_type) (tocsin_backlog_dead{biz_type=~"$biz_type"}))`, "{{biz_type}}"}},
	}, {
		title: "Tasks that became dead in 5 minutes", look: stacked, unit: count, runbook: "TocsinTasksDie",
		means:   "Attempts after which a task was given up.",
		queries: []query{{`sum by (biz_type) (increase(tocsin_dispatcher_attempts_total{biz_type=~"$biz_type", verb="bury"}[5m]))`, "{{biz_type}}"}},
	}, {
		title: "Alarms raised in an hour", look: stacked, unit: count, runbook: "TocsinAlarmFails",
		means:   "Tasks that nodes have added to tell people of dead tasks or missed runs of the type. Empty if its policy has no alarm.",
		queries: []query{{`sum by (biz_type, kind) (increase(tocsin_alarms_raised_total{biz_type=~"$biz_type"}[1h]))`, "{{biz_type}}: {{kind}}"}},
	}}
}

func bizTypeWaiting() []panel {
	return []panel{{
		title: "Oldest overdue task, by database", unit: seconds, limits: limits{60, 600}, runbook: "TocsinTaskOverdue",
		means:   "One database that stands out points at its server; all of them, at the type.",
		queries: []query{{`max by (database) (tocsin_backlog_oldest_overdue_seconds{biz_type=~"$biz_type"})`, "{{database}}"}},
	}, {
		title: "Overdue tasks", look: stacked, unit: count, runbook: "TocsinBacklogGrows",
		means:   "Pending tasks that have been due for a second, tasks in delivery included.",
		queries: []query{{`sum by (biz_type) (max by (cluster, biz_type) (tocsin_backlog_overdue{biz_type=~"$biz_type"}))`, "{{biz_type}}"}},
	}, {
		title: "Drained in", unit: seconds, limits: limits{600, 3600}, runbook: "TocsinBacklogGrows",
		means:   "Until nothing is overdue, at the pace of the last two measurements. No line: not known, or infinite.",
		queries: []query{{`max by (biz_type) (tocsin_backlog_drain_seconds{biz_type=~"$biz_type"})`, "{{biz_type}}"}},
	}, {
		title: "Pending and claimed tasks", unit: count,
		means: "Pending: due or not. Claimed: held by a node or a sweeper that delivers them. Counted every ten minutes.",
		queries: []query{
			{`sum by (biz_type) (max by (cluster, biz_type, database) (tocsin_backlog_pending{biz_type=~"$biz_type"}))`, "{{biz_type}}, pending"},
			{`sum by (biz_type) (max by (cluster, biz_type) (tocsin_backlog_claimed{biz_type=~"$biz_type"}))`, "{{biz_type}}, claimed"},
		},
	}}
}

func bizTypeLanes() []panel {
	return []panel{{
		title: "Slots in use", unit: share, limits: limits{.9, 1}, runbook: "TocsinLaneFull",
		means: "Deliveries under way, as a share of the slots of all nodes. At 100 % tasks wait for a slot: raise concurrency in the policy, add nodes, or make the receiver faster.",
		queries: []query{{`sum by (biz_type) (tocsin_dispatcher_lane_running{biz_type=~"$biz_type"})
  / sum by (biz_type) (tocsin_dispatcher_lane_limit{biz_type=~"$biz_type"})`, "{{biz_type}}"}},
	}, {
		title: "Deliveries under way", unit: count,
		means:   "Slots in use on all nodes.",
		queries: []query{{`sum by (biz_type) (tocsin_dispatcher_lane_running{biz_type=~"$biz_type"})`, "{{biz_type}}"}},
	}, {
		title: "Ids in the queues", look: stacked, unit: count,
		means:   "Ids of tasks that are due soon, or due and waiting for a slot, in the memory of all nodes. A backlog stays in the databases.",
		queries: []query{{`sum by (biz_type) (tocsin_dispatcher_lane_queued{biz_type=~"$biz_type"})`, "{{biz_type}}"}},
	}, {
		title: "State of the lanes", look: states, unit: count,
		states: []state{{"open", green}, {"waiting for its rate", blue}, {"paused", yellow}, {"lacking a handler, secret or workers", red}, {"target away", red}, {"target says later", yellow}},
		means:  "The worst state of the type on any node. Nodes that no worker asks don't count, unless all are like that.",
		queries: []query{{`max by (biz_type) (tocsin_dispatcher_lane_state{biz_type=~"$biz_type"} unless
  (tocsin_dispatcher_lane_state == 3 and on (cluster, biz_type) tocsin_pull_waiters and on (cluster, biz_type) (tocsin_dispatcher_lane_state != 3)))`, "{{biz_type}}"}},
	}, {
		title: "Room for lower priorities", unit: perSec,
		means:   "How many tasks a second of a lower priority a node may load while tasks of this one begin: fewer while these are late. 0: nobody gives way.",
		queries: []query{{`min by (priority) (tocsin_dispatcher_yield_rate)`, "below {{priority}}"}},
	}, {
		title: "Deliveries that could not reach their target", unit: perSec, runbook: "TocsinTargetAway",
		means:   "No attempt is counted for them. After 20 in a row one task at a time tries the target, and the others wait. Empty if all were reached.",
		queries: []query{{`sum by (biz_type) (rate(tocsin_dispatcher_not_reached_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}"}},
	}, {
		title: "Deliveries that ceased", unit: count, runbook: "TocsinTargetAway",
		means:   "How often a node left the type alone within 10 minutes. away: its target could not be reached. busy: it said later, with 429 or 503 for instance.",
		queries: []query{{`sum by (biz_type, state) (increase(tocsin_dispatcher_breaks_total{biz_type=~"$biz_type"}[10m]))`, "{{biz_type}}: {{state}}"}},
	}, {
		title: "Slowed down by its target", unit: perSec,
		means: "Deliveries a second that the nodes make together, as the target has said later, and tasks that were told so: no attempt is counted for them. Empty if it has not.",
		queries: []query{
			{`sum by (biz_type) (tocsin_dispatcher_lane_throttle{biz_type=~"$biz_type"})`, "{{biz_type}}: at most"},
			{`sum by (biz_type) (rate(tocsin_dispatcher_told_later_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}: told later"},
		},
	}, {
		title: "First link away, its fallback delivers", unit: seconds, limits: limits{1, 600}, runbook: "TocsinFallbackDelivers",
		means:   "Since the first link of the type went away, on the node where that is longest ago. 0: the first link delivers. Empty if its policy has no fallback.",
		queries: []query{{`max by (biz_type) (tocsin_fallback_seconds{biz_type=~"$biz_type"})`, "{{biz_type}}"}},
	}, {
		title: "Nodes that can't deliver it", unit: count, limits: limits{1, 1}, runbook: "TocsinHandlerMissing",
		means:   "Nodes of its group that lack the handler or the secret of the type. Other nodes stand in; if none has it, its tasks wait. Empty if no node lacks any.",
		queries: []query{{`sum by (biz_type) (tocsin_node_biz_type_lacking{biz_type=~"$biz_type"})`, "{{biz_type}}"}},
	}, {
		title: "Tasks added by services", look: stacked, unit: perSec,
		means:   "What comes in, if the metrics of the services are collected. new: added. existing: their dedup_key was there. failed: not added, or not known to be; without a biz type if there is none of that name.",
		queries: []query{{`sum by (biz_type, result) (rate(tocsin_client_tasks_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}: {{result}}"}},
	}}
}

func bizTypeWorkers() []panel {
	return []panel{{
		title: "Workers that wait", look: stacked, unit: count, runbook: "TocsinNoWorkers",
		means:   "Workers whose request waits at a node for a task. Workers that have tasks are not among them. Empty in this row: the types have no pull.",
		queries: []query{{`sum by (biz_type) (tocsin_pull_waiters{biz_type=~"$biz_type"})`, "{{biz_type}}"}},
	}, {
		title: "Tasks reserved", look: stacked, unit: perSec, runbook: "TocsinNoWorkers",
		means:   "Tasks that nodes hand to workers each second, retries included.",
		queries: []query{{`sum by (biz_type) (rate(tocsin_pull_reserved_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{biz_type}}"}},
	}, {
		title: "Leases ended, by verb and result", look: stacked, unit: perSec,
		means:   "What workers said of their tasks, and what became of it. done: stored. already: it was complete before. lost: the task is somebody else's, or has ended.",
		queries: []query{{`sum by (verb, result) (rate(tocsin_pull_settled_total{biz_type=~"$biz_type"}[$__rate_interval]))`, "{{verb}}: {{result}}"}},
	}, {
		title: "Age of leases when they end", unit: seconds,
		means: "From the reservation to the end that a worker asked for, read from buckets that end at 0.1, 1, 10 and 60 s. At 60 s it may be more.",
		queries: []query{
			{`histogram_quantile(0.5, sum by (biz_type, le) (rate(tocsin_pull_lease_seconds_bucket{biz_type=~"$biz_type"}[$__rate_interval])))`, "{{biz_type}}, half of them below"},
			{`histogram_quantile(0.99, sum by (biz_type, le) (rate(tocsin_pull_lease_seconds_bucket{biz_type=~"$biz_type"}[$__rate_interval])))`, "{{biz_type}}, 99 % below"},
		},
	}, {
		title: "Leases that ran out, of all biz types", unit: perSec,
		means:   "Tasks that workers neither settled nor kept, by server: each is a failed attempt. Workers die, or take longer than the lease and don't extend it. Empty: none did.",
		queries: []query{{`sum by (server) (rate(tocsin_scanner_leases_expired_total[$__rate_interval]))`, "{{server}}"}},
	}}
}
