package nodetest

import (
	"context"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/webhook"
)

// The secret that signs the callbacks of a Receiver; the nodes of this package find it.
const (
	secretName  = "NODETEST_WEBHOOK_SECRET"
	secretValue = "whsec_bm9kZXRlc3Qgc2lnbnMgd2l0aCB0aGlzIGtleSE="
)

// getenv gives the nodes of this package the secret of a Receiver.
func getenv(name string) string {
	if name == secretName {
		return secretValue
	}
	return os.Getenv(name)
}

// Receiver stands in for the program that gets HTTP callbacks. It checks their signature and age as package webhook does, and
// keeps the tasks. Make one with NewReceiver. Safe for concurrent use.
type Receiver struct {
	url string

	mu    sync.Mutex
	tasks []webhook.Task
}

// NewReceiver starts one on a loopback port, until the test ends. answer says what becomes of a task, as in package webhook;
// it is called concurrently, with the task already kept; nil: all tasks are done. A callback that is refused, say for its
// signature, fails the test.
func NewReceiver(tb testing.TB, answer func(context.Context, webhook.Task) error) *Receiver {
	tb.Helper()
	r := &Receiver{}
	handler, err := webhook.New(webhook.Config{Secrets: []string{secretValue}, Failed: func(_ context.Context, task webhook.Task, err error) {
		if task.JobID == 0 {
			tb.Errorf("nodetest: a callback is refused: %v", err)
		}
	}}, func(ctx context.Context, task webhook.Task) error {
		r.keep(task)
		if answer == nil {
			return nil
		}
		return answer(ctx, task)
	})
	if err != nil {
		tb.Fatalf("nodetest: %v", err)
	}
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// Webhook is the target of a biz type whose callbacks the Receiver gets, for the policies of tocsintest.StartWith. The nodes of
// this package have its secret.
func (r *Receiver) Webhook() *biztype.Webhook {
	return &biztype.Webhook{URL: r.url, Secrets: []string{secretName}, Allow: []string{"127.0.0.0/8"}}
}

// Tasks returns what has come so far, a task once for each callback.
func (r *Receiver) Tasks() []webhook.Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tasks)
}

func (r *Receiver) keep(task webhook.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks = append(r.tasks, task)
}
