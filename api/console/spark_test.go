package console

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/api"
)

// pastOf are samples of deliveries and failures a second, which are late by as many seconds; -1: nothing was delivered.
func pastOf(done ...float64) (all []api.OverviewSample) {
	for _, n := range done {
		s := api.OverviewSample{Delivered: max(n, 0), Failed: max(n, 0) / 2}
		if n >= 0 {
			ms := int64(n * 1000)
			s.Late99MS = &ms
		}
		all = append(all, s)
	}
	return all
}

func TestASparkEndsAtTheRightAndBreaksWhereNothingIsKnown(t *testing.T) {
	t.Parallel()
	v, o := &visit{Console: &Console{}, lang: "en", zone: time.UTC, now: time.Now()}, &overviewPage{}
	past := pastOf(9, 1, 2, 4, 0, 0, 1, -1, -1, -1, 0, 0, 0, 0, 2, 1) // the first belongs to a point that is no longer whole
	if got := v.Lateness(past); got == nil || got.Line != "M45 1 48 11M54 14 57 8" || got.Most != "4 s" {
		t.Errorf("%+v", got)
	}
	if got := o.Rates(past); got == nil || got.Line != "M45 1 48 11 51 14 54 14 57 8" || got.Failed != "M45 8 48 13 51 14 54 14 57 11" || got.Most != "4.0/s" {
		t.Errorf("%+v", got)
	}
	for _, few := range [][]api.OverviewSample{nil, pastOf(1, 2), pastOf(1, 2, 3, 4), pastOf(-1, -1, -1, -1, -1, -1)} {
		if v.Lateness(few) != nil || o.Rates(few) != nil {
			t.Errorf("there is a picture of %d samples", len(few))
		}
	}
}

// A refresh of an overview in which everything is busy and drawn has room in 15 KB.
func TestARefreshWithPicturesIsSmall(t *testing.T) {
	t.Parallel()
	v := &visit{Console: &Console{}, r: httptest.NewRequest("GET", "/", nil), who: everyone, lang: "zh-CN", zone: time.UTC, now: time.Now()}
	o := &overviewPage{}
	o.RatesOverMS = 5000
	for i := range typesShown {
		var rates []float64
		for range 60 {
			rates = append(rates, rand.Float64()*100)
		}
		ms, overdue := rand.Int64N(90_000), rand.Int64N(9999)
		o.BizTypes = append(o.BizTypes, api.OverviewType{
			BizType: fmt.Sprintf("app%d.%x", i%7, rand.Int()), State: "open", Overdue: &overdue, OldestMS: ms, DrainMS: &ms, Late50MS: &ms, Late99MS: &ms, Delivered: rates[0], Failed: rates[1],
			Running: i, Limit: 64, Queued: i * 7, Past: pastOf(rates...),
		})
	}
	p := &page{visit: v, name: "overview", Data: o}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := pages["overview"].ExecuteTemplate(z, "now", p); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d bytes", packed.Len()); packed.Len() > 15<<10 {
		t.Errorf("%d bytes", packed.Len())
	}
}

// A count that ended at its bound is no exact number.
func TestACountUpToItsBoundSaysSo(t *testing.T) {
	t.Parallel()
	c := &clusterPage{Stats: &api.Stats{AtLeast: []api.Status{"done"}}, Nodes: &api.Nodes{Groups: []api.NodeGroup{{Nodes: []api.Node{{Tables: 80}, {Tables: 20}}}}}}
	for want, got := range map[string]string{"≥ 10,000": c.Count("done", 10_000), "1,234,567": c.Count("dead", 1_234_567), "999": c.Count("dead", 999), "≥ 0": c.Count("done", 0), "25": fmt.Sprint(c.Share(20))} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
