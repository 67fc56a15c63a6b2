package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestAListThatTakesTooLongSaysWhatToDo(t *testing.T) {
	t.Parallel()
	p := problemOf(fmt.Errorf("find done tasks: %w", mysql.ErrTimeUp))
	if p.Status != http.StatusServiceUnavailable || p.Code != "timeout" || p.retry == 0 || !strings.Contains(p.Detail, "name a shorter time by from and to") {
		t.Errorf("%+v", p)
	}
}

// A caller that is told that nothing is stored adds the tasks again: those without a dedup_key would be stored twice.
func TestABatchOfWhichSomeMayBeStoredSaysSo(t *testing.T) {
	t.Parallel()
	added := Result{Added: &Added{}}
	away, unknown := Result{Problem: problemOf(tocsin.ErrUnreachable)}, Result{Problem: problemOf(fmt.Errorf("add: %w", tocsin.ErrUnknownOutcome))}
	wrong := Result{Problem: invalid("biz_id", "it is wrong")}
	for name, c := range map[string]struct {
		results []Result
		code    string // "": the answer is 200
	}{
		"nothing is stored":         {[]Result{away, away}, "unavailable"},
		"the last may be":           {[]Result{away, unknown}, "outcome_unknown"},
		"the first may be":          {[]Result{unknown, away, away}, "outcome_unknown"},
		"one is":                    {[]Result{away, unknown, added}, ""},
		"one is refused for itself": {[]Result{unknown, wrong}, ""},
	} {
		batch, got := AddedMany{Results: c.results}, ""
		if p, failed := batch.failed().(*Problem); failed {
			got = p.Code
			if p.Status != http.StatusServiceUnavailable {
				t.Errorf("%s: status %d", name, p.Status)
			}
		}
		if got != c.code {
			t.Errorf("%s: %q, want %q", name, got, c.code)
		}
	}
}
