package biztype

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestSetFlag(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		object string
		flag   bool
		want   string
	}{
		"set in an empty object":       {`{}`, true, `{"paused":true}`},
		"set at the end":               {`{"b":1,"a":[2]}`, true, `{"b":1,"a":[2],"paused":true}`},
		"set where it says false":      {`{"paused":false,"a":1}`, true, `{"paused":true,"a":1}`},
		"set already":                  {`{ "paused": true }`, true, `{ "paused": true }`},
		"left out":                     {`{"a":1,"paused":true,"b":2}`, false, `{"a":1,"b":2}`},
		"left out already":             {`{ "a": 1 }`, false, `{ "a": 1 }`},
		"a field of another object":    {`{"a":{"paused":true}}`, false, `{"a":{"paused":true}}`},
		"a name that has to be quoted": {`{"\"<\u00e9":1}`, true, `{"\"\u003cé":1,"paused":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := setFlag(c.object, "paused", c.flag); err != nil || got != c.want {
				t.Errorf("got %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
	for _, text := range []string{``, `null`, `[]`, `{`, `{"a"}`, `{"a":}`, `{}{}`, `{"a":1,}`} {
		if got, err := setFlag(text, "paused", true); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// Whatever the other fields are, a flag that is set and then left out again leaves
// the original text.
func TestSetFlagLeavesEverythingElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.MapOf(rapid.StringMatching(`[a-z<"é]{1,4}`), rapid.Float64Range(-1e9, 1e9)).Draw(t, "fields")
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		set, err := setFlag(string(text), "paused", true)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := setFlag(set, "paused", false); err != nil || got != string(text) {
			t.Fatalf("%s became %s, then %s, %v", text, set, got, err)
		}
	})
}

func TestThatNoServerTellsTheBizTypesIsLoggedEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log devtest.Log
		f := &follower{Watcher: &Watcher{cfg: WatchConfig{Logger: log.Logger()}}}
		for range 150 {
			f.unreachable(errors.New("connection refused"))
			time.Sleep(time.Second)
		}
		f.recovered()
		f.recovered()
		blind, sees := log.Lines("no server tells the biz types; going on with those last read"), log.Lines("biz types can be read again")
		if len(blind) != 3 || len(sees) != 1 || blind[2]["suppressed"] != 59.0 {
			t.Errorf("logged %v", log.Lines())
		}
	})
}
