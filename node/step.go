package node

import (
	"context"
	"slices"

	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/seam"
	"github.com/tocsinhq/tocsin/store"
	"github.com/tocsinhq/tocsin/sweeper"
)

func init() {
	seam.Step = func(config any, only map[uint64]bool) { config.(*Config).only = only }
	seam.Batch = func(handlers any, bizType string) int {
		if h := handlers.(*Handlers); h != nil {
			return h.targets[bizType].Batch
		}
		return 0
	}
}

// some are the tables of a sweep that shows only some tasks.
type some struct {
	sweeper.Tables
	only map[uint64]bool
}

// Peek leaves the others out.
func (s some) Peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	page, err := s.Tables.Peek(ctx, q)
	page.Entries = slices.DeleteFunc(page.Entries, func(e duequeue.Entry) bool { return !s.only[uint64(e.JobID)] })
	return page, err
}
