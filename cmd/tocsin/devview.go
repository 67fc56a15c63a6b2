package main

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tocsinhq/tocsin/internal/devcluster"
)

// devUnits are the stages of `tocsin dev` that show progress, with what they count.
var devUnits = map[string]string{"create": "tables", "deliver": "tasks"}

// devView shows what `tocsin dev` does: progress stage by stage, and after the
// samples a line a delivery. Safe for concurrent use.
type devView struct {
	app       *app
	following atomic.Bool

	mu    sync.Mutex
	stage string
	shown *progress // of the stage; nil between stages
}

func newDevView(a *app) *devView { return &devView{app: a} }

// progress shows how far a stage is; another stage ends the one before.
func (v *devView) progress(stage string, done, total int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shown == nil || stage != v.stage {
		v.close()
		v.stage, v.shown = stage, v.app.progress(stage, devUnits[stage])
	}
	v.shown.report(done, total)
}

// end ends the last stage, so that what follows begins a line.
func (v *devView) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.close()
}

func (v *devView) close() {
	if v.shown != nil {
		v.shown.end()
		v.shown = nil
	}
}

// follow shows each delivery from now on.
func (v *devView) follow() { v.following.Store(!v.app.json) }

// delivery shows one.
func (v *devView) delivery(d devcluster.Delivery) {
	if v.following.Load() {
		fmt.Fprintf(v.app.out, "delivered %s biz_id %d job_id %s by %s, %.1f ms after its time\n",
			d.Info.BizType, d.Info.BizID, d.Info.JobID, d.Node, float64(d.Late.Microseconds())/1000)
	}
}
