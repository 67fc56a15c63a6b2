package pull

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestWhatIsNoLeaseIsRefused(t *testing.T) {
	t.Parallel()
	text, _, _ := store.LeaseBegan(store.NewLease(1))
	for _, bad := range []string{
		"", ".", "..", "1.0", "1.0.", "1.0." + text + ".", "1.0.lease:" + text, "-1.0." + text, "1.-1." + text, "1.4294967296." + text, "0x1.0." + text, "1. 0." + text,
		"1.0." + strings.Repeat("\n", len(text)), "1.0." + text[:24] + "\r\n", "1.0." + text + "\n", "1.0." + strings.ToUpper(text[:25]) + "A", "1.0." + text[:25] + "u",
		"1.0." + text[:25], strings.Repeat(".", 1<<20), "1.0." + strings.Repeat("0", 1<<20),
	} {
		if l, err := parseLease(bad); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("%.40q: %+v, %v", bad, l, err)
		}
	}
}

func FuzzParseLease(f *testing.F) {
	text, _, _ := store.LeaseBegan(store.NewLease(1_700_000_000_000))
	for _, seed := range []string{"1.0." + text, "", "1.0.\n", "1.0." + strings.Repeat("\n", 26), "18446744073709551615.4294967295." + text} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parseLease(text)
		if err != nil {
			return
		}
		again, err := parseLease(fmt.Sprintf("%d.%d.%s", uint64(l.id), l.version, strings.TrimPrefix(l.by, "lease:")))
		if err != nil || again != l || l.began < 0 || l.began >= 1<<48 {
			t.Errorf("%q: %+v, then %+v, %v", text, l, again, err)
		}
	})
}
