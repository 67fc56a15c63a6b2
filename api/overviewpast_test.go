package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/operator"
)

// A page shows 50 biz types. With the past of a thousand an answer had 4.7 MB.
func TestTheFirstBizTypesOfATokenHaveAPast(t *testing.T) {
	t.Parallel()
	var all []operator.TypeOverview
	for i := range 200 {
		all = append(all, operator.TypeOverview{TypeActivity: operator.TypeActivity{Name: fmt.Sprint([]string{"order.", "coupon."}[i%2], i)}, Past: make([]operator.Sample, 60)})
	}
	orders := func(name string) bool { return strings.HasPrefix(name, "order.") }
	for past, want := range map[bool]int{true: pastTypes, false: 0} {
		types := overviewTypes(all, orders, past)
		if len(types) != 100 {
			t.Fatalf("%d biz types", len(types))
		}
		for i, one := range types {
			if (len(one.Past) > 0) != (i < want) || !orders(one.BizType) {
				t.Errorf("past=%t: biz type %d, %s, has a past of %d", past, i, one.BizType, len(one.Past))
			}
		}
	}
}
