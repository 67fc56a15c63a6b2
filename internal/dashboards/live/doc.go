// Package live shows the dashboards and the rules of deploy/prometheus at work: a whole Tocsin on this machine under a load
// that fails in part, and a real Prometheus that collects its metrics. Its test evaluates every query there.
//
// The package is the authority for what goes wrong in that demo: the load of devcluster.Demo, and one of two database
// servers that goes down and comes back. A start that fails half-way stops what it had started.
package live
