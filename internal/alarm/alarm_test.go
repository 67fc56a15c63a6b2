package alarm_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin/internal/alarm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var kinds = map[string]func() *alarm.Alarm{"New": alarm.New, "Coarse": alarm.Coarse}

func TestAlarmRingsOncePerSetAndNotBefore(t *testing.T) {
	for name, open := range kinds {
		a := open()
		for _, d := range []time.Duration{-1, 0, 1, time.Millisecond, 20 * time.Millisecond} {
			begin := time.Now()
			a.Set(d)
			<-a.C
			if took := time.Since(begin); took < d {
				t.Errorf("%s: rang after %v, was set to %v", name, took, d)
			}
		}
		select {
		case <-a.C:
			t.Errorf("%s: rang again", name)
		default:
		}
		a.Close()
	}
}

func TestAlarmIsSetAnew(t *testing.T) {
	for name, open := range kinds {
		a := open()
		begin := time.Now()
		a.Set(time.Hour)
		a.Set(5 * time.Millisecond)
		<-a.C
		a.Set(200 * time.Millisecond)
		a.Set(300 * time.Millisecond)
		<-a.C
		if took := time.Since(begin); took < 305*time.Millisecond {
			t.Errorf("%s: rang after %v: the first time that was set still counts", name, took)
		}
		a.Close()
	}
}

func TestClosedAlarmLeavesNothingBehind(t *testing.T) {
	for _, open := range kinds {
		before := runtime.NumGoroutine()
		a := open()
		a.Set(time.Hour)
		a.Close()
		if now := runtime.NumGoroutine(); now > before {
			t.Errorf("%d goroutines after Close, %d before", now, before)
		}
	}
}

func TestCoarseAlarmRingsByTheTimeOfSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := alarm.Coarse()
		defer a.Close()
		begin := time.Now()
		a.Set(24 * time.Hour)
		<-a.C
		if took := time.Since(begin); took != 24*time.Hour {
			t.Errorf("rang after %v", took)
		}
	})
}

// BenchmarkAlarm measures how late an alarm of 5 ms rings in an idle process.
func BenchmarkAlarm(b *testing.B) {
	const d = 5 * time.Millisecond
	for name, open := range kinds {
		b.Run(name, func(b *testing.B) {
			a := open()
			defer a.Close()
			var late time.Duration
			for b.Loop() {
				begin := time.Now()
				a.Set(d)
				<-a.C
				late += time.Since(begin) - d
			}
			b.ReportMetric(float64(late.Microseconds())/float64(b.N), "µs-late/op")
		})
	}
}
