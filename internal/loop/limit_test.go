package loop

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// lines returns a logger of lines without times.
func lines(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestACauseIsToldAtOnceThenOnceAMinuteWithWhatWasLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var limit LogLimit
		log := lines(&out)
		fail := func(n int) {
			for range n {
				limit.Of(log, "server db1").Warn("server does not answer", "server", "db1")
			}
		}
		fail(42)
		limit.Of(log, "server db2").Warn("server does not answer", "server", "db2")
		time.Sleep(time.Minute - time.Nanosecond)
		fail(1)
		time.Sleep(time.Nanosecond)
		fail(2)
		time.Sleep(time.Hour)
		fail(1)
		want := `level=WARN msg="server does not answer" server=db1
level=WARN msg="server does not answer" server=db2
level=WARN msg="server does not answer" suppressed=42 server=db1
level=WARN msg="server does not answer" suppressed=1 server=db1
`
		if got := out.String(); got != want {
			t.Errorf("wrote\n%swant\n%s", got, want)
		}
	})
}

func TestCausesBeyondTheBoundShareALineUntilOthersHaveEnded(t *testing.T) {
	start := time.Unix(0, 0)
	var limit LogLimit
	said := func(at time.Time, from, to int) (n int) {
		for i := from; i < to; i++ {
			if _, ok := limit.take(fmt.Sprint(i), at); ok {
				n++
			}
		}
		return n
	}
	if n := said(start, 0, 10*causes); n != causes+1 {
		t.Errorf("%d lines of %d causes, want one each of %d and one of all others", n, 10*causes, causes)
	}
	if n := said(start.Add(interval), causes, 2*causes); n != causes {
		t.Errorf("%d lines of %d new causes after the old ones have ended, want one each", n, causes)
	}
	if len(limit.known) > causes+1 {
		t.Errorf("knows %d causes", len(limit.known))
	}
}

// In any sequence of lines, a cause writes at most one line a minute, no line is held back after a minute of silence,
// and all lines left out are counted.
func TestNoLineTooManyAndNoneUncounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var limit LogLimit
		now := time.Unix(0, 0)
		last := make(map[string]time.Time)
		asked, told := make(map[string]int), make(map[string]int)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, 1, time.Second, interval / 2, interval}).Draw(t, "passes"))
			what := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "cause")
			before, wrote := last[what]
			suppressed, ok := limit.take(what, now)
			if may := !wrote || now.Sub(before) >= interval; ok != may {
				t.Fatalf("%s at %v, last written %v: %t", what, now, before, ok)
			}
			asked[what]++
			if ok {
				last[what] = now
				told[what] += suppressed + 1
				if told[what] != asked[what] {
					t.Fatalf("%s was asked for %d lines, %d are told", what, asked[what], told[what])
				}
			}
		}
	})
}

func TestManyAtOnceWriteOneLine(t *testing.T) {
	var out bytes.Buffer
	var limit LogLimit
	log := lines(&out)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { limit.Of(log, "server").Warn("away") })
	}
	all.Wait()
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

func TestWithoutALoggerWarningsAndErrorsGoToTheDefault(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(lines(&out))
	log := Logger(nil)
	for _, log := range []*slog.Logger{log, log.With("server", "db1"), log.WithGroup("tocsin")} {
		log.Debug("polled")
		log.Info("took tables")
		log.Warn("server hangs", "waiting", "1s")
		log.Error("table can't be peeked")
	}
	want := `level=WARN msg="server hangs" waiting=1s
level=ERROR msg="table can't be peeked"
level=WARN msg="server hangs" server=db1 waiting=1s
level=ERROR msg="table can't be peeked" server=db1
level=WARN msg="server hangs" tocsin.waiting=1s
level=ERROR msg="table can't be peeked"
`
	if got := out.String(); got != want {
		t.Errorf("wrote\n%swant\n%s", got, want)
	}
	if own := lines(&out); Logger(own) != own {
		t.Error("a logger is replaced")
	}
}

func TestALineThatIsLeftOutIsNotEnabled(t *testing.T) {
	var out bytes.Buffer
	var limit LogLimit
	log := lines(&out)
	if !limit.Of(log, "server").Enabled(t.Context(), slog.LevelWarn) || limit.Of(log, "server").Enabled(t.Context(), slog.LevelError) {
		t.Error("want the first line enabled, and not the second")
	}
}
