package dispatcher

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

var alarmKinds = map[string]bool{"precise": true, "coarse": false}

func TestAlarmRingsOncePerSetAndNotBefore(t *testing.T) {
	for name, exact := range alarmKinds {
		a := newAlarm(exact)
		for _, d := range []time.Duration{-1, 0, 1, time.Millisecond, 20 * time.Millisecond} {
			begin := time.Now()
			a.set(d)
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
		a.close()
	}
}

func TestAlarmIsSetAnew(t *testing.T) {
	for name, exact := range alarmKinds {
		a := newAlarm(exact)
		begin := time.Now()
		a.set(time.Hour)
		a.set(5 * time.Millisecond)
		<-a.C
		a.set(200 * time.Millisecond)
		a.set(300 * time.Millisecond)
		<-a.C
		if took := time.Since(begin); took < 305*time.Millisecond {
			t.Errorf("%s: rang after %v: the first time that was set still counts", name, took)
		}
		a.close()
	}
}

func TestClosedAlarmLeavesNothingBehind(t *testing.T) {
	for _, exact := range alarmKinds {
		before := runtime.NumGoroutine()
		a := newAlarm(exact)
		a.set(time.Hour)
		a.close()
		if now := runtime.NumGoroutine(); now > before {
			t.Errorf("%d goroutines after Close, %d before", now, before)
		}
	}
}

func TestCoarseAlarmRingsByTheTimeOfSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAlarm(false)
		defer a.close()
		begin := time.Now()
		a.set(24 * time.Hour)
		<-a.C
		if took := time.Since(begin); took != 24*time.Hour {
			t.Errorf("rang after %v", took)
		}
	})
}

// BenchmarkAlarm measures how late an alarm of 5 ms rings in an idle process.
func BenchmarkAlarm(b *testing.B) {
	const d = 5 * time.Millisecond
	for name, exact := range alarmKinds {
		b.Run(name, func(b *testing.B) {
			a := newAlarm(exact)
			defer a.close()
			var late time.Duration
			for b.Loop() {
				begin := time.Now()
				a.set(d)
				<-a.C
				late += time.Since(begin) - d
			}
			b.ReportMetric(float64(late.Microseconds())/float64(b.N), "µs-late/op")
		})
	}
}
