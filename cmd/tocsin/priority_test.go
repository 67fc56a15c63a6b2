package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// A node tells how many tasks a second a low priority may load while others begin.
func TestALowPriorityGivesWay(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	s := bareSite(t)
	s.applyDDL()
	s.write("biz.yaml", "biz_types:\n"+
		"  - {name: coupon.remind, number: 2, webhook: {url: "+receiver.URL+", allow: [127.0.0.0/8]}}\n"+
		"  - {name: report.mail, number: 3, priority: low, webhook: {url: "+receiver.URL+", allow: [127.0.0.0/8]}}\n")
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("biz", "show", "report.mail").says(t, "priority: low")
	s.run("biz", "show", "coupon.remind").says(t, "priority: normal")
	page := devtest.FreeAddress()
	s.serve("node", "--listen", page)
	low := s.adding("report.mail", 1, "0s")
	s.waitFor("the node says at what rate others give way", func() bool {
		s.adding("coupon.remind", 7, "0s")
		_, text := get(t, http.DefaultClient, "http://"+page+"/metrics", "")
		return strings.Contains(text, `tocsin_dispatcher_yield_rate{priority="normal"} 1`)
	})
	s.waitFor("the low task is done", func() bool { return s.counted("status <> 2 AND job_id = "+low.String()) == 0 })
}
