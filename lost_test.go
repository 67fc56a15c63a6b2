package tocsin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// throughProxy is a client that reaches its server through a proxy.
func throughProxy(t *testing.T) (*tocsin.Client, *devtest.Proxy) {
	t.Helper()
	cfg := cluster(t)
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	return open(t, cfg), p
}

func TestALostConnectionNeverStoresATaskTwice(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]struct {
		before bool
		times  int
	}{
		"the acknowledgement is lost":       {false, 1},
		"the acknowledgement is lost twice": {false, 2},
		"the statement is lost":             {true, 1},
	} {
		for kind, task := range map[string]tocsin.NewTask{
			"near":              remind.New(11, "x", tocsin.In(0)),
			"far":               remind.New(11, "x", tocsin.In(day)),
			"with a key":        remind.New(11, "x", tocsin.In(day)).Dedup("k"),
			"near, with a key":  remind.New(11, "x", tocsin.In(0)).Dedup("k"),
			"with headers":      remind.New(11, "x", tocsin.In(0)).Header("a", "b"),
			"an empty one":      remind.New(11, "", tocsin.In(day)),
			"one not of ASCII ": remind.New(11, "ü", tocsin.In(day)),
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				c, p := throughProxy(t)
				p.BreakAt("/* tocsin add */", broken.before, broken.times)
				added := add(t, c, task)
				one(t, c, p, added, broken.times)
			})
			t.Run(name+"/"+kind+"/many", func(t *testing.T) {
				t.Parallel()
				c, p := throughProxy(t)
				p.BreakAt("/* tocsin add many */", broken.before, broken.times)
				added := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{task}))
				one(t, c, p, added[0], broken.times)
			})
		}
	}
}

// one demands that there is one task, the one that was added.
func one(t *testing.T, c *tocsin.Client, p *devtest.Proxy, added tocsin.Added, broken int) {
	t.Helper()
	list := must[[]tocsin.Info](t)(c.List(t.Context(), 11))
	if p.Breaks() != broken {
		t.Errorf("%d connections broke, not %d", p.Breaks(), broken)
	}
	if added.Existing || len(list) != 1 || list[0].JobID != added.JobID {
		t.Errorf("added %+v, there are %d", added, len(list))
	}
}

func TestWhatCannotBeAskedAgainIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{"Add": "/* tocsin add */", "AddMany": "/* tocsin add many */"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := throughProxy(t)
			p.BreakAt(statement, false, 1)
			p.DownAtBreak()
			id, err := addOne(p.EndAfterBreak(t, time.Second), c, name)
			if !errors.Is(err, tocsin.ErrUnknownOutcome) || id == 0 || !strings.Contains(err.Error(), id.String()) {
				t.Fatalf("job_id %s, %v", id, err)
			}
			p.SetDown(false)
			if got := get(t, c, id); got.BizID != 11 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// addOne adds a task by either way and gives the job_id that is said to be in doubt.
func addOne(ctx context.Context, c *tocsin.Client, how string) (tocsin.JobID, error) {
	task := remind.New(11, "x", tocsin.In(0))
	if how == "Add" {
		a, err := c.Add(ctx, task)
		return a.JobID, err
	}
	all, err := c.AddMany(ctx, []tocsin.NewTask{task})
	return all[0].JobID, err
}

func TestAServerThatGoesDownStoresNothing(t *testing.T) {
	t.Parallel()
	c, p := throughProxy(t)
	p.SetDown(true)
	p.BreakAt("tocsin", true, 1) // the pooled connection breaks too
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := c.List(ctx, 11)
	if err == nil {
		t.Fatal("the server is not down")
	}
	if _, err := c.Add(ctx, remind.New(11, "x", tocsin.In(0))); err == nil || errors.Is(err, tocsin.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	p.SetDown(false)
	if list := must[[]tocsin.Info](t)(c.List(t.Context(), 11)); len(list) != 0 {
		t.Errorf("%d are stored", len(list))
	}
}

func TestAChangeWhoseCommitIsLostIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	c, p := throughProxy(t)
	id := add(t, c, remind.New(11, "x", tocsin.In(day))).JobID
	p.BreakAt("COMMIT", false, 1)
	if ch, err := c.Cancel(t.Context(), tocsin.ByID(id)); !errors.Is(err, tocsin.ErrUnknownOutcome) {
		t.Errorf("got %+v, %v", ch, err)
	}
	if ch := must[tocsin.Change](t)(c.Cancel(t.Context(), tocsin.ByID(id))); ch.Final != 1 {
		t.Errorf("once more: %+v", ch)
	}
}

func TestAChangeBeforeWhoseCommitTheConnectionBreaksIsRepeated(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"BEGIN", "/* tocsin status */", "/* tocsin reschedule */", "/* tocsin ring */"} {
		t.Run(fmt.Sprintf("at %q", at), func(t *testing.T) {
			t.Parallel()
			c, p := throughProxy(t)
			id := add(t, c, remind.New(11, "x", tocsin.In(day))).JobID
			p.BreakAt(at, false, 1)
			ch := must[tocsin.Change](t)(c.Reschedule(t.Context(), tocsin.ByID(id), tocsin.In(0)))
			if got := get(t, c, id); ch.Changed != 1 || got.Version != 1 || p.Breaks() != 1 {
				t.Errorf("%+v, version %d, %d breaks", ch, got.Version, p.Breaks())
			}
		})
	}
}
