package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/outbox/relay"
)

func (s *Site) startRelays(ctx context.Context) error {
	for _, at := range s.seats[s.opts.Nodes:] {
		if err := s.sit(at); err != nil {
			return err
		}
	}
	for i := range s.shops {
		if s.active(ctx, i) == nil {
			return fmt.Errorf("no relay takes outbox %d", i)
		}
	}
	return nil
}

// relay relays all outboxes until ctx ends.
func (r role) relay(ctx context.Context) error {
	all, err := relay.New(r.relayConfig(r.Outboxes))
	if err != nil {
		return err
	}
	return all.Run(ctx)
}

func (r role) relayConfig(outboxes []outbox.Config) relay.Config {
	return relay.Config{Tables: r.Tables, Outboxes: tocsinpg.Drive(outboxes), Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
}

// relayUnlocked relays all outboxes until ctx ends, whoever has their locks.
func (r role) relayUnlocked(ctx context.Context) error {
	tasks, err := tocsin.Open(ctx, r.Tables)
	if err != nil {
		return err
	}
	defer func() { _ = tasks.Close() }()
	var all sync.WaitGroup
	for _, from := range r.Outboxes {
		cfg := r.relayConfig([]outbox.Config{from})
		all.Go(func() {
			for ctx.Err() == nil {
				if err := relay.Turn(ctx, cfg, client.MoverOf(tasks)); err != nil && ctx.Err() == nil {
					fmt.Fprintf(os.Stderr, "%s: %v\n", from.Name, err)
				}
				_ = loop.Wait(ctx, 100*time.Millisecond) // the loop ends with ctx
			}
		})
	}
	all.Wait()
	return nil
}

// activeLine is what a relay logs when it has taken the lock of an outbox.
const activeLine = "outbox is relayed by this process"

// activeWithin is how long an outbox may be without an active relay.
const activeWithin = 2 * time.Minute

// active returns the seat of the relay that took the lock of an outbox last; nil: nobody did for long.
func (s *Site) active(ctx context.Context, shop int) *seat {
	ctx, cancel := context.WithTimeout(ctx, activeWithin)
	defer cancel()
	for ctx.Err() == nil {
		took := map[time.Time]*seat{}
		for _, at := range s.seats {
			if when := at.tookLock(s.shops[shop].config().Name); !when.IsZero() {
				took[when] = at
			}
		}
		if len(took) > 0 {
			return took[slices.MaxFunc(slices.Collect(maps.Keys(took)), time.Time.Compare)]
		}
		_ = loop.Wait(ctx, 50*time.Millisecond) // the loop ends with ctx
	}
	return nil
}

// tookLock tells when the process in the seat took the lock of an outbox last; zero: it has not.
func (at *seat) tookLock(outbox string) (last time.Time) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.proc == nil || !at.proc.Alive() {
		return last
	}
	eachLine(at.log, func(text []byte) {
		var line struct {
			Time        time.Time
			Msg, Outbox string
		}
		if json.Unmarshal(text, &line) == nil && line.Msg == activeLine && line.Outbox == outbox {
			last = line.Time
		}
	})
	return last
}

// harmActive kills the process whose relay is active, or freezes it until another one is, which takes longer on a busy machine.
func (s *Site) harmActive(ctx context.Context, step Step) (undo, error) {
	at := s.active(ctx, step.Shop)
	if at == nil {
		return nil, errors.New("no relay is active")
	}
	harm := Step{Fault: KillNode, Node: slices.Index(s.seats, at), Length: step.Length}
	if step.Fault == FreezeActive {
		harm.Fault = FreezeNode
	}
	noted := s.log.begin(harm)
	end, err := s.harmProcess(ctx, harm.Fault, at)
	return func(late context.Context) error {
		defer noted()
		bounded, cancel := context.WithTimeout(ctx, activeWithin)
		defer cancel()
		for step.Fault == FreezeActive && s.active(bounded, step.Shop) == at && loop.Wait(bounded, 50*time.Millisecond) == nil {
		}
		return end(late)
	}, err
}
