package loglimit

import (
	"bytes"
	"log/slog"
	"testing"
)

func TestWithoutALoggerWarningsAndErrorsGoToTheDefault(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(lines(&out))
	log := Or(nil)
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
	if own := lines(&out); Or(own) != own {
		t.Error("a logger is replaced")
	}
}

func TestALineThatIsLeftOutIsNotEnabled(t *testing.T) {
	var out bytes.Buffer
	var limit Limit
	log := lines(&out)
	if !limit.Of(log, "server").Enabled(t.Context(), slog.LevelWarn) || limit.Of(log, "server").Enabled(t.Context(), slog.LevelError) {
		t.Error("want the first line enabled, and not the second")
	}
}
