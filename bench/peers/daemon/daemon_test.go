package daemon

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServersAnswerAndLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(context.Context) (*Server, error){
		"postgres":   func(ctx context.Context) (*Server, error) { return StartPostgres(ctx, "shared_buffers=32MB") },
		"redis":      func(ctx context.Context) (*Server, error) { return StartRedis(ctx, AppendFsync(true)) },
		"beanstalkd": func(ctx context.Context) (*Server, error) { return StartBeanstalkd(ctx, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := dial(t.Context(), s.Addr()); err != nil {
				t.Error(err)
			}
			if !strings.Contains(strings.ToLower(s.Version()), name) {
				t.Errorf("version %q", s.Version())
			}
			for range 2 {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}
			if err := dial(t.Context(), s.Addr()); err == nil {
				t.Error("it still answers")
			}
			if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its folder: %v", err)
			}
		})
	}
}

func TestServerThatDoesNotComeUpSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := StartPostgres(t.Context(), "no_such_setting=1")
	if err == nil || !strings.Contains(err.Error(), "start postgres: ended at once") || !strings.Contains(err.Error(), "no_such_setting") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestMissingProgramIsOneLine(t *testing.T) {
	t.Parallel()
	_, err := spec{program: "no-such-server", pkg: "some-package"}.start(t.Context())
	var missing Missing
	if !errors.As(err, &missing) || err.Error() != "no-such-server not found: `make bench-peers` installs it where apt-get can (package some-package)" {
		t.Errorf("%v", err)
	}
}
