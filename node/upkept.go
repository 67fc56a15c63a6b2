package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/sweeper"
)

// upkeptBy are the counters of the engines in a sweep, by what the sweeper calls what they count. The engines of a node export
// them under their own names, and both may be in one registry.
var upkeptBy = map[string]string{
	"tocsin_generator_runs_total": sweeper.RunsMade, "tocsin_generator_passed_over_total": sweeper.TimesPassedOver, "tocsin_generator_failures_total": sweeper.SchedulesFailed,
	"tocsin_alarms_raised_total": sweeper.AlarmsRaised, "tocsin_alarms_failures_total": sweeper.AlarmsFailed,
	"tocsin_history_recorded_total": sweeper.RunsRecorded, "tocsin_history_dropped_total": sweeper.RunsNotRecorded, "tocsin_history_failed_total": sweeper.RunsNotRecorded,
}

// upkept holds the metrics of the engines that do what a sweep does beside delivering.
type upkept struct{ *prometheus.Registry }

func newUpkept() upkept { return upkept{prometheus.NewRegistry()} }

// read returns how often each thing was done so far.
func (u upkept) read() map[string]int {
	all := map[string]int{}
	families, _ := u.Gather() // what was gathered beside an error counts
	for _, family := range families {
		what, counts := upkeptBy[family.GetName()]
		if !counts {
			continue
		}
		for _, m := range family.GetMetric() {
			all[what] += int(m.GetCounter().GetValue())
		}
	}
	return all
}
