package bizname

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"order.close": true, "a": true, "0": true, "a_b-c.d": true, strings.Repeat("a", 64): true,
		"": false, "Order.close": false, ".a": false, "-a": false, "a b": false, "a/b": false, "bestellung.schließen": false,
		"a\n": false, strings.Repeat("a", 65): false,
	} {
		if Valid(name) != want {
			t.Errorf("%q: want %t", name, want)
		}
	}
}
