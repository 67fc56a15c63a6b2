package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/dispatcher"
)

// fenceTimeout bounds the writing of one server's owner rows: a sick server
// must not hold up the tables of the others.
const fenceTimeout = 2 * time.Second

// fence writes a node's name into the owner rows of tables.
type fence interface {
	Own(ctx context.Context, group, node string, revisions map[int]int64) error
	ServerOf(table int) int
}

// intake is the dispatcher's side of ownership.
type intake interface {
	Admit(tables []int, owner string, claimOverdue bool)
	Drop(tables []int)
	Drain(ctx context.Context, tables []int) error
	Loosen(ctx context.Context, owner string) error
}

// scan is the scanner's side of ownership.
type scan interface {
	Own(tables []int)
	Disown(tables []int)
}

// holder carries out what the assignment decides: a table is taken in the order
// fence, intake, scan, and given up in the reverse. Tables whose fence can't be
// written, since their server is away for this node, are refused.
type holder struct {
	fence  fence
	intake intake
	scan   scan
	group  string
	node   func() string // id of the present incarnation
}

// Take fences the tables, all servers at once, and starts work on those that
// could be. The error, if any, is *assign.Refused.
func (h *holder) Take(ctx context.Context, revisions map[int]int64) error {
	var mu sync.Mutex
	var refused *assign.Refused
	var wg sync.WaitGroup
	for _, part := range h.byServer(revisions) {
		wg.Go(func() {
			err := h.take(ctx, part)
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if refused == nil {
				refused = &assign.Refused{Err: fmt.Errorf("write owner rows: %w", err)}
			}
			refused.Tables = append(refused.Tables, slices.Sorted(maps.Keys(part))...)
		})
	}
	wg.Wait()
	if refused == nil {
		return nil // not a nil *Refused in an error
	}
	return refused
}

// take starts work on tables of one server.
func (h *holder) take(ctx context.Context, revisions map[int]int64) error {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	owner := h.node()
	if err := h.fence.Own(ctx, h.group, owner, revisions); err != nil {
		return err
	}
	tables := slices.Sorted(maps.Keys(revisions))
	h.intake.Admit(tables, owner, true) // the last owner may have died with them
	h.scan.Own(tables)
	return nil
}

func (h *holder) byServer(revisions map[int]int64) map[int]map[int]int64 {
	parts := make(map[int]map[int]int64)
	for table, revision := range revisions {
		server := h.fence.ServerOf(table)
		if parts[server] == nil {
			parts[server] = make(map[int]int64)
		}
		parts[server][table] = revision
	}
	return parts
}

// Loosen claims what is in delivery: the owner's lease can't be proven any more.
func (h *holder) Loosen(ctx context.Context, owner string) error { return h.intake.Loosen(ctx, owner) }

// Drop ends work on tables; it returns when their keys may be deleted. An error
// is *assign.Refused: the outcomes of some tables can't be stored just now.
func (h *holder) Drop(ctx context.Context, tables []int) error {
	h.scan.Disown(tables)
	h.intake.Drop(tables)
	err := h.intake.Drain(ctx, tables)
	var stuck *dispatcher.Undrained
	if errors.As(err, &stuck) {
		return &assign.Refused{Tables: stuck.Tables, Err: err}
	}
	return err
}
