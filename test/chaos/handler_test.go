package chaos

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// odd is a delivery that goes wrong and the fate that its task must have.
type odd struct {
	kind     string
	do       string
	status   tocsin.Status
	attempts int
	text     string // in the last error
}

var odds = []odd{
	{"plain", doPanic, tocsin.Dead, attempts, "panic"},
	{"plain", doHang, tocsin.Dead, attempts, "timed out"},
	{"plain", doLate, tocsin.Done, -1, ""},
	{"strict", doPanic, tocsin.Dead, attempts, "panic"},
	{"strict", doLate, tocsin.Done, -1, ""},
	{"hook", doError, tocsin.Dead, attempts, "500"},
	{"hook", doGone, tocsin.Dead, -1, "410"},
	{"hook", doBusy, tocsin.Done, 0, "told later 1x"},
	{"hook", doDrip, tocsin.Dead, attempts, ""},
	{"hook", doReset, tocsin.Dead, attempts, ""},
}

// TestOddHandlersHurtOnlyTheirTasks: each task's fate is as its policy says, and the
// neighbours are on time.
func TestOddHandlersHurtOnlyTheirTasks(t *testing.T) {
	onlyLong(t)
	s := begin(t, small)
	const each = 10
	var entries []*entry
	s.under(Load{Rate: 200}, func(ctx context.Context) error {
		for _, o := range odds {
			var drafts []draft
			for range each {
				d := s.log.newTask(o.kind, time.Now(), Work{Do: o.do})
				drafts, entries = append(drafts, d), append(entries, d.entry)
			}
			s.addAll(ctx, drafts)
		}
		s.pause(40 * time.Second)
		return nil
	})
	r := s.verdict()
	s.fates(entries, each)
	if p99 := r.Times[timeCalm].Quantile(0.99); p99 > time.Second {
		t.Errorf("lateness of all p99 %s", p99)
	}
}

// fates compares the rows of odd tasks, each of them so often, with what they must be.
func (s *scenario) fates(entries []*entry, each int) {
	s.t.Helper()
	for i, e := range entries {
		o := odds[i/each]
		for _, r := range s.log.rows[e.BizID] {
			if r.Status != o.status || o.attempts >= 0 && r.Attempts != o.attempts || !strings.Contains(r.LastError, o.text) {
				s.t.Errorf("%s, %s: want %s after %d attempts with %q: %s", o.kind, o.do, o.status, o.attempts, o.text, r)
			}
		}
	}
}

// TestTaskThatKillsItsProcessIsBuried: at its fifth crash, and it consumes no attempt.
func TestTaskThatKillsItsProcessIsBuried(t *testing.T) {
	onlyLong(t)
	s := begin(t, Options{Servers: 1, Nodes: 3, Sweeper: true})
	var poison []draft
	s.under(Load{Rate: 100}, func(ctx context.Context) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		var g errgroup.Group
		for i := range s.seats {
			g.Go(func() error { return s.guard(ctx, i) })
		}
		poison = []draft{
			s.log.newTask("plain", time.Now().Add(time.Second), Work{Do: doExit}),
			s.log.newTask("strict", time.Now().Add(2*time.Second), Work{Do: doExit}),
		}
		s.addAll(ctx, poison)
		err := s.awaitBuried(ctx, poison)
		end()
		_ = g.Wait()
		return err
	})
	s.verdict()
	s.onlyBuried(poison)
}

// onlyBuried checks that no neighbour of a poison task was buried with it.
func (s *scenario) onlyBuried(poison []draft) {
	s.t.Helper()
	crashes := map[int]int{}
	for _, rows := range s.log.rows {
		r := rows[0]
		if r.BizID == poison[0].entry.BizID || r.BizID == poison[1].entry.BizID {
			continue
		}
		crashes[r.Crashes]++
		if r.Status == tocsin.Dead {
			s.t.Errorf("a neighbour was buried: biz_id %d, type %d, %s", r.BizID, r.BizType, r)
		}
	}
	s.t.Logf("neighbours by their number of crashes: %v", crashes)
}

// awaitBuried waits until the tasks are dead, by crashes alone.
func (s *scenario) awaitBuried(ctx context.Context, poison []draft) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	for _, d := range poison {
		for begin := time.Now(); ; {
			info, err := s.client.Get(ctx, d.entry.JobID)
			if err != nil {
				return err
			}
			if info.Status == tocsin.Dead {
				s.t.Logf("%s: dead %s after %d crashes and %d attempts: %s", d.entry.Type,
					time.Since(begin).Round(time.Second), info.Crashes, info.Attempts, info.LastError)
				if info.Attempts != 0 {
					s.t.Errorf("a crash consumed an attempt: %+v", info)
				}
				break
			}
			if err := loop.Wait(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// guard starts a node again each time that it ends by itself, until ctx ends.
func (s *Site) guard(ctx context.Context, i int) error {
	for {
		_ = s.seats[i].present().Wait(ctx)
		if ctx.Err() != nil {
			return nil
		}
		end := s.log.begin(Step{Fault: EndedNode, Node: i})
		if err := s.sit(s.seats[i]); err != nil {
			return err
		}
		end()
	}
}
