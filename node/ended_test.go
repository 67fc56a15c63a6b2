package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestWhatTheEndOfAnEngineMeans(t *testing.T) {
	t.Parallel()
	broken, canceled := errors.New("out of paper"), fmt.Errorf("read: %w", context.Canceled)
	for name, c := range map[string]struct {
		over bool // its context has ended
		err  error
		want string
	}{
		"in time":                        {true, nil, ""},
		"in time, with its context's":    {true, canceled, ""},
		"in time, with an error":         {true, broken, "scanner: out of paper"},
		"too soon":                       {false, nil, "scanner has ended before its time"},
		"too soon, with another's":       {false, canceled, "scanner: read: context canceled"},
		"too soon, with an error":        {false, broken, "scanner: out of paper"},
		"in time, with a late statement": {true, context.DeadlineExceeded, "scanner: context deadline exceeded"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if c.over {
			cancel()
		}
		got := ""
		if err := ended(ctx, "scanner", c.err); err != nil {
			got = err.Error()
		}
		cancel()
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
