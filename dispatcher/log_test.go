package dispatcher

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
)

// inBubbleLogged is inBubble with a log.
func inBubbleLogged(t *testing.T, p biztype.Policy, target handler, f func(*rig, *devtest.Log)) {
	t.Helper()
	var log devtest.Log
	inBubbleWith(t, p, target, func(c *Config) { c.Logger = log.Logger() }, func(r *rig) { f(r, &log) })
}

func TestASuccessMakesNoLogLine(t *testing.T) { eachWay(t, testASuccessMakesNoLogLine) }

func testASuccessMakesNoLogLine(t *testing.T) {
	var log devtest.Log
	k := &kind{d: &Dispatcher{cfg: Config{Logger: log.Logger()}}}
	completed := []result{{ending: ending{verb: tocsin.Completed}}}
	if n := testing.AllocsPerRun(100, func() { k.tell(completed, false); tellDead(completed, []store.Fate{store.Stored}) }); n != 0 {
		t.Errorf("%v allocations a success, want none", n)
	}
}

func TestABizTypeThatFailsIsLoggedOnceAMinuteAndHidesNoOther(t *testing.T) {
	eachWay(t, testABizTypeThatFailsIsLoggedOnceAMinuteAndHidesNoOther)
}

func testABizTypeThatFailsIsLoggedOnceAMinuteAndHidesNoOther(t *testing.T) {
	policies := []biztype.Policy{policy("order.close", 1), policy("coupon.remind", 2)}
	failing := handler(func(context.Context, tocsin.Info) error { return tocsin.RetryIn(time.Hour, errors.New("no answer")) })
	sinks := map[string]Sink{"order.close": failing, "coupon.remind": failing}
	var log devtest.Log
	inBubbleOf(t, policies, sinks, func(c *Config) { c.Logger = log.Logger() }, func(r *rig) {
		for i := range 600 { // ten a second for a minute
			r.add(0, 1, time.Duration(i)*100*time.Millisecond)
		}
		r.add(0, 2, 30*time.Second)
		r.add(0, 1, 65*time.Second)
		pass(66 * time.Second)
		lines := log.Lines("delivery failed")
		if len(lines) != 3 || lines[1]["biz_type"] != "coupon.remind" || lines[2]["suppressed"] != 599.0 {
			t.Errorf("logged %v", lines)
		}
	})
}

func TestAServerThatFailsIsLoggedAtOnceAndThenOnceAMinute(t *testing.T) {
	for name, c := range map[string]struct {
		statement string
		err       error
		message   string
	}{
		"it does not answer loads":   {"load", errLost, "server does not answer: its outcomes and due rows wait"},
		"it does not answer settles": {"settle", errLost, "server does not answer: its outcomes and due rows wait"},
		"it is read-only":            {"settle", &mysql.MySQLError{Number: 1290, Message: "read-only"}, "server takes no writes: its outcomes and due rows wait"},
		"it refuses loads":           {"load", errors.New("disk full"), "rows could not be loaded; trying again in a second"},
		"it refuses settles":         {"settle", errors.New("disk full"), "outcome could not be settled; it is set aside and tried again"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleLogged(t, policy("order.close", 1), succeeds, func(r *rig, log *devtest.Log) {
				var tries atomic.Int32
				r.store.fail(func(statement string, _ []tocsin.JobID) error {
					if statement != c.statement {
						return nil
					}
					tries.Add(1)
					return c.err
				})
				for range 100 {
					r.add(0, 1, 0)
				}
				pass(50 * time.Millisecond)
				if lines := log.Lines(); len(lines) != 1 || lines[0]["message"] != c.message {
					t.Errorf("at once: %v", lines)
				}
				pass(4*time.Minute + 30*time.Second)
				lines := log.Lines()
				if len(lines) < 4 || len(lines) > 5 || tries.Load() < 100 || lines[1]["suppressed"] == nil {
					t.Errorf("after %d tries in 4.5 minutes: %d lines: %v", tries.Load(), len(lines), lines)
				}
				r.store.fail(nil)
				pass(2 * time.Minute)
			})
		})
	}
}
