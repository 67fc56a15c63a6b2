package tocsin

import (
	"encoding/json"
	"maps"
	"testing"
	"unicode/utf8"
)

func FuzzHeadersComeBackAsTheyWereGiven(f *testing.F) {
	f.Add("tenant", "shop 7", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("a", "<\x00\u2028\ufffd🔔\\\"", "A", "")
	f.Add("", "x", "a b", "\xff")
	f.Fuzz(func(t *testing.T, name, text, name2, text2 string) {
		task := NewTask{}.Header(name, text).Header(name2, text2)
		h, err := HeadersOf(task.Headers())
		fine := headerForm.MatchString(name) && headerForm.MatchString(name2) && utf8.ValidString(text2) && (name == name2 || utf8.ValidString(text))
		if err != nil {
			if fine && len(text)+len(text2) < 100 {
				t.Fatal(err)
			}
			return
		}
		if !fine || utf8.RuneCountInString(string(h)) > MaxHeaders {
			t.Fatalf("%q is taken", h)
		}
		all, err := h.All()
		if err != nil || !maps.Equal(all, task.Headers()) {
			t.Fatalf("%v came back as %v, %v", task.Headers(), all, err)
		}
		b, err := json.Marshal(Info{JobID: 1, Headers: h})
		var back Info
		if err != nil || json.Unmarshal(b, &back) != nil || back.Headers != h {
			t.Fatalf("%q came back from JSON as %q, %v", h, back.Headers, err)
		}
	})
}

func FuzzWhatIsReadAsHeadersIsSafe(f *testing.F) {
	for _, text := range []string{"", "{}", "null", `{"a":"b"}`, `{"a":1}`, `{"a":"b","a":null}`, "{"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Headers(text).All()
		if err != nil && all != nil {
			t.Fatalf("%v, %v", all, err)
		}
		for name, want := range all {
			if got := Headers(text).Get(name); got != want {
				t.Fatalf("%q: %q, want %q", name, got, want)
			}
		}
		if _, err := json.Marshal(Info{Headers: Headers(text)}); err != nil {
			t.Fatal(err)
		}
	})
}
