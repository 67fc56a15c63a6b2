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

func TestThisProcessHasUsedProcessorTime(t *testing.T) {
	t.Parallel()
	if cpu, megabytes := processUsed(); cpu <= 0 || megabytes <= 1 {
		t.Error(cpu, megabytes)
	}
	if own, resident := usedBy(os.Getpid()); math.IsNaN(own) || own < 0 || !(resident > 1) {
		t.Errorf("/proc says %g s and %g MB", own, resident)
	}
	if cpu, _ := usedBy(-1); !math.IsNaN(cpu) {
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
		"etcd endpoints": func(o *Options) { o.Servers = []tocsin.Server{{DSN: "root@tcp(127.0.0.1:1)/"}} },
	} {
		o := good
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
