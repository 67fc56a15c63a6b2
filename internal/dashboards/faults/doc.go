// Faults breaks a whole Tocsin on this machine in many ways, one after another, watched by a Prometheus with the rules of
// deploy/prometheus, and writes a table: which alert was pending and fired after how long, whether Alertmanager with
// alertmanager.example.yaml told people of it, which panels show it, and what a command of tocsin says of it. It runs servers, etcd and nodes as processes of their own, and stops them.
//
// To end within a quarter of an hour it shortens every `for` and every window of the rules by the same factor, and says so;
// thresholds stay as they are. So alerts on what is old by minutes, such as TocsinTaskOverdue, can't be seen here.
//
//	make alerts ARGS="-only killed"
//	go run ./internal/dashboards/faults -tocsin bin/tocsin -rules deploy/prometheus -panels deploy/grafana/dashboards -only 'killed'
package main
