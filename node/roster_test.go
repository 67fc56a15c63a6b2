package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

const (
	goodSecret  = "whsec_dG9jc2luLWRldi1zZWNyZXQtbm90LXNlY3JldA=="
	otherSecret = "whsec_YW5vdGhlci1zZWNyZXQtbm90LXNvLXNlY3JldA=="
)

// desk stands for the dispatcher and the assignment of a roster.
type desk struct {
	told      []assign.Told
	set       int // calls of SetPolicies
	inHand    bool
	elsewhere bool
	unknown   bool
	newest    int
	newer     map[uint64]dispatcher.Newer
}

func (d *desk) Tell(t assign.Told)                 { d.told = append(d.told, t) }
func (d *desk) Elsewhere(string) (bool, bool)      { return d.elsewhere, !d.unknown }
func (d *desk) Newest(string) int                  { return d.newest }
func (d *desk) SetPolicies([]biztype.Policy)       { d.set++ }
func (d *desk) InHand(uint64) bool                 { return d.inHand }
func (d *desk) Newer() map[uint64]dispatcher.Newer { return d.newer }
func (d *desk) last() assign.Told                  { return d.told[len(d.told)-1] }
func (d *desk) lacks(name string) (why string)     { return d.last().Lacks[name] }

// remind returns a policy with a callback that needs these secrets.
func remind(secrets ...string) biztype.Policy {
	return biztype.Policy{Name: "coupon.remind", Number: 2, Webhook: &biztype.Webhook{URL: "http://127.0.0.1:1/", Secrets: secrets}}
}

// newDesk makes the roster of a node with a handler for order.close.
func newDesk(t *testing.T, cfg Config, log *devtest.Log) (*roster, *desk) {
	t.Helper()
	cfg.Logger = log.Logger()
	var h Handlers
	Handle(&h, tocsin.Define[string]("order.close"), func(context.Context, *tocsin.Task[string]) error { return nil })
	d := &desk{}
	r := newRoster(newTargets(cfg.withDefaults(), &h, func(p biztype.Policy) bool { return p.Group != "other" }), d, cfg.Logger, nil)
	r.lanes = d
	t.Cleanup(r.targets.close)
	return r, d
}

// TestANodeCountsTheBizTypesOfAllGroups: an alert compares them with the groups that have nodes.
func TestANodeCountsTheBizTypesOfAllGroups(t *testing.T) {
	t.Parallel()
	r, _ := newDesk(t, Config{Group: "orders"}, &devtest.Log{})
	of := func(group, own string) int { return int(testutil.ToFloat64(r.groups.WithLabelValues(group, own))) }
	r.set(t.Context(), []biztype.Policy{
		{Name: "a", Number: 1, Group: "other"}, {Name: "b", Number: 2, Group: "other", Paused: true}, {Name: "c", Number: 3, Group: "third", Paused: true}, remind(),
	})
	if testutil.CollectAndCount(r.groups) != 3 || of("other", "false") != 1 || of(biztype.CallbackGroup, "false") != 1 || of("orders", "true") != 0 {
		t.Errorf("%d series, other %d, orders %d", testutil.CollectAndCount(r.groups), of("other", "false"), of("orders", "true"))
	}
}

func TestANodeTellsOfWhichTypesItLeavesNewerPayloads(t *testing.T) {
	t.Parallel()
	var log devtest.Log
	r, d := newDesk(t, Config{}, &log)
	r.set(t.Context(), []biztype.Policy{{Name: "order.close", Number: 1}})
	d.newer = map[uint64]dispatcher.Newer{1: {Version: 3, Known: 1, Times: 7, Last: time.Now()}, 9: {Version: 2, Last: time.Now()}}
	r.look(t.Context())
	if got := d.last(); !maps.Equal(got.Newer, map[string]int{"order.close": 3}) || len(got.Types) != 1 {
		t.Errorf("told %+v", got)
	}
	r.look(t.Context())
	if lines := log.Lines("tasks with a newer payload than this program reads are left for a program that reads it"); len(lines) != 1 {
		t.Errorf("%d lines about it: %v", len(lines), lines)
	}
	d.newer = map[uint64]dispatcher.Newer{1: {Version: 3, Last: time.Now().Add(-newerFor)}}
	r.look(t.Context())
	if got := d.last(); len(got.Newer) != 0 {
		t.Errorf("told %+v long after the last", got)
	}
}

func TestANodeTellsWhatItDeliversAndWhatItLacks(t *testing.T) {
	t.Parallel()
	env := map[string]string{"A": goodSecret}
	r, d := newDesk(t, Config{Getenv: func(name string) string { return env[name] }}, new(devtest.Log))
	policies := []biztype.Policy{{Name: "order.close", Number: 1}, remind("A", "B"), {Name: "order.open", Number: 3}, {Name: "foreign", Number: 4, Group: "other"}}
	r.set(t.Context(), policies)
	if got := d.last(); !slices.Equal(got.Types, []string{"order.close"}) || !slices.Equal(slices.Sorted(maps.Keys(got.Lacks)), []string{"coupon.remind", "order.open"}) {
		t.Errorf("told %+v", got)
	}
	if why := d.lacks("coupon.remind"); !strings.Contains(why, "environment variable B") {
		t.Errorf("the reason is %q", why)
	}
	if _, ok := r.number("coupon.remind"); ok {
		t.Error("a type that it lacks is one that it delivers")
	}
	env["B"] = otherSecret // then both are there
	r.look(t.Context())
	if n, ok := r.number("coupon.remind"); n != 2 || !ok || d.lacks("coupon.remind") != "" || d.set != 2 {
		t.Errorf("told %+v after the secret has come, the dispatcher %d times", d.last(), d.set)
	}
	r.look(t.Context())
	if len(d.told) != 2 || d.set != 2 {
		t.Errorf("told %d times, the dispatcher %d times, though nothing has changed", len(d.told), d.set)
	}
	d.inHand = true
	r.set(t.Context(), []biztype.Policy{policies[0], remind("A", "C")}) // there is no C
	if got := d.last(); slices.Contains(got.Types, "coupon.remind") || got.Lacks["coupon.remind"] != "" {
		t.Errorf("told %+v while deliveries are in hand", got)
	}
	d.inHand = false
	r.look(t.Context())
	if d.lacks("coupon.remind") == "" {
		t.Errorf("told %+v when none is in hand", d.last())
	}
}

func TestWhatANodeLacksIsLoggedAtOnceAndThenOnceAMinute(t *testing.T) {
	const standIn, nobody = "biz type can't be delivered here: other nodes of the group stand in", "biz type can't be delivered by any node of the group: its tasks wait"
	for message, elsewhere := range map[string]bool{standIn: true, nobody: false} {
		synctest.Test(t, func(t *testing.T) {
			var log devtest.Log
			r, d := newDesk(t, Config{Getenv: func(string) string { return "" }}, &log)
			d.unknown, d.elsewhere = true, elsewhere
			r.set(t.Context(), []biztype.Policy{remind("A")})
			r.look(t.Context())
			if n := len(log.Lines(standIn, nobody)); n != 0 {
				t.Errorf("%d lines before it is known what others deliver", n)
			}
			d.unknown = false
			ctx, end := context.WithTimeout(t.Context(), 90*time.Second)
			defer end()
			r.run(ctx)
			lines := log.Lines(standIn, nobody)
			if len(lines) != 2 || lines[1]["message"] != message || lines[1]["biz_type"] != "coupon.remind" || !strings.Contains(fmt.Sprint(lines[1]["why"]), "variable A") {
				t.Errorf("logged %v", lines)
			}
		})
	}
}

func TestASecretOfADirectoryIsUsedWhenItComesAndChangesAndKeptWhenItGoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "A")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log devtest.Log
	r, d := newDesk(t, Config{SecretsDir: dir, Getenv: func(string) string { return "" }}, &log)
	r.set(t.Context(), []biztype.Policy{remind("A")})
	if why := d.lacks("coupon.remind"); !strings.Contains(why, dir) {
		t.Errorf("the reason is %q", why)
	}
	sink := func() any { target, _ := r.targets.of(remind("A")); return target.Sink }
	write(goodSecret + "\n")
	r.look(t.Context())
	first := sink()
	if d.lacks("coupon.remind") != "" || d.set != 2 {
		t.Errorf("told %+v, the dispatcher %d times", d.last(), d.set)
	}
	write(otherSecret)
	r.look(t.Context())
	second := sink()
	if second == first || d.set != 3 {
		t.Errorf("a changed secret is not used; the dispatcher was told %d times", d.set)
	}
	for _, half := range []string{otherSecret[:20], "two\nlines"} { // as a writer may leave it for a moment
		write(half)
		r.look(t.Context())
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.look(t.Context())
	if sink() != second || d.lacks("coupon.remind") != "" || d.set != 3 {
		t.Errorf("what was read before is not used any more: told %+v, the dispatcher %d times", d.last(), d.set)
	}
	if n := len(log.Lines("a secret can't be read any more, or a fallback can't be used: going on with what was read before, or without it")); n != 1 || len(r.targets.stale()) != 1 {
		t.Errorf("%d lines:\n%v", n, log.Lines())
	}
	moved := remind("A")
	moved.Group = "other"
	r.set(t.Context(), []biztype.Policy{moved})
	if stale := r.targets.stale(); len(stale) != 0 {
		t.Errorf("of callbacks that are not delivered here any more it goes on to tell %v", stale)
	}
}

func TestASecretOfTheFirstLinkIsUsedThoughTheFallbacksIsMissing(t *testing.T) {
	t.Parallel()
	env := map[string]string{"A": goodSecret}
	r, d := newDesk(t, Config{Getenv: func(name string) string { return env[name] }}, new(devtest.Log))
	p := remind("A")
	p.Fallback = &tocsin.Fallback{Webhook: remind("B").Webhook}
	look := func(change func()) dispatcher.Sink {
		change()
		r.look(t.Context())
		target, _ := r.targets.of(p)
		return target.Sink
	}
	r.set(t.Context(), []biztype.Policy{p})
	alone := look(func() {})
	if next := look(func() { env["A"] = otherSecret }); next == alone || look(func() {}) != next || d.set != 2 {
		t.Errorf("the secret has changed, and the dispatcher was told %d times", d.set)
	}
	both, _ := look(func() { env["B"] = goodSecret }).(*links)
	next, _ := look(func() { env["A"] = goodSecret; delete(env, "B") }).(*links)
	if both == nil || next == nil || next.first == both.first || next.second != both.second || look(func() {}) != dispatcher.Sink(next) {
		t.Errorf("the first link's secret has changed while the fallback's could not be read: %v, %v", both, next)
	}
}

func TestOneReadingOfSecretsIsUnderWayAndItsEndIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, readings := make(chan struct{}), 0
		var log devtest.Log
		r, d := newDesk(t, Config{Getenv: func(name string) string {
			if name == "A" {
				readings++
				<-goOn
			}
			return goodSecret
		}}, &log)
		r.set(t.Context(), []biztype.Policy{remind("A")})
		r.look(t.Context())
		synctest.Wait()
		if why := d.lacks("coupon.remind"); readings != 1 || !strings.Contains(why, "A has not been read yet") {
			t.Errorf("%d readings are under way; the type is lacking: %q", readings, why)
		}
		if n := len(log.Lines("the secrets of callbacks can't be read in time: going on with what was read before")); n != 1 {
			t.Errorf("logged %v", log.Lines())
		}
		close(goOn)
		synctest.Wait()
		r.look(t.Context())
		if why := d.lacks("coupon.remind"); readings != 2 || why != "" {
			t.Errorf("after %d readings the type is lacking: %q", readings, why)
		}
	})
}

func TestANodeLeavesATypeWhileOthersKnowANewerPayload(t *testing.T) {
	t.Parallel()
	r, d := newDesk(t, Config{}, new(devtest.Log))
	r.targets.handlers.versions["order.close"] = 2
	policies := []biztype.Policy{{Name: "order.close", Number: 1}}
	for _, c := range []struct {
		newest, set int // calls of SetPolicies so far
		lacks       bool
	}{{0, 1, false}, {2, 1, false}, {3, 2, true}, {3, 2, true}, {1, 3, false}} {
		if d.newest = c.newest; d.set == 0 {
			r.set(t.Context(), policies)
		} else {
			r.look(t.Context())
		}
		_, delivers := r.targets.of(policies[0])
		told := d.last()
		if (told.Lacks["order.close"] != "") != c.lacks || delivers == c.lacks || slices.Contains(told.Types, "order.close") == c.lacks || d.set != c.set {
			t.Errorf("others have version %d: told %+v, delivers %t, the dispatcher %d times, want %d", c.newest, told, delivers, d.set, c.set)
		}
		if told.Versions["order.close"] != 2 {
			t.Errorf("told the versions %v", told.Versions)
		}
	}
}

// Others stand in, or workers come when they like: an alert looks at the workers of all nodes.
func TestAPullTypeThatNoWorkerAsksForIsNoFaultOfANode(t *testing.T) {
	t.Parallel()
	r, d := newDesk(t, Config{}, new(devtest.Log))
	r.set(t.Context(), []biztype.Policy{{Name: "label.print", Number: 7, Pull: &biztype.Pull{}}, {Name: "order.open", Number: 3}})
	if d.lacks("label.print") != assign.Unasked || d.lacks("order.open") == "" {
		t.Errorf("told %+v", d.last())
	}
	if n := testutil.CollectAndCount(r.lacking); n != 1 || testutil.ToFloat64(r.lacking.WithLabelValues("order.open")) != 1 {
		t.Errorf("%d series", n)
	}
	if _, known := r.targets.hub.Asked()["label.print"]; !known {
		t.Error("nothing tells that no worker asks")
	}
	r.set(t.Context(), []biztype.Policy{{Name: "label.print", Number: 7}}) // its alert would go on
	if all := r.targets.hub.Asked(); len(all) != 0 {
		t.Errorf("workers of a type without pull are told: %v", all)
	}
}

func TestAHandlerThatGetsNoTaskIsLoggedWheneverThatChanges(t *testing.T) {
	t.Parallel()
	hook := &biztype.Webhook{URL: "http://127.0.0.1:1/"}
	var log devtest.Log
	r, _ := newDesk(t, Config{}, &log)
	for _, step := range []struct {
		policies []biztype.Policy
		says     string
	}{
		{nil, "a handler gets no task: its biz type has no policy: apply one with `tocsin biz apply`"},
		{nil, ""},
		{[]biztype.Policy{{Name: "order.close", Group: "other"}}, "a handler gets no task: the policy of its biz type names group other, and this node is in group callback: change the node's Group or the policy's"},
		{[]biztype.Policy{{Name: "order.close"}}, "a handler gets tasks now: <nil>"},
		{[]biztype.Policy{{Name: "order.close"}}, ""},
		{[]biztype.Policy{{Name: "order.close", Webhook: hook}}, "a handler gets no task: the policy of its biz type sends the tasks to a callback: remove webhook from the policy, or the handler from the program"},
	} {
		before := len(log.Lines())
		r.set(t.Context(), step.policies)
		got := ""
		for _, line := range log.Lines()[before:] {
			got += fmt.Sprintf("%s: %v", line["message"], line["why"])
			if line["biz_type"] != "order.close" {
				t.Errorf("logged %v", line)
			}
		}
		if got != step.says {
			t.Errorf("%v: logged %q, want %q", step.policies, got, step.says)
		}
		if idle := r.without(); len(idle) == 0 != (len(step.policies) == 1 && step.policies[0].Group == "" && step.policies[0].Webhook == nil) {
			t.Errorf("%v: idle are %v", step.policies, idle)
		}
	}
}

// The watcher brings policies in which the biz type is paused, while the secrets that were read again are compared with the former ones.
func TestASweepDoesNotTakeFormerPoliciesOverNewOnes(t *testing.T) {
	t.Parallel()
	former, paused := remind("A"), remind("A")
	paused.Paused = true
	cfg := Config{Logger: new(devtest.Log).Logger(), Getenv: func(string) string { return goodSecret }}
	w := newSweepParts(cfg.withDefaults(), &Handlers{}, sweepMode{})
	var looks atomic.Int32
	followed := make(chan struct{})
	w.targets = newTargets(w.cfg, w.handlers, func(biztype.Policy) bool {
		if looks.Add(1) == 2 { // the first is that of the reading
			go func() { defer close(followed); w.follow(t.Context(), []biztype.Policy{paused}) }()
			select {
			case <-followed:
			case <-time.After(100 * time.Millisecond): // it waits for refresh
			}
		}
		return true
	})
	t.Cleanup(w.targets.close)
	var err error
	w.dispatcher, err = dispatcher.New(dispatcher.Config{
		Store: struct{ dispatcher.Store }{}, Servers: 1, ServerOf: func(int) int { return 0 }, Node: "sweep", Target: w.targets.of, Logger: w.cfg.Logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.policies.Store(&[]biztype.Policy{former})
	w.refresh(t.Context())
	<-followed
	if _, _, open := w.dispatcher.Lane(0, former.Number); open {
		t.Error("the biz type is not paused")
	}
}
