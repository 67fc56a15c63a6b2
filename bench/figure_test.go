package bench

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

func TestQuantiles(t *testing.T) {
	t.Parallel()
	ms := func(all ...int) (d []time.Duration) {
		for _, x := range all {
			d = append(d, time.Duration(x)*time.Millisecond)
		}
		return d
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for name, c := range map[string]struct {
		of   []time.Duration
		q    float64
		want float64
	}{
		"nothing":           {nil, 0.99, 0},
		"one":               {ms(7), 0.5, 7},
		"the median of two": {ms(1, 2), 0.5, 1},
		"the median of odd": {ms(1, 2, 9), 0.5, 2},
		"p99 of a hundred":  {ms(hundred...), 0.99, 99},
		"the largest":       {ms(1, 2, 9), 1, 9},
	} {
		if got := quantile(c.of, c.q); got != c.want {
			t.Errorf("%s: %g, want %g", name, got, c.want)
		}
	}
}

func TestProcessorTimeIsReadBehindAnyName(t *testing.T) {
	t.Parallel()
	for stat, want := range map[string]float64{
		"12 (mariadbd) S 1 12 12 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 9 0 5": 2,
		"12 (a) b) 7) S 1 12 12 0 -1 4194560 9 0 0 0 100 0 0 0 20":           1,
		"12 (short) S 1": math.NaN(),
		"":               math.NaN(),
		"12 (x) S 1 12 12 0 -1 4194560 9 0 0 0 many 50 0 0 20 0 9 0 5": math.NaN(),
	} {
		if got := parseStat(stat); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%q: %g, want %g", stat, got, want)
		}
	}
}

func TestThisProcessHasUsedProcessorTime(t *testing.T) {
	t.Parallel()
	if processCPU() <= 0 {
		t.Error("none")
	}
	if own := cpuOf(os.Getpid()); math.IsNaN(own) || own < 0 {
		t.Errorf("/proc says %g", own)
	}
	if !math.IsNaN(cpuOf(-1)) {
		t.Error("a process that is not there has used some")
	}
}

func TestUnknownFiguresAreNullInJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Usage{Seconds: 1, ServerCPU: math.NaN()}.perTask(0))
	must(t, err)
	if !strings.Contains(string(text), `"server_cpu_us":null`) {
		t.Errorf("%s", text)
	}
}

func TestOptionsThatNoRunCanUse(t *testing.T) {
	t.Parallel()
	good := Options{Layout: tocsin.Layout{Databases: 1, Tables: 1}}
	must(t, good.Validate())
	for says, change := range map[string]func(*Options){
		"layout 0x1":     func(o *Options) { o.Layout.Databases = 0 },
		"-1 tasks":       func(o *Options) { o.Tasks = -1 },
		"rate -1":        func(o *Options) { o.Rate = -1 },
		"duration 2h":    func(o *Options) { o.Duration = 2 * time.Hour },
		"delay -1s":      func(o *Options) { o.Delay = -time.Second },
		"spread 2h":      func(o *Options) { o.Spread = 2 * time.Hour },
		"overdue -1s":    func(o *Options) { o.Overdue = -time.Second },
		"warm -1s":       func(o *Options) { o.Warm = -time.Second },
		"65 nodes":       func(o *Options) { o.Nodes = 65 },
		"-5 pending":     func(o *Options) { o.Pending = -5 },
		"concurrency -1": func(o *Options) { o.Concurrency = -1 },
		"etcd endpoints": func(o *Options) { o.Servers = []tocsin.Server{{DSN: "root@tcp(127.0.0.1:1)/"}} },
	} {
		o := good
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
