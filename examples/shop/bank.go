package main

import (
	"context"
	"errors"
	"sync"
)

// Bank stands in for a payment provider. A card of "0000" is refused; of the others, the first call for a payment fails, the
// second says "not yet", the third "paid".
type Bank struct {
	mu    sync.Mutex
	calls map[string]int // of each payment
}

// Charge implements Provider.
func (b *Bank) Charge(_ context.Context, key, card string, _ int64) (bool, error) {
	if card == "0000" {
		return false, ErrRefused
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		b.calls = map[string]int{}
	}
	b.calls[key]++
	switch b.calls[key] {
	case 1:
		return false, errors.New("the bank does not answer")
	case 2:
		return false, nil
	}
	return true, nil
}
