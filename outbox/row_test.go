package outbox_test

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/outbox"
)

// Whoever may alter the table of an outbox writes its comment.
func TestAnIdentityIsNoPartOfAStatement(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]string{
		"tocsin outbox 5d41402abc4b2a76":                 "5d41402abc4b2a76",
		"tocsin outbox shop-eu_1.2":                      "shop-eu_1.2",
		"tocsin outbox " + strings.Repeat("a", 64):       strings.Repeat("a", 64),
		"tocsin outbox " + strings.Repeat("a", 65):       "",
		"tocsin outbox ":                                 "",
		"tocsin outbox a b":                              "",
		"tocsin outbox a'b":                              "",
		`tocsin outbox a\`:                               "",
		"tocsin outbox a\n":                              "",
		"tocsin outbox ',1,0,0,0);DELETE/**/FROM/**/x;#": "",
		"ours": "",
	} {
		if got := outbox.Identity(comment); got != want {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
	}
}

func TestAReasonFitsItsColumn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"no such biz type":         "no such biz type",
		"a\xff\x00b":               `a\xff\x00b`,
		strings.Repeat("ü", 256):   strings.Repeat("ü", 255),
		strings.Repeat("\xff", 99): strings.Repeat(`\xff`, 63),
	} {
		if got := outbox.Reason(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
