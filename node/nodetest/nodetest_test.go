package nodetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/tocsintest"
	"github.com/tocsinhq/tocsin/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tocsintest.Main(m)) }

var (
	remind = tocsin.Define[string]("cart.remind")
	expire = tocsin.Define[string]("cart.expire")
)

// A reminder adds the task that ends the cart a day later, in the transaction that completes it.
func remindThenExpire(t *testing.T, c *tocsintest.Cluster) *node.Handlers {
	t.Helper()
	h := &node.Handlers{}
	node.Handle(h, remind, func(ctx context.Context, task *tocsin.Task[string]) error {
		if task.Attempts == 0 {
			return tocsin.RetryIn(time.Hour, errors.New("no mail server"))
		}
		tx, err := c.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := c.Client.AddTx(ctx, tx, expire.New(task.BizID, task.Payload, tocsin.In(24*time.Hour))); err != nil {
			return err
		}
		if err := tocsin.CompleteTx(ctx, tx, task.Info); err != nil {
			return err
		}
		return tx.Commit()
	})
	return h
}

// add stores a task.
func add(t *testing.T, c *tocsintest.Cluster, task tocsin.NewTask) {
	t.Helper()
	if _, err := c.Client.Add(t.Context(), task); err != nil {
		t.Fatal(err)
	}
}

func texts(all []nodetest.Delivery) (lines []string) {
	for _, d := range all {
		lines = append(lines, d.String())
	}
	return lines
}

func TestRunDueDeliversAChainOfDaysNow(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, remind, expire)
	h := remindThenExpire(t, c)
	var expired []string
	node.HandleBatch(h, expire, 10, func(_ context.Context, tasks []*tocsin.Task[string]) []error {
		for _, task := range tasks {
			expired = append(expired, task.Payload)
		}
		return nil
	})
	var wrapped sync.Map
	h.Use(func(next node.HandlerFunc) node.HandlerFunc {
		return func(ctx context.Context, tasks []tocsin.Info) []error {
			wrapped.Store(tasks[0].BizType, true)
			return next(ctx, tasks)
		}
	})
	for n, in := range []time.Duration{0, 72 * time.Hour} {
		add(t, c, remind.New(uint64(n+1), fmt.Sprint("cart-", n+1), tocsin.In(in)))
	}

	got := texts(nodetest.RunDue(t, c, h, time.Now().Add(2*time.Hour)))
	if want := []string{"cart.remind 1: retry: no mail server", "cart.remind 1: complete"}; !slices.Equal(got, want) {
		t.Errorf("within two hours: %q, want %q", got, want)
	}
	got = texts(nodetest.RunDue(t, c, h, time.Now().Add(100*time.Hour)))
	slices.Sort(got)
	if want := []string{"cart.expire 1: complete", "cart.expire 2: complete", "cart.remind 2: complete", "cart.remind 2: retry: no mail server"}; !slices.Equal(got, want) {
		t.Errorf("within 100 hours: %q, want %q", got, want)
	}
	slices.Sort(expired)
	if !slices.Equal(expired, []string{"cart-1", "cart-2"}) {
		t.Errorf("expired %q", expired)
	}
	for _, biz := range []string{remind.Name(), expire.Name()} {
		if _, ok := wrapped.Load(biz); !ok {
			t.Errorf("the middleware did not see %s", biz)
		}
	}
}

func TestABusinessKeyIsInLinesAndDeliveries(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, remind)
	add(t, c, remind.NewKey("ord_1", "x", tocsin.In(0)))
	add(t, c, remind.New(7, "x", tocsin.In(time.Hour)))
	var attrs []string
	h := handlers(func(ctx context.Context, task *tocsin.Task[string]) error {
		attrs = append(attrs, fmt.Sprint(node.LogAttrs(ctx)))
		return nil
	}, remind)
	all := nodetest.RunDue(t, c, h, time.Now().Add(2*time.Hour))
	if got, want := texts(all), []string{"cart.remind ord_1: complete", "cart.remind 7: complete"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	want := []string{
		fmt.Sprintf("[biz_type=cart.remind job_id=%s biz_id=%d biz_key=ord_1 attempt=1]", all[0].Task.JobID, tocsin.KeyID("ord_1")),
		fmt.Sprintf("[biz_type=cart.remind job_id=%s biz_id=7 attempt=1]", all[1].Task.JobID),
	}
	if !slices.Equal(attrs, want) {
		t.Errorf("attributes %q, want %q", attrs, want)
	}
}

func TestRunDueLeavesWhatIsPausedHasNoHandlerOrANewerPayload(t *testing.T) {
	t.Parallel()
	late := tocsin.Define[string]("cart.late")
	c := tocsintest.StartWith(t, biztype.Policy{Name: remind.Name(), Number: 1, Group: tocsintest.Group, Paused: true},
		biztype.Policy{Name: expire.Name(), Number: 2, Group: tocsintest.Group}, biztype.Policy{Name: late.Name(), Number: 3, Group: tocsintest.Group})
	for _, task := range []tocsin.NewTask{remind.New(1, "x", tocsin.In(time.Hour)), late.New(1, "x", tocsin.In(time.Hour)), expire.Version(2).New(1, "x", tocsin.In(time.Hour))} {
		add(t, c, task)
	}
	before := rows(t, c, 1)
	if got := nodetest.RunDue(t, c, handlers(done, remind, expire), time.Now().Add(2*time.Hour)); len(got) != 0 {
		t.Errorf("delivered %q", texts(got))
	}
	for i, row := range rows(t, c, 1) {
		if !row.ActionTime.Equal(before[i].ActionTime) || row.Status != tocsin.Pending || row.Attempts != 0 {
			t.Errorf("%+v, before %+v", row, before[i])
		}
	}
	if got := nodetest.RunDue(t, c, handlers(done, expire.Version(2)), time.Now().Add(2*time.Hour)); len(got) != 1 || got[0].Task.PayloadVersion != 2 {
		t.Errorf("delivered %q", texts(got))
	}
}

func rows(t *testing.T, c *tocsintest.Cluster, bizID uint64) []tocsin.Info {
	t.Helper()
	all, err := c.Client.List(t.Context(), bizID)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRunDueKeepsTheOrderOfTime(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, remind, expire)
	for n, in := range []time.Duration{5 * time.Hour, time.Hour, 3 * time.Hour, 0} {
		add(t, c, remind.New(uint64(n+1), "", tocsin.In(in)))
	}
	add(t, c, expire.New(9, "", tocsin.In(4*time.Hour)))
	h := &node.Handlers{}
	node.Handle(h, remind, func(ctx context.Context, task *tocsin.Task[string]) error {
		if task.BizID == 3 { // an hour before the other is due
			_, err := c.Client.Cancel(ctx, expire.Of(9))
			return err
		}
		return nil
	})
	node.Handle(h, expire, done)
	got := texts(nodetest.RunDue(t, c, h, time.Now().Add(24*time.Hour)))
	if want := []string{"cart.remind 4: complete", "cart.remind 2: complete", "cart.remind 3: complete", "cart.remind 1: complete"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAReceiverGetsCallbacks(t *testing.T) {
	t.Parallel()
	receiver := nodetest.NewReceiver(t, func(_ context.Context, task webhook.Task) error {
		if task.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	c := tocsintest.StartWith(t, biztype.Policy{Name: remind.Name(), Number: 1, Group: tocsintest.Group, Webhook: receiver.Webhook()})
	add(t, c, remind.New(7, "cart-7", tocsin.In(time.Hour)))
	got := texts(nodetest.RunDue(t, c, nil, time.Now().Add(2*time.Hour)))
	if want := []string{"cart.remind 7: retry: callback answered 500 Internal Server Error: not yet", "cart.remind 7: complete"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	tasks := receiver.Tasks()
	if len(tasks) != 2 || tasks[0].Payload != "cart-7" || tasks[1].Attempt != 2 || tasks[0].Key != tasks[1].Key {
		t.Errorf("received %+v", tasks)
	}
}

// fatal is a test that notes the line it ends with.
type fatal struct {
	testing.TB
	line string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.line = fmt.Sprintf(format, args...)
	panic(f)
}

func TestRunDueEndsWithAChainThatNeverEnds(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, remind)
	add(t, c, remind.New(1, "x", tocsin.In(0)))
	h := handlers(func(ctx context.Context, task *tocsin.Task[string]) error {
		_, err := c.Client.Add(ctx, remind.New(task.BizID, "", tocsin.In(0)))
		return err
	}, remind)
	f := &fatal{TB: t}
	defer func() {
		if p := recover(); p != f || !strings.Contains(f.line, "101 deliveries within a second of its clock, and more are due") {
			t.Errorf("it ended with %v, %q", p, f.line)
		}
	}()
	nodetest.RunDue(f, c, h, time.Now().Add(time.Hour))
}

// A task that is put off is delivered again at its time, as often as that comes within the span.
func TestATaskThatIsPutOffEachTenMinutesComesSixTimesInAnHour(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, remind)
	due := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	add(t, c, remind.New(1, "x", tocsin.At(due)))
	h := handlers(func(context.Context, *tocsin.Task[string]) error { return tocsin.Snooze(10 * time.Minute) }, remind)
	if got := nodetest.RunDue(t, c, h, due.Add(59*time.Minute)); len(got) != 6 {
		t.Errorf("%d deliveries: %q", len(got), texts(got))
	}
	if got := nodetest.RunDue(t, c, h, due.Add(71*time.Minute)); len(got) != 2 {
		t.Errorf("in the next 12 minutes %d deliveries: %q", len(got), texts(got))
	}
}

func TestANodeRunsWithoutEtcd(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, remind)
	payloads := make(chan string, 1)
	h := handlers(func(_ context.Context, task *tocsin.Task[string]) error {
		payloads <- task.Payload
		return nil
	}, remind)
	n, err := node.New(nodetest.Config(t, c), h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	add(t, c, remind.New(1, "x", tocsin.In(0)))
	select {
	case got := <-payloads:
		if got != "x" {
			t.Errorf("got %q", got)
		}
	case err := <-ended:
		t.Fatalf("the node ended: %v", err)
	case <-time.After(time.Minute):
		t.Error("waited too long for the delivery")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
