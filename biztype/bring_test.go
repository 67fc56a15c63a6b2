package biztype_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// inCode is the policy of a program's code.
func inCode(name string, edition, attempts int) biztype.Policy {
	p, _ := tocsin.Define[string](name, tocsin.Policy{Group: "orders", Attempts: attempts, Edition: edition}).Policy()
	return p
}

// bring brings policies, and says of each what became of it.
func bring(t *testing.T, cfg tocsin.Config, policies ...biztype.Policy) (said []string) {
	t.Helper()
	res, err := biztype.Bring(t.Context(), cfg, policies)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res.Types {
		said = append(said, fmt.Sprint(r.Name, " ", r.Verdict))
	}
	for name, why := range res.Kept {
		said = append(said, name+" kept: "+why)
	}
	return said
}

// the returns the stored policy of a name, which is the same in all databases.
func the(t *testing.T, cfg tocsin.Config, name string) biztype.Policy {
	t.Helper()
	policies := load(t, cfg)
	i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no %s in %+v", name, policies)
	}
	return policies[i]
}

// Programs of two versions start in any order, again and again; people apply, pause and hand over in between.
func TestAPolicyInCodeFollowsItsEditionAndPeople(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	old, new := inCode("order.close", 0, 3), inCode("order.close", 2, 5)
	step := func(want string, attempts int, p biztype.Policy) {
		t.Helper()
		if got := bring(t, cfg, p); len(got) != 1 || !strings.HasPrefix(got[0], "order.close "+want) {
			t.Errorf("%q, want %q", got, want)
		}
		if got := the(t, cfg, "order.close").Attempts; got != attempts {
			t.Errorf("after %s: %d attempts, want %d", want, got, attempts)
		}
	}
	step("added", 3, old)
	number := the(t, cfg, "order.close").Number
	step("unchanged", 3, old)
	step("changed", 5, new)
	step("kept: it is of edition 2, and that of the code of edition 1", 5, old)
	step("unchanged", 5, new)
	step("kept: it has edition 2 too, and differs: raise Edition", 5, inCode("order.close", 2, 6))

	if _, err := biztype.SetPaused(t.Context(), cfg, "order.close", true); err != nil {
		t.Fatal(err)
	}
	step("unchanged", 5, new)
	newer := inCode("order.close", 3, 7)
	step("changed", 7, newer)
	if got := the(t, cfg, "order.close"); !got.Paused || got.Number != number || got.Edition != 3 {
		t.Errorf("a program let it go on: %+v", got)
	}

	same := the(t, cfg, "order.close")
	apply(t, cfg, same)
	if got := the(t, cfg, "order.close"); got.Edition != 3 {
		t.Errorf("people applied what the code says: %+v", got)
	}
	same.Attempts = 9
	apply(t, cfg, same)
	const people = "kept: people have applied another one"
	for _, p := range []biztype.Policy{old, new, newer, inCode("order.close", 4, 8)} {
		step(people, 9, p)
	}
	step("changed", 9, inCode("order.close", 4, 9)) // the code says the same: it has the policy again
	step("kept: it is of edition 4", 9, newer)
	step("changed", 10, inCode("order.close", 5, 10))
}

func TestTwoProgramsNeverGetOneNumber(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	high := closeOrder
	high.Number = 1 << 40 // people have chosen it
	apply(t, cfg, high)
	var programs sync.WaitGroup
	for i := range 8 {
		programs.Go(func() {
			policies := []biztype.Policy{inCode("shared", 1, 3), inCode(fmt.Sprint("own.", i), 1, 3), inCode(fmt.Sprint("other.", i), 1, 3)}
			for {
				_, err := biztype.Bring(t.Context(), cfg, policies)
				if err == nil {
					return
				}
				if !strings.Contains(err.Error(), "apply again") {
					t.Errorf("program %d: %v", i, err)
					return
				}
			}
		})
	}
	programs.Wait()
	policies := load(t, cfg)
	if len(policies) != 18 {
		t.Fatalf("%d policies", len(policies))
	}
	now := uint64(time.Since(tocsin.Epoch) / time.Second)
	numbers := map[uint64]bool{}
	for _, p := range policies {
		if numbers[p.Number] || p.Name != "order.close" && (p.Number > now+100 || p.Number < now-3600) {
			t.Errorf("%+v", p)
		}
		numbers[p.Number] = true
	}
	if res := apply(t, cfg, policies...); res.Databases != 0 {
		t.Errorf("not all databases have all: %+v", res)
	}
}

func TestANewNumberNeedsEveryDatabase(t *testing.T) {
	t.Parallel()
	second := secondServer(t)
	cfg := cluster(t, tocsin.Server{Name: "db1", DSN: second.DSN(), Databases: []int{0}}, tocsin.Server{Name: "db2", DSN: devtest.DSN(t), Databases: []int{1}})
	bring(t, cfg, inCode("there", 1, 3))
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := biztype.Bring(t.Context(), cfg, []biztype.Policy{inCode("new", 1, 3)}); err == nil || !strings.Contains(err.Error(), "biz type new is new, and its number needs every database: ") {
		t.Error(err)
	}
	if got := bring(t, cfg, inCode("there", 1, 3)); !slices.Equal(got, []string{"there unchanged"}) {
		t.Errorf("%q", got)
	}
}

func TestAPolicyInCodeIsChecked(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	apply(t, cfg, closeOrder)
	for want, p := range map[string]tocsin.Policy{
		"biz type x: needs a webhook, a sink or pull, or the group":    {},
		"biz type x: edition -1: use 1 or more":                        {Group: "g", Edition: -1},
		"biz type x: number 1 is that of order.close":                  {Group: "g", Number: 1},
		`biz type x: its alarm is to "none", and there is no such biz`: {Group: "g", Alarm: &tocsin.Alarm{To: "none"}},
	} {
		brought, _ := tocsin.Define[string]("x", p).Policy()
		if _, err := biztype.Bring(t.Context(), cfg, []biztype.Policy{brought}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{inCode("x", 1, 3)}); err == nil || !strings.Contains(err.Error(), "needs a number") {
		t.Error(err)
	}
	if _, err := biztype.SetPaused(t.Context(), cfg, "x", true); !errors.Is(err, tocsin.ErrUnknownBizType) {
		t.Error(err)
	}
}
