// Package dashboards is the authority for Tocsin's Grafana dashboards: their panels are written here as Go values, and
// Grafana's JSON in deploy/grafana/dashboards is made from them by `make dashboards`.
//
//	overview   is everything on time, overdue, failing, draining?
//	biz-type   one biz type or several: lateness, failures, lanes, what waits
//	cluster    nodes, who owns the tables, how they move, memory, etcd
//	database   servers and databases as the nodes see them
//	upkeep     sweeps, purges and audits
//	services   what the services see that add tasks
//
// Queries are written without the label cluster; the package adds it to each metric of Tocsin. Every metric that Tocsin
// exports is in a query of a dashboard or a rule. Queries use the raw metrics wherever that is readable, so that nearly all
// panels work with a Prometheus that has no rules.
//
// The package is a Go module of its own, so that only its users need Grafana's SDK.
package dashboards
