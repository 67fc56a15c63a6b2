package client

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/internal/name"
)

// refreshEvery bounds how often unknown names ask the database, 50 times a second: it must be less than it takes to apply a biz
// type after its name was refused.
const refreshEvery = 20 * time.Millisecond

// BizTypes knows the numbers of the biz types. A number never changes its name,
// so what is known is never read again; only an unknown name is worth asking.
// Safe for concurrent use.
type BizTypes struct {
	read func(context.Context) (map[string]uint64, error)
	now  atomic.Pointer[bizNames]

	reads  chan struct{} // full while somebody reads; guards what follows. Of size 1
	asked  time.Time
	failed error // of that reading
}

type bizNames struct {
	number map[string]uint64
	name   map[uint64]string
}

// number returns the number of a biz type. Its error is ErrInvalid for an invalid
// name, ErrUnknownBizType, or the database's.
func (b *BizTypes) number(ctx context.Context, bizType string) (uint64, error) {
	if n, ok := b.known().number[bizType]; ok {
		return n, nil
	}
	if err := name.CheckLower("biz type", bizType); err != nil {
		return 0, Refuse(ErrInvalid, "%s", err)
	}
	if err := b.Refresh(ctx); err != nil {
		return 0, err
	}
	if n, ok := b.known().number[bizType]; ok {
		return n, nil
	}
	return 0, Refuse(ErrUnknownBizType, "unknown biz type %q: apply it with 'tocsin biz apply'", bizType)
}

// Name returns the name of a number, "#7" where it has none.
func (b *BizTypes) Name(ctx context.Context, number uint64) string {
	if name, ok := b.known().name[number]; ok {
		return name
	}
	_ = b.Refresh(ctx) // the number itself says enough
	if name, ok := b.known().name[number]; ok {
		return name
	}
	return "#" + strconv.FormatUint(number, 10)
}

// Numbers returns the numbers that are known, by name.
func (b *BizTypes) Numbers() map[string]uint64 { return b.known().number }

func (b *BizTypes) known() *bizNames {
	if k := b.now.Load(); k != nil {
		return k
	}
	return &bizNames{}
}

// lock waits until nobody else reads the names, or ctx ends: another call's reading may hang.
func (b *BizTypes) lock(ctx context.Context) error {
	select {
	case b.reads <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *BizTypes) unlock() { <-b.reads }

// askAgain lets the next question about an unknown name read the names, however short a time ago they were read.
func (b *BizTypes) askAgain(ctx context.Context) {
	if b.lock(ctx) == nil {
		defer b.unlock()
		b.asked = time.Time{}
	}
}

// Refresh reads the names unless that was done less than refreshEvery ago.
func (b *BizTypes) Refresh(ctx context.Context) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if !b.asked.IsZero() && time.Since(b.asked) < refreshEvery {
		return b.failed
	}
	numbers, err := b.read(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // of this caller alone
	}
	b.asked, b.failed = time.Now(), err
	if err == nil {
		b.set(numbers)
	}
	return err
}

func (b *BizTypes) set(numbers map[string]uint64) {
	names := make(map[uint64]string, len(numbers))
	for name, n := range numbers {
		names[n] = name
	}
	b.now.Store(&bizNames{number: numbers, name: names})
}
