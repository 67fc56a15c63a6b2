package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// newShop is a shop whose database is on a private server, beside Tocsin's.
func newShop(t *testing.T) (*Shop, *tocsintest.Cluster) {
	t.Helper()
	cluster := tocsintest.Start(t, OrderClose, PaymentCheck, ReceiptSend)
	s := &Shop{
		DB: cluster.DB, Tasks: cluster.Client, Provider: &Bank{}, PayIn: 30 * time.Minute,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if err := s.MakeTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, cluster
}

func (s *Shop) place(t *testing.T) uint64 {
	t.Helper()
	order, err := s.Place(t.Context(), "book", 990)
	if err != nil {
		t.Fatal(err)
	}
	return order.ID
}

func (s *Shop) state(t *testing.T, id uint64) string {
	t.Helper()
	order, err := s.Order(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return order.State
}

func TestAnOrderThatNobodyPaysIsClosedAfterHalfAnHour(t *testing.T) {
	t.Parallel()
	s, cluster := newShop(t)
	id := s.place(t)
	if early := nodetest.RunDue(t, cluster, s.Handlers(), time.Now().Add(29*time.Minute)); len(early) != 0 || s.state(t, id) != Unpaid {
		t.Errorf("after 29 minutes: %v, %s", early, s.state(t, id))
	}
	nodetest.RunDue(t, cluster, s.Handlers(), time.Now().Add(31*time.Minute))
	if got := s.state(t, id); got != Closed {
		t.Errorf("after 31 minutes: %s", got)
	}
}

func TestAPaidOrderIsNotClosed(t *testing.T) {
	t.Parallel()
	s, cluster := newShop(t)
	id := s.place(t)
	for range 2 { // two clicks, one payment
		if err := s.Pay(t.Context(), id, "4242"); err != nil {
			t.Fatal(err)
		}
	}
	var story []string
	for _, delivery := range nodetest.RunDue(t, cluster, s.Handlers(), time.Now().Add(time.Hour)) {
		story = append(story, delivery.Task.BizType+" "+delivery.Outcome.Verb.String())
	}
	want := []string{"payment.check retry", "payment.check snooze", "payment.check complete", "receipt.send complete"}
	if !slices.Equal(story, want) || s.state(t, id) != Paid {
		t.Errorf("%s: %q, want %q", s.state(t, id), story, want)
	}
}

func TestARefusedCardLeavesADeadTaskAndTheOrderIsClosed(t *testing.T) {
	t.Parallel()
	s, cluster := newShop(t)
	id := s.place(t)
	if err := s.Pay(t.Context(), id, "0000"); err != nil {
		t.Fatal(err)
	}
	nodetest.RunDue(t, cluster, s.Handlers(), time.Now().Add(time.Hour))
	tasks, err := cluster.Client.List(t.Context(), id)
	if err != nil || len(tasks) != 2 || tasks[1].Status != tocsin.Dead || tasks[1].LastError != "payment refused" || s.state(t, id) != Closed {
		t.Errorf("%s: %+v, %v", s.state(t, id), tasks, err)
	}
}

func TestDeliverNeedsNoServer(t *testing.T) {
	t.Parallel()
	s := &Shop{Log: slog.New(slog.DiscardHandler)}
	one := func(ctx context.Context, task *tocsin.Task[Receipt]) error {
		return s.sendReceipts(ctx, []*tocsin.Task[Receipt]{task})[0]
	}
	if got := tocsintest.Deliver(t.Context(), one, ReceiptSend, Receipt{Order: 7}); got.Verb != tocsin.Completed {
		t.Errorf("got %s", got)
	}
}

func TestWhatCustomersGetWrong(t *testing.T) {
	t.Parallel()
	s, _ := newShop(t)
	site := httptest.NewServer(s.Routes())
	defer site.Close()
	for name, c := range map[string]struct {
		path, body string
		want       int
	}{
		"no item":       {"/orders", `{"cents": 5}`, http.StatusBadRequest},
		"no JSON":       {"/orders", `five books`, http.StatusBadRequest},
		"no card":       {"/orders/1/payment", `{}`, http.StatusBadRequest},
		"no such order": {"/orders/99/payment", `{"card": "4242"}`, http.StatusNotFound},
	} {
		got, err := http.Post(site.URL+c.path, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", name, got.Status, c.want)
		}
	}
}
