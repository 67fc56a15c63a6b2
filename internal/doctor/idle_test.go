package doctor

import (
	"slices"
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
)

func TestHandlersThatGetNoTaskAreFound(t *testing.T) {
	t.Parallel()
	policies := []biztype.Policy{{Name: "order.close", Group: "orders"}, {Name: "order.open", Group: "orders"}}
	node := func(id, group string, types ...string) Member { return Member{ID: id, Group: group, Types: types} }
	const (
		away   = "no node of group orders runs: tasks of order.close, order.open wait"
		placed = "a, b of group shop: the handler of order.close gets no task, as its policy names group orders"
	)
	for name, c := range map[string]struct {
		members       []Member
		idle, waiting []string
	}{
		"no node runs":       {nil, nil, nil},
		"all are right":      {[]Member{node("a", "orders", "order.close", "order.open")}, nil, nil},
		"a group is away":    {[]Member{node("a", "callback")}, nil, []string{"warn : delivered: " + away}},
		"in the wrong group": {[]Member{node("a", "shop", "order.close"), node("b", "shop", "order.close")}, []string{"warn : handlers: " + placed}, []string{"fail : delivered: " + away}},
		"in both groups": {
			[]Member{node("a", "shop", "order.close"), node("b", "shop", "order.close"), node("c", "orders", "order.close", "order.open")},
			[]string{"warn : handlers: " + placed}, nil,
		},
		"without a policy": {
			[]Member{node("a", "orders", "order.close", "order.opne", "order.open")},
			[]string{"warn : handlers: a of group orders: the handler of order.opne gets no task, as this biz type has no policy"}, nil,
		},
	} {
		if got := complaints(Idle(policies, c.members)); !slices.Equal(got, c.idle) {
			t.Errorf("%s: idle are %q, want %q", name, got, c.idle)
		}
		if got := complaints(Delivered(policies, c.members)); !slices.Equal(got, c.waiting) {
			t.Errorf("%s: delivered %q, want %q", name, got, c.waiting)
		}
	}
}
