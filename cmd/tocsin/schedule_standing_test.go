package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/schedule"
)

func TestTheNextFireTimeMayHaveItsRunAlready(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	s := schedule.Schedule{
		Definition: schedule.Definition{Name: "tick", BizType: "report.make", Cron: "@every 1m"}.WithDefaults(),
		State:      schedule.Active, Anchor: anchor, NextFire: anchor.Add(20 * time.Minute),
	}
	s.ReadAt = anchor.Add(90 * time.Second)
	if at := nextFire(s); !at.Equal(anchor.Add(2 * time.Minute)) {
		t.Errorf("with runs made ahead: %v", at)
	}
	if lines := strings.Join(standing(s), "\n"); !strings.Contains(lines, "next fire time: 2026-11-22 12:02:00.000Z (in 30s)") || !strings.Contains(lines, "next run to make: 2026-11-22 12:20:00.000Z") {
		t.Errorf("show says\n%s", lines)
	}
	s.NextFire = anchor.Add(time.Minute)
	if at := nextFire(s); !at.Equal(s.NextFire) {
		t.Errorf("if nobody makes runs: %v", at)
	}
	s.State, s.NextFire = schedule.Inactive, time.Time{}
	if at := nextFire(s); !at.IsZero() {
		t.Errorf("of an inactive one: %v", at)
	}
}

func TestHelpOfScheduleDeleteNamesItsFlag(t *testing.T) {
	t.Parallel()
	call(t, "schedule", "delete", "--help").says(t, "--id SCHEDULE_ID ")
}
