package node

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/dispatcher"
)

// stuckIntake can't drain table 3.
type stuckIntake struct{ intake }

func (stuckIntake) Drop([]int) {}

func (stuckIntake) Drain(context.Context, []int) error {
	return &dispatcher.Undrained{Tables: []int{3}, Err: context.DeadlineExceeded}
}

// noScan scans nothing.
type noScan struct{ scan }

func (noScan) Disown([]int) {}

func TestOnlyTheTablesThatAreStuckKeepTheirKeys(t *testing.T) {
	h := holder{intake: stuckIntake{}, scan: noScan{}}
	var refused *assign.Refused
	err := h.Drop(t.Context(), []int{1, 2, 3})
	if !errors.As(err, &refused) || !slices.Equal(refused.Tables, []int{3}) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
