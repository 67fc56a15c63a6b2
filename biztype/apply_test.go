package biztype_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

var (
	closeOrder = biztype.Policy{Name: "order.close", Number: 1, Group: "orders", Timeout: biztype.Duration(5 * time.Second)}
	remind     = biztype.Policy{Name: "coupon.remind", Number: 2, Webhook: &biztype.Webhook{URL: "https://example.com/hook?a=1&b=2"}}
)

func TestApplyReportsPerTypeAndWritesOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	first := apply(t, cfg, closeOrder)
	if got := verdicts(first); !slices.Equal(got, []biztype.Verdict{biztype.Added}) || first.Revision == 0 || first.Databases != 2 {
		t.Errorf("first: %+v", first)
	}
	again := apply(t, cfg, closeOrder)
	if got := verdicts(again); !slices.Equal(got, []biztype.Verdict{biztype.Unchanged}) || again.Revision != first.Revision || again.Databases != 0 {
		t.Errorf("again: %+v", again)
	}
	slower := closeOrder
	slower.Timeout, slower.History = 2*slower.Timeout, true
	changed := apply(t, cfg, remind, slower)
	if got := verdicts(changed); !slices.Equal(got, []biztype.Verdict{biztype.Added, biztype.Changed}) || changed.Revision <= first.Revision {
		t.Errorf("changed: %+v", changed)
	}
	withGroup := remind
	withGroup.Group = biztype.CallbackGroup
	if stored, want := load(t, cfg), []biztype.Policy{slower, withGroup}; !reflect.DeepEqual(stored, want) {
		t.Errorf("stored %+v\nwant %+v", stored, want)
	}
	back := apply(t, cfg, closeOrder) // a type that is not among the policies stays
	if got := verdicts(back); !slices.Equal(got, []biztype.Verdict{biztype.Changed}) {
		t.Errorf("back: %+v", back)
	}
	if stored, want := load(t, cfg), []biztype.Policy{closeOrder, withGroup}; !reflect.DeepEqual(stored, want) {
		t.Errorf("stored %+v\nwant %+v", stored, want)
	}
}

func TestTheBondOfNameAndNumberNeverBreaks(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	apply(t, cfg, closeOrder)
	for name, c := range map[string]struct {
		policy biztype.Policy
		want   string
	}{
		"another name": {biztype.Policy{Name: "order.open", Number: 1, Group: "orders"},
			"biz type order.open: number 1 is that of order.close in %s_0: a number never changes its name"},
		"another number": {biztype.Policy{Name: "order.close", Number: 7, Group: "orders"},
			"biz type order.close: has number 1 in %s_0, and 7 is asked for: a name never changes its number"},
	} {
		_, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{remind, c.policy})
		if want := fmt.Sprintf(c.want, cfg.Layout.Prefix); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", name, err, want)
		}
	}
	if stored := load(t, cfg); len(stored) != 1 {
		t.Errorf("a refused Apply wrote: %+v", stored)
	}
}

func TestADatabaseThatLagsIsRepairedWithoutANewRevision(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	first := apply(t, cfg, closeOrder, remind)
	execute(t, cfg, "DELETE FROM "+cfg.Layout.Database(1)+".biz_type WHERE number = 2")
	res := apply(t, cfg, closeOrder, remind)
	if got := verdicts(res); !slices.Equal(got, []biztype.Verdict{biztype.Unchanged, biztype.Repaired}) || res.Revision != first.Revision || res.Databases != 1 {
		t.Errorf("got %+v", res)
	}
}

func TestRowsOfOneRevisionThatDisagreeAreSettledByANewOne(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	first := apply(t, cfg, closeOrder)
	execute(t, cfg, "UPDATE "+cfg.Layout.Database(1)+`.biz_type SET policy = '{"timeout":"9s"}' WHERE number = 1`)
	res := apply(t, cfg, closeOrder)
	if got := verdicts(res); !slices.Equal(got, []biztype.Verdict{biztype.Changed}) || res.Revision <= first.Revision || res.Databases != 2 {
		t.Errorf("got %+v", res)
	}
}

func TestManyAppliesAtOnceEndInOneOfThemEverywhere(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			p := closeOrder
			p.Attempts = i + 1
			_, errs[i] = biztype.Apply(context.Background(), cfg, []biztype.Policy{p})
		})
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
		} else {
			t.Logf("apply %d: %v", i, err)
		}
	}
	if won == 0 {
		t.Fatal("all failed")
	}
	stored := load(t, cfg)
	if res := apply(t, cfg, stored...); res.Databases != 0 || len(stored) != 1 {
		t.Errorf("the databases differ after concurrent applies: %+v", res)
	}
}

func TestOneServerDownIsNamedAndTheOthersAreWritten(t *testing.T) {
	t.Parallel()
	second := secondServer(t)
	cfg := cluster(t,
		tocsin.Server{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}},
		tocsin.Server{Name: "db2", DSN: second.DSN(), Databases: []int{1}})
	first := apply(t, cfg, closeOrder)
	seen, stop := watch(t, cfg)
	defer stop()
	<-seen
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	res, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{closeOrder, remind})
	if err == nil || !strings.Contains(err.Error(), "server db2: read biz types of "+cfg.Layout.Database(1)) {
		t.Errorf("error %v, want one that names db2", err)
	}
	if res.Databases != 1 || res.Revision <= first.Revision {
		t.Errorf("result %+v, want database 0 written at a higher revision", res)
	}
	if got := <-seen; len(got) != 2 {
		t.Errorf("the watcher saw %+v, want both types", got)
	}
	if stored := load(t, cfg); len(stored) != 2 {
		t.Errorf("loaded %+v with one server down", stored)
	}
}

func TestNoServerAndNoTablesSayWhatToDo(t *testing.T) {
	t.Parallel()
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 1, Tables: 1, Prefix: devtest.Prefix(t)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
	}
	_, err := biztype.Load(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "run `tocsin ddl apply`") {
		t.Errorf("no tables: %v", err)
	}
	cfg.Servers[0] = tocsin.Server{Name: "db9", DSN: "root:secret@tcp(127.0.0.1:1)/"}
	_, err = biztype.Load(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "server db9: read") || strings.Contains(err.Error(), "secret") {
		t.Errorf("no server: %v", err)
	}
}

// watch runs a Watcher; the channel gets what it publishes.
func watch(t *testing.T, cfg tocsin.Config) (seen chan []biztype.Policy, stop func()) {
	t.Helper()
	seen = make(chan []biztype.Policy, 16)
	w, err := biztype.NewWatcher(biztype.WatchConfig{
		Cluster: cfg, Interval: 10 * time.Millisecond,
		Changed:    func(p []biztype.Policy) { seen <- p },
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	return seen, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestTheWatcherPublishesAtFirstAndThenEachChangeOnce(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	seen, stop := watch(t, cfg)
	if got := <-seen; len(got) != 0 {
		t.Errorf("at first: %+v, want none", got)
	}
	apply(t, cfg, closeOrder)
	if got := <-seen; len(got) != 1 || got[0].Name != "order.close" {
		t.Errorf("after the first: %+v", got)
	}
	paused := closeOrder
	paused.Paused = true
	apply(t, cfg, paused, remind)
	got := <-seen
	if len(got) != 2 || !got[0].Paused {
		t.Errorf("after the second: %+v", got)
	}
	for _, name := range []string{"coupon.remind", "order.close"} { // the one has the highest revision, which watchers remember
		if _, err := biztype.Delete(t.Context(), cfg, name, func() (string, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, cfg, closeOrder)
	if got := <-seen; len(got) != 2 || got[0].Paused {
		t.Errorf("applied again after it was deleted: %+v", got)
	}
	stop()
	if len(seen) != 0 {
		t.Errorf("published without a change: %+v", <-seen)
	}
}

func TestTheWatcherKeepsAPolicyThatItCanReadWhenAnotherIsBroken(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	apply(t, cfg, closeOrder, remind)
	for db := range 2 {
		execute(t, cfg, "UPDATE "+cfg.Layout.Database(db)+".biz_type SET policy = '{', revision = 9 WHERE number = 1")
	}
	seen, stop := watch(t, cfg)
	defer stop()
	if got := <-seen; len(got) != 1 || got[0].Name != "coupon.remind" {
		t.Errorf("got %+v", got)
	}
	if _, err := biztype.Load(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "biz type order.close: policy of revision 9") {
		t.Errorf("Load: %v", err)
	}
}

// A database of another cluster with the same id has policies of its own, here newer ones.
func TestTheWatcherTakesNoPolicyFromADatabaseOfAnotherIdentity(t *testing.T) {
	t.Parallel()
	for _, foreign := range []int{0, 2} { // polled first, and last
		t.Run(fmt.Sprint(foreign), func(t *testing.T) {
			t.Parallel()
			cfg := tocsin.Config{
				Layout:  tocsin.Layout{Databases: 3, Tables: 1, Prefix: devtest.Prefix(t)},
				Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
			}
			if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
				t.Fatal(err)
			}
			apply(t, cfg, closeOrder)
			execute(t, cfg, "UPDATE "+cfg.Layout.Database(foreign)+".layout SET identity = 'other'")
			execute(t, cfg, "UPDATE "+cfg.Layout.Database(foreign)+`.biz_type SET policy = JSON_SET(policy, '$.paused', TRUE), revision = revision + 9`)
			seen, stop := watch(t, cfg)
			defer stop()
			for step := range 2 {
				got := <-seen
				if len(got) != step+1 || got[0].Paused {
					t.Errorf("step %d: published %+v", step, got)
				}
				if step > 0 {
					break
				}
				if res, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{closeOrder, remind}); !errors.Is(err, tocsin.ErrLayout) || res.Databases != 2 {
					t.Errorf("%+v, %v", res, err)
				}
			}
		})
	}
}
