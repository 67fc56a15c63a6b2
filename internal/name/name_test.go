package name

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNamesAreRefusedWithWhatTheyMayBe(t *testing.T) {
	t.Parallel()
	const (
		any   = ": use letters, digits, '.', '_' and '-', a letter or digit first, at most 64"
		node  = ": use letters, digits, '.', '_' and '-', a letter or digit first, at most 40"
		small = ": use lower-case letters, digits, '.', '_' and '-', a letter or digit first, at most 64"
	)
	long := strings.Repeat("n", 41)
	for _, c := range []struct {
		check func(what, name string) error
		name  string
		want  string // "": the name is valid
	}{
		{Check, "orders-prod", ""},
		{Check, "Orders_2.eu", ""},
		{Check, long, ""},
		{Check, strings.Repeat("n", 65), any},
		{Check, "", any},
		{Check, "a/b", any},
		{Check, "-a", any},
		{Check, ".a", any},
		{Check, "_a", any},
		{Check, "a b", any},
		{Check, "ä", any},
		{Check, "a\n", any},
		{CheckNode, "host-1.example.com", ""},
		{CheckNode, strings.Repeat("n", 40), ""},
		{CheckNode, long, node},
		{CheckNode, "-", node},
		{CheckLower, "order.close", ""},
		{CheckLower, "0", ""},
		{CheckLower, "bestellung.schließen", small},
		{CheckLower, "a\n", small},
		{CheckLower, "Order", small},
		{CheckLower, strings.Repeat("n", 65), small},
		{CheckShown, "db 0 (Zürich)", ""},
		{CheckShown, "", ""},
		{CheckShown, "a\nb", ": use one line of printable text"},
		{CheckShown, "a\x1b[0m", ": use one line of printable text"},
	} {
		err := c.check("it", c.name)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "it \"") || !strings.HasSuffix(err.Error(), c.want)) {
			t.Errorf("%q: got %v, want %s", c.name, err, c.want)
		}
	}
}

func TestEveryHostHasAName(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"host-1":           "host-1",
		"Node.example.com": "Node.example.com",
		"":                 "host-e3b0c442",
		"-":                "host-3973e022",
		"my host":          "my-host-88dd8853",
		"ip-10-0-12-7.eu-central-1.compute.internal": "ip-10-0-12-7.eu-central-1.compu-fa1cde9a",
	} {
		if got := OfHost(host); got != want {
			t.Errorf("%q: got %s, want %s", host, got, want)
		}
	}
}

func TestNamesOfHostsFitAndDiffer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		if err := CheckNode("node", OfHost(a)); err != nil {
			t.Fatal(err)
		}
		if a != b && OfHost(a) == OfHost(b) {
			t.Fatalf("%q and %q are both %s", a, b, OfHost(a))
		}
	})
}
