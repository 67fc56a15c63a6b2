package main

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// servePage is serve with a status page, and returns the page's address.
func (s *site) servePage(name string) string {
	s.t.Helper()
	page := devtest.FreeAddress()
	s.serve(name, "--listen", page)
	return page
}

// wantExpiry wants the time of a certificate of devtest, which expires within the hour.
func wantExpiry(t *testing.T, page, series string) {
	t.Helper()
	_, text := get(t, http.DefaultClient, "http://"+page+"/metrics", "")
	_, rest, _ := strings.Cut(text, "\n"+series+" ")
	value, _, _ := strings.Cut(rest, "\n")
	seconds, err := strconv.ParseFloat(value, 64)
	if left := time.Until(time.Unix(int64(seconds), 0)); err != nil || left <= 0 || left > time.Hour {
		t.Errorf("%s is %q: %s left, %v", series, value, left, err)
	}
}
