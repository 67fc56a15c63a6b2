package webhook_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/webhook"
)

func TestParseSecret(t *testing.T) {
	t.Parallel()
	key := func(bytes int) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", bytes))) }
	for name, c := range map[string]struct{ secret, want string }{
		"as it should be":    {"whsec_" + key(24), ""},
		"without the prefix": {key(64), ""},
		"no secret":          {"", "its key has 0 bytes, fewer than 24"},
		"the prefix alone":   {"whsec_", "its key has 0 bytes"},
		"a short key":        {"whsec_" + key(23), "its key has 23 bytes"},
		"no base64":          {"whsec_hunter 2", "want whsec_ and base64"},
	} {
		w, err := webhook.ParseSecret(c.secret)
		if (w == nil) != (err != nil) || (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
