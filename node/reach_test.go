package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/rs/zerolog"
)

// fakeSites are two servers with two databases each.
type fakeSites struct {
	mu      sync.Mutex
	moved   []int // of server 0
	hangs   bool  // server 0
	refuses error // server 0
}

func (*fakeSites) Servers() []string            { return []string{"db1", "db2"} }
func (*fakeSites) DatabasesOf(server int) []int { return []int{2 * server, 2*server + 1} }

func (f *fakeSites) Retired(ctx context.Context, server int) ([]int, error) {
	f.mu.Lock()
	moved, hangs, err := f.moved, f.hangs, f.refuses
	f.mu.Unlock()
	if server > 0 {
		return nil, nil
	}
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return moved, err
}

func (f *fakeSites) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func TestDatabasesOutOfReachAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeSites{}
		reports := make(chan string, 10)
		r := newReach(f, zerolog.Nop(), func(databases []int) { reports <- fmt.Sprint(databases) })
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go r.run(ctx)
		wait := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			select {
			case got := <-reports:
				if got != want {
					t.Errorf("reported %s, want %q", got, want)
				}
			default:
				if want != "" {
					t.Errorf("nothing is reported, want %s", want)
				}
			}
		}
		wait(10*time.Second, "")
		f.set(func() { f.moved = []int{1} })
		wait(reachEvery, "[1]")
		f.set(func() { f.hangs = true })
		wait(reachEvery+reachTimeout, "")
		wait(reachEvery+reachTimeout, "[0 1]")
		f.set(func() { f.hangs, f.moved = false, nil })
		wait(reachEvery+reachTimeout, "[]")
		f.set(func() { f.refuses = driver.ErrInvalidConn })
		wait(reachEvery, "")
		f.set(func() { f.refuses = nil })
		wait(2*reachEvery, "") // one failure is no loss of sight
		f.set(func() { f.refuses = errors.New("no such table") })
		wait(10*reachEvery, "") // it would be so for everybody
	})
}
