package tocsintest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/tocsintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tocsintest.Main(m)) }

type unpaid struct{ Order string }

var closeOrder = tocsin.Define[unpaid]("order.close")

// closeUnpaid is a handler as a service has it.
func closeUnpaid(_ context.Context, task *tocsin.Task[unpaid]) error {
	switch {
	case task.Payload.Order == "":
		return tocsin.Bury(errors.New("no order number"))
	case task.Payload.Order == "crash":
		panic("out of paper")
	case task.Attempts == 0:
		return tocsin.RetryIn(5*time.Second, errors.New("no stock"))
	case task.ActionTime.Before(time.Now().Add(-time.Hour)):
		return tocsin.Snooze(time.Minute)
	}
	return nil
}

func TestDeliverSaysWhatANodeWouldDo(t *testing.T) {
	t.Parallel()
	order := unpaid{Order: "A-1"}
	for name, c := range map[string]struct {
		payload unpaid
		options []tocsintest.Option
		want    string
	}{
		"the first attempt fails": {order, nil, "retry in 5s: no stock"},
		"the second one does not": {order, []tocsintest.Option{tocsintest.Attempts(1)}, "complete"},
		"it is late":              {order, []tocsintest.Option{tocsintest.Attempts(1), tocsintest.Late(2 * time.Hour)}, "snooze in 1m0s"},
		"it is wrong":             {unpaid{}, nil, "bury: no order number"},
		"it panics":               {unpaid{"crash"}, nil, "retry: panic: out of paper"},
	} {
		if got := tocsintest.Deliver(t.Context(), closeUnpaid, closeOrder, c.payload, c.options...).String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestDeliverReportsAPayloadThatCannotBeStored(t *testing.T) {
	t.Parallel()
	none := func(context.Context, *tocsin.Task[any]) error { return nil }
	for want, payload := range map[string]any{
		"unsupported value: NaN":               math.NaN(),
		"payload has 8193 characters: at most": strings.Repeat("ü", tocsin.MaxPayload-1),
	} {
		got := tocsintest.Deliver(t.Context(), none, tocsin.Define[any]("a"), payload)
		if got.Verb != tocsin.Retried || !strings.Contains(got.Reason, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	text := func(context.Context, *tocsin.Task[string]) error { return nil }
	if got := tocsintest.Deliver(t.Context(), text, tocsin.Define[string]("a"), "\xff"); got.Verb != tocsin.Retried || got.Reason != "payload is not UTF-8" {
		t.Errorf("got %s", got)
	}
}

// A node does the same: see TestAPayloadThatDoesNotDecodeWaitsForAProgramThatReadsIt there.
func TestDeliverRetriesAPayloadThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	older := func(i *tocsin.Info) { i.Payload = "A-1" } // as the last version of the program wrote it
	got := tocsintest.Deliver(t.Context(), closeUnpaid, closeOrder, unpaid{"A-1"}, older)
	if got.Verb != tocsin.Retried || got.In != -1 || !strings.Contains(got.Reason, "payload of task 1 is not a tocsintest_test.unpaid") {
		t.Errorf("got %s", got)
	}
}

// stored names the biz types that are stored, with number, group and attempts.
func stored(t *testing.T, c *tocsintest.Cluster) string {
	t.Helper()
	policies, err := biztype.Load(t.Context(), c.Config)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range policies {
		all = append(all, fmt.Sprint(p.Name, " ", p.Number, " ", p.WithDefaults().Group, " ", p.WithDefaults().Attempts))
	}
	return strings.Join(all, ", ")
}

func TestStartWithTakesPolicies(t *testing.T) {
	t.Parallel()
	policies := []biztype.Policy{
		{Name: "order.close", Number: 42, Group: "shop"},
		{Name: "order.ship", Number: 43},
		{Name: "order.tell", Number: 44, Webhook: &biztype.Webhook{URL: "http://127.0.0.1/"}},
	}
	c := tocsintest.StartWith(t, policies...)
	if got, want := stored(t, c), "order.close 42 shop 16, order.ship 43 test 16, order.tell 44 callback 16"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	if policies[1].Group != "" {
		t.Errorf("the caller's policy has got the group %s", policies[1].Group)
	}
}

func ExampleDeliver() {
	remind := tocsin.Define[string]("coupon.remind")
	handler := func(_ context.Context, task *tocsin.Task[string]) error {
		if task.Payload == "expired" {
			return tocsin.Bury(errors.New("coupon has expired"))
		}
		return nil
	}
	fmt.Println(tocsintest.Deliver(context.Background(), handler, remind, "ten percent"))
	fmt.Println(tocsintest.Deliver(context.Background(), handler, remind, "expired"))
	// Output:
	// complete
	// bury: coupon has expired
}

func ExampleStart() {
	var t *testing.T // of the test
	placeOrder := func() {
		c := tocsintest.Start(t, closeOrder)
		_, err := c.Client.Add(t.Context(), closeOrder.New(7, unpaid{"A-1"}, tocsin.In(30*time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = placeOrder
}

func TestStartTakesThePoliciesOfDefine(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, closeOrder, tocsin.Define[string]("order.ship", tocsin.Policy{Attempts: 3}))
	if got, want := stored(t, c), "order.close 1 test 16, order.ship 2 test 3"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}
