package operator

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	used, replica := mysql.Sighting{Address: "a:1", Used: true, Writes: true, Why: "takes writes, in use"}, mysql.Sighting{Address: "b:1", Why: "is read-only"}
	for name, c := range map[string]struct {
		seen  []mysql.Sighting
		level Level
		part  string
	}{
		"a primary and its replica": {[]mysql.Sighting{used, replica}, OK, "b:1 is read-only"},
		"two primaries":             {[]mysql.Sighting{used, {Address: "b:1", Writes: true, Split: true}}, Fail, "several take writes, a:1 is used"},
		"a replica that is down":    {[]mysql.Sighting{used, {Address: "b:1", Silent: true, Why: "refused"}}, Warn, "b:1 refused"},
	} {
		got := addresses(c.seen)
		if len(got) != 1 || got[0].Level != c.level || !strings.Contains(got[0].Is, c.part) || (got[0].Fix == "") != (c.level == OK) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := addresses(nil); got != nil {
		t.Errorf("a server with one address: %+v", got)
	}
}
