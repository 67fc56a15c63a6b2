package doctor

import (
	"slices"
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
)

func TestWhatNodesLackIsFound(t *testing.T) {
	t.Parallel()
	remind := biztype.Policy{Name: "coupon.remind", Webhook: &biztype.Webhook{URL: "http://h"}}
	has := func(id string) Member { return Member{ID: id, Group: "callback", Types: []string{"coupon.remind"}} }
	lacks := func(id string) Member {
		return Member{ID: id, Group: "callback", Lacks: map[string]string{"coupon.remind": "no secret"}}
	}
	for name, c := range map[string]struct {
		members []Member
		want    []string
	}{
		"no node runs":      {nil, nil},
		"all have it":       {[]Member{has("a"), has("b")}, nil},
		"another group":     {[]Member{has("a"), {ID: "c", Group: "orders", Types: []string{"order.close"}}}, nil},
		"one lacks it":      {[]Member{has("a"), lacks("b")}, []string{"warn : delivered: some nodes lack coupon.remind, and others stand in for them; b: no secret"}},
		"all lack it":       {[]Member{lacks("a"), lacks("b")}, []string{"fail : delivered: no node of group callback delivers coupon.remind: its tasks wait; a: no secret; b: no secret"}},
		"nobody knows it":   {[]Member{{ID: "a", Group: "callback"}}, []string{"fail : delivered: no node of group callback delivers coupon.remind: its tasks wait"}},
		"its group is away": {[]Member{{ID: "c", Group: "orders", Types: []string{"order.close"}}}, []string{"warn : delivered: no node of group callback runs: tasks of coupon.remind wait"}},
	} {
		if got := complaints(Delivered([]biztype.Policy{remind}, c.members)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
