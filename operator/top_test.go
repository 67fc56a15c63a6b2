package operator

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

var at = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// sample returns a sample of a node that has delivered done tasks, most of them within 10 ms.
func sample(node string, after time.Duration, done float64, change ...func(*typeSample)) nodeSample {
	t := typeSample{
		Done: done, Retried: done / 10, Dead: done / 100, Running: 2, Limit: 64,
		Late: []bucket{{time.Millisecond, 0}, {10 * time.Millisecond, done * .9}, {time.Second, done}, {never, done}},
	}
	for _, c := range change {
		c(&t)
	}
	return nodeSample{Node: node, Group: "orders", Address: node + ":1", At: at.Add(after), Mode: "ownership", Tables: 4, Wanted: 4, Types: map[string]typeSample{"order.close": t}}
}

func samples(all ...nodeSample) map[string]nodeSample {
	by := map[string]nodeSample{}
	for _, s := range all {
		by[s.Address] = s
	}
	return by
}

func TestRatesAreTheGrowthOfCounters(t *testing.T) {
	t.Parallel()
	before := samples(sample("a", 0, 1000), sample("b", 0, 500))
	v := between(before, samples(sample("a", 2*time.Second, 1200), sample("b", 2*time.Second, 600)), at)
	close := v.Types[0]
	if len(v.Types) != 1 || close.Delivered != 150 || close.Failed != 16.5 || close.Dead != 1.5 || v.Seconds != 2 || v.Total != close.Rates {
		t.Errorf("got %+v", v)
	}
	if close.Late50 == nil || *close.Late50 != .01 || close.Late99 == nil || *close.Late99 != 1 || close.Running != 4 || close.Limit != 128 || close.State != "open" {
		t.Errorf("got %+v", close)
	}
	if len(v.Nodes) != 2 || v.Nodes[0].ID != "a" || v.Nodes[0].Delivered != 100 || v.Nodes[1].Delivered != 50 {
		t.Errorf("got %+v", v.Nodes)
	}
}

func TestANodeWithoutAnEarlierSampleHasNoRate(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]map[string]nodeSample{
		"there was none":   nil,
		"of a former life": samples(sample("a", 0, 5000)),
		"of another node":  {"a:1": sample("x", 0, 100)},
		"it had failed":    {"a:1": {Node: "a", Address: "a:1", At: at, Err: errors.New("refused")}},
	} {
		v := between(before, samples(sample("a", 2*time.Second, 1200)), at)
		if v.Total != (Rates{}) || v.Types[0].Late50 != nil || v.Types[0].Running != 2 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestWhatOneNodeMeasuresCountsOnce(t *testing.T) {
	t.Parallel()
	leads := func(s *typeSample) { s.Measured, s.Overdue, s.Age, s.Drain = true, 12, 90*time.Second, math.Inf(1) }
	full := func(s *typeSample) { s.Running = 64 }
	v := between(nil, samples(sample("a", 0, 0, leads), sample("b", 0, 0, full)), at)
	if got := v.Types[0]; *got.Overdue != 12 || got.Age != 90 || got.Drain != nil || got.State != "full" {
		t.Errorf("got %+v", got)
	}
}

func TestANodeThatDoesNotAnswerIsALine(t *testing.T) {
	t.Parallel()
	v := between(nil, samples(sample("a", 0, 0), nodeSample{Node: "b", Address: "b:1", Err: errors.New("connection refused")}), at)
	v.Notes = append(v.Notes, "etcd is away")
	shows(t, v,
		"cluster shop at 2026-11-22 09:00:00Z: 1 of 2 nodes answer; no rates yet\n", "order.close - - - - - 2/64 0 open - - -\n",
		"a orders ownership 4 4 - - 0 0 -\n", "note: b at b:1 does not answer: connection refused\n", "note: etcd is away\n")
}

// shows wants lines in the text for people.
func shows(t *testing.T, v Activity, wants ...string) {
	t.Helper()
	text := ""
	for _, line := range v.Lines("shop") {
		text += strings.Join(line, " ") + "\n"
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestALaneIsShownAsTheWorstOfItsNodes(t *testing.T) {
	t.Parallel()
	state := func(state, running int) func(*typeSample) {
		return func(t *typeSample) { t.State, t.Running = state, running }
	}
	for want, states := range map[string][2]func(*typeSample){
		"lacking": {state(3, 0), state(0, 64)},
		"paused":  {state(2, 0), state(1, 0)},
		"limited": {state(1, 0), state(0, 64)},
		"full":    {state(0, 64), state(0, 0)},
		"away":    {state(4, 0), state(2, 0)},
		"busy":    {state(5, 0), state(1, 0)},
	} {
		v := between(nil, samples(sample("a", 0, 1, states[0]), sample("b", 0, 1, states[1])), at)
		if got := v.Types[0].State; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestAThrottledTypeShowsItsRate(t *testing.T) {
	t.Parallel()
	throttled := func(rate float64) func(*typeSample) {
		return func(t *typeSample) { t.State, t.Throttle = 5, rate }
	}
	shows(t, between(nil, samples(sample("a", 0, 1, throttled(2)), sample("b", 0, 1, throttled(0.5))), at), "busy, 2.5/s")
}

// Any node that workers ask makes a pull type able; what they settle is its rate.
func TestOfAPullTypeTheWorkersAreShown(t *testing.T) {
	t.Parallel()
	workers := func(n int) func(*typeSample) {
		return func(t *typeSample) {
			if t.Waiters = &n; n == 0 {
				t.State = 3
			}
		}
	}
	v := between(nil, samples(sample("a", 0, 1, workers(0)), sample("b", 0, 1, workers(3)), sample("c", 0, 1, workers(4))), at)
	shows(t, v, "order.close - - - - - 6/192 0 open, 7 ask - - -\n")
	v = between(nil, samples(sample("a", 0, 1, workers(0)), sample("b", 0, 1, workers(0))), at)
	shows(t, v, "order.close - - - - - 4/128 0 no_worker - - -\n")

	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(strings.NewReader(`# TYPE tocsin_pull_waiters gauge
tocsin_pull_waiters{biz_type="label.print"} 2
# TYPE tocsin_pull_settled_total counter
tocsin_pull_settled_total{biz_type="label.print",verb="complete",result="done"} 7
tocsin_pull_settled_total{biz_type="label.print",verb="complete",result="already"} 1
tocsin_pull_settled_total{biz_type="label.print",verb="retry",result="done"} 3
`))
	if err != nil {
		t.Fatal(err)
	}
	var s nodeSample
	families(found).into(&s)
	if got := s.Types["label.print"]; got.Done != 7 || got.Retried != 3 || *got.Waiters != 2 {
		t.Errorf("%+v", got)
	}
}

func TestTroubleOfServersAndGroupsIsTold(t *testing.T) {
	t.Parallel()
	measured := func(s *typeSample) { s.Measured = true }
	a, b := sample("a", 0, 0, measured), sample("b", 0, 0)
	a.Servers = map[string]serverSample{"db0": {Figures: time.Minute}, "db1": {Waiting: 3 * time.Second, Figures: 5 * time.Minute}, "db2": {Away: true}}
	b.Servers = map[string]serverSample{"db0": {Waiting: time.Second}, "db1": {Waiting: 190 * time.Second}, "db2": {Away: true}}
	a.Groups = map[string]int{"lonely": 2, "paused": 0, "silent": 1}
	silent := nodeSample{Node: "c", Group: "silent", Address: "c:1", Err: errors.New("refused")}
	v := between(nil, samples(a, b, silent), at)
	shows(t, v,
		"order.close - - - - - 4/128 0 open 0? - -\n", "note: server db1 has not answered a statement for 3m10s, and has overdue figures that are 5m0s old\n",
		"note: server db2 does not answer 2 nodes\n", "note: group lonely has no node: nobody but the sweeper delivers its 2 biz types\n")
	if len(v.Servers) != 2 || len(v.Groups) != 1 {
		t.Errorf("got %+v, %+v", v.Servers, v.Groups)
	}
	if v := between(nil, samples(b), at); len(v.Servers) != 2 || len(v.Groups) != 0 {
		t.Errorf("got %+v, %+v", v.Servers, v.Groups)
	}
}

// An answer of another node is not taken for the one that was asked.
func TestAWatchKnowsTheNodeThatAnswers(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(NodeHeader, "host-b")
		fmt.Fprint(w, "# TYPE tocsin_node_mode gauge\ntocsin_node_mode{mode=\"claim\"} 1\n")
	}))
	defer page.Close()
	address := strings.TrimPrefix(page.URL, "http://")
	w := &Watch{View: View{Pages: Asker{Client: page.Client(), Scheme: "http"}}, Interval: 10 * time.Second}
	if got := w.sample(t.Context(), pageOfNode{"host-a", "orders", address}); got.Err == nil || !strings.Contains(got.Err.Error(), "another node answers there") {
		t.Errorf("got %+v", got)
	}
	if got := w.sample(t.Context(), pageOfNode{"host-b", "orders", address}); got.Err != nil || got.Mode != "claim" {
		t.Errorf("got %+v", got)
	}
}
