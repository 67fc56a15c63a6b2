package health

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestAHangBeginsAndEndsOnce(t *testing.T) {
	t.Parallel()
	const hangs, over = "server hangs: a statement has no answer", "server hangs no more"
	for name, c := range map[string]struct {
		waiting []time.Duration // one for each look
		says    []string
	}{
		"a statement that waits for a lock is no hang": {[]time.Duration{time.Second, 0, 1100 * time.Millisecond, 0}, nil},
		"a hang":                           {[]time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, []string{hangs}},
		"a hang that ends":                 {[]time.Duration{2 * time.Second, 3 * time.Second, 0, 0, 0, 0}, []string{hangs, over}},
		"the next statement hangs as well": {[]time.Duration{29 * time.Second, 0, time.Second, 2 * time.Second}, []string{hangs}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log devtest.Log
			h := New(Config{Servers: &fakeServers{}, Logger: log.Logger()})
			now, is := time.Now(), hang{}
			for _, waiting := range c.waiting {
				is = h.lookForHang(0, is, waiting, now)
				now = now.Add(hangOver / 3)
			}
			var says []string
			for _, line := range log.Lines() {
				says = append(says, fmt.Sprint(line["message"]))
			}
			if !slices.Equal(says, c.says) {
				t.Errorf("logged %v, want %q", log.Lines(), c.says)
			}
		})
	}
}
