package main

import (
	"fmt"
	"sync/atomic"

	"github.com/tocsinhq/tocsin/internal/devcluster"
)

// devUnits are the stages of `tocsin dev` that show progress, with what they count.
var devUnits = map[string]string{"create": "tables", "deliver": "tasks"}

// devView shows what `tocsin dev` does: progress stage by stage, and after the
// samples a line a delivery. Safe for concurrent use.
type devView struct {
	*stages
	following atomic.Bool
}

func newDevView(a *app) *devView { return &devView{stages: newStages(a, devUnits)} }

// follow shows each delivery from now on.
func (v *devView) follow() { v.following.Store(!v.app.json) }

// delivery shows one.
func (v *devView) delivery(d devcluster.Delivery) {
	if v.following.Load() {
		fmt.Fprintf(v.app.out, "delivered %s biz_id %d job_id %s by %s, %.1f ms after its time\n",
			d.Info.BizType, d.Info.BizID, d.Info.JobID, d.Node, float64(d.Late.Microseconds())/1000)
	}
}
