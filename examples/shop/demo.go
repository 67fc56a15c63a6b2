package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Demo places three orders: one is paid, one is paid with a card that the bank refuses, one is forgotten. It returns when
// the first is paid and the others are closed.
func Demo(ctx context.Context, url string, s *Shop) error {
	begun := time.Now()
	want := map[uint64]string{}
	for i, card := range []string{"4242", "0000", ""} {
		var order Order
		if err := post(ctx, url+"/orders", Order{Item: "book", Cents: int64(990 + i)}, &order); err != nil {
			return err
		}
		want[order.ID] = Closed
		if card == "" {
			continue
		}
		if card != "0000" {
			want[order.ID] = Paid
		}
		if err := post(ctx, fmt.Sprintf("%s/orders/%d/payment", url, order.ID), map[string]string{"card": card}, &struct{}{}); err != nil {
			return err
		}
	}
	for id, state := range want {
		if err := s.await(ctx, id, state); err != nil {
			return err
		}
	}
	s.Log.Info("all orders are as they should be", "after", time.Since(begun).Round(time.Millisecond))
	return nil
}

// post sends JSON, and reads the answer into got.
func post(ctx context.Context, url string, body, got any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(got)
}

// await waits until an order is in a state.
func (s *Shop) await(ctx context.Context, id uint64, state string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		order, err := s.Order(ctx, id)
		if err != nil || order.State == state {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("order %d is %s, not %s: %w", id, order.State, state, ctx.Err())
		case <-tick.C:
		}
	}
}
