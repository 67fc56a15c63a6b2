package client

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

type inner struct{ Note string }

type spoken string

func (s spoken) MarshalText() ([]byte, error) { return []byte(s), nil }

type order struct {
	inner
	Name   string
	Bytes  []byte
	Raw    json.RawMessage
	Any    any
	Tags   map[string][]string
	Spoken spoken
	Next   *order
	Skip   string `json:"-"`
	hidden string
	When   time.Time
}

// A text that is no UTF-8 is refused, and said where it is; all others are written exactly.
func TestAPayloadIsWrittenExactlyOrRefused(t *testing.T) {
	t.Parallel()
	for where, value := range map[string]any{
		"it is not UTF-8":  "a\xff",
		`"Name"`:           order{Name: "a\xff"},
		`"Note"`:           order{inner: inner{"\xc3"}},
		`"Any.x[1]"`:       order{Any: map[string]any{"x": []any{1, "\xed\xa0\x80"}}},
		`"Tags.k[0]"`:      order{Tags: map[string][]string{"k": {"\xff"}}},
		`"Tags.` + "\\xff": order{Tags: map[string][]string{"\xff": nil}},
		`"Spoken"`:         order{Spoken: "\xff"},
		`"Next.Next.Name"`: &order{Next: &order{Next: &order{Name: "\xff"}}},
		`"[1].Note"`:       []inner{{"a"}, {"\xff"}},
		`"k"`:              map[string]string{"k": "\xff"},
	} {
		if _, err := JSON(value); err == nil || !strings.Contains(err.Error(), where) || strings.ContainsRune(err.Error(), '\uFFFD') {
			t.Errorf("%v, want %s", err, where)
		}
	}
	for _, text := range []string{"", " a ", "\ufffd", `\ufffd`, "\x00", "🔔\u2028", "<&>", "e\u0301"} {
		for _, value := range []any{text, order{Name: text, Skip: "\xff", hidden: "\xff", Raw: json.RawMessage(`"\ufffd \ud800"`)}, map[string]any{"k": text}} {
			written, err := JSON(value)
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			if !strings.Contains(written, strings.Trim(fmt.Sprintf("%q", text), `"`)) && !strings.Contains(written, text) && text != "\x00" && text != `\ufffd` && text != "🔔\u2028" {
				t.Errorf("%q became %s", text, written)
			}
			var back any
			if err := json.Unmarshal([]byte(written), &back); err != nil {
				t.Error(err)
			}
		}
	}
	for _, value := range []any{math.NaN(), math.Inf(1), func() {}, make(chan int), map[bool]int{true: 1}} {
		if text, err := JSON(value); err == nil {
			t.Errorf("%T became %s", value, text)
		}
	}
}

type holder struct {
	Of   any
	List []any
	Map  map[string]any
	Deep map[string]holder
	inner
	N   json.Number
	Own self
}

// self reads its own JSON.
type self struct{ V any }

func (s *self) UnmarshalJSON(b []byte) error { s.V = json.Number(b); return nil }

// A number in an any is a float64 if that holds it, and otherwise keeps its digits.
func TestNumbersAreReadExactly(t *testing.T) {
	t.Parallel()
	for number, isFloat := range map[string]bool{
		"0": true, "-0": true, "1": true, "0.1": true, "-1.50": true, "1e3": true, "1E+2": true, "100000000000000000000": true, "9007199254740992": true, "1e308": true,
		"123456789012345.5": true, "1.0000000000000000": true, "0e999999999999999999999": false,
		"9007199254740993": false, "-9223372036854775807": false, "18446744073709551615": false, "0.12345678901234567890": false, "1e400": false, "1e-400": false,
		"12345678901234567890.5": false,
	} {
		want := any(json.Number(number))
		if isFloat {
			var f float64
			if err := json.Unmarshal([]byte(number), &f); err != nil {
				t.Fatal(err)
			}
			want = f
		}
		text := fmt.Sprintf(`{"Of":%[1]s,"List":["x",%[1]s,null,[%[1]s]],"Map":{"k":%[1]s,"m":{"n":%[1]s}},"Deep":{"d":{"Of":%[1]s}},"N":%[1]s,"Own":%[1]s}`, number)
		var h holder
		if err := ReadJSON(text, &h); err != nil {
			t.Errorf("%s: %v", number, err)
			continue
		}
		for at, got := range map[string]any{
			"field": h.Of, "list": h.List[1], "list in a list": h.List[3].([]any)[0], "map": h.Map["k"], "map in a map": h.Map["m"].(map[string]any)["n"], "struct in a map": h.Deep["d"].Of,
		} {
			if got != want {
				t.Errorf("%s in a %s: %T %v, want %T %v", number, at, got, got, want, want)
			}
		}
		if h.N != json.Number(number) || h.Own.V != json.Number(number) || h.List[2] != nil {
			t.Errorf("%s: %+v", number, h)
		}
		var m map[string]any
		if err := ReadJSON(`{"n":`+number+`}`, &m); err != nil || m["n"] != want {
			t.Errorf("%s: %v, %v", number, m, err)
		}
	}
	for _, bad := range []string{`{"n":9007199254740993} x`, `{"n":9007199254740993`, ""} {
		var m map[string]any
		if err := ReadJSON(bad, &m); err == nil {
			t.Errorf("%s became %v", bad, m)
		}
	}
	var n int64
	if err := ReadJSON("9007199254740993", &n); err != nil || n != 9007199254740993 {
		t.Error(n, err)
	}
}

func BenchmarkJSON(b *testing.B) {
	value := order{Name: strings.Repeat("order ", 30), Tags: map[string][]string{"a": {"b", "c"}}}
	for b.Loop() {
		_, _ = JSON(value)
	}
}
