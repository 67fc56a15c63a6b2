package console_test

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// Of a biz type with a history, a page without attempts tells whether some were made. One that was open when its task ended is read
// twice more, since the last attempt is written a little later.
func TestAPageThatSawTheEndOfItsTaskIsReadTwiceMore(t *testing.T) {
	t.Parallel()
	s := over(t, tocsintest.StartWith(t, biztype.Policy{Name: "order.close", Number: 1, History: true}), changes{})
	added, err := s.Client.Add(t.Context(), closing.New(1, "", tocsin.In(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	path := "/tasks/" + added.JobID.String()
	b := s.as("operate")
	page := b.sees(path, http.StatusOK, "No attempt is recorded yet.")
	if _, err := s.DB.ExecContext(t.Context(), "UPDATE "+s.Client.Layout().Table(added.JobID.Table())+" SET attempts = 3 WHERE job_id = ?", uint64(added.JobID)); err != nil {
		t.Fatal(err)
	}
	s.call("POST", path+":bury", "")
	again := regexp.MustCompile(`hx-get="([^"]*)"`)
	for reads := range 4 {
		next := again.FindStringSubmatch(page.text)
		if (next != nil) != (reads < 3) {
			t.Fatalf("after %d reads the next one is %q", reads, next)
		}
		if next != nil {
			page = b.sees(next[1], http.StatusOK, "Attempts made: 3. Their records come within a second, were purged")
		}
	}
	page.has(t, "the last read", http.StatusOK, "ended: it is not read again")
}
