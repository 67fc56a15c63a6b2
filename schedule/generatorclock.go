package schedule

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin"
)

const (
	lookEvery = time.Hour   // from one look for schedules that are made too far ahead to the next
	backBy    = time.Minute // a clock that was set back by less has done no harm: runs are made ten minutes ahead and more
)

// clock watches the clock of one server, beside this process's monotonic one. If it was far ahead, the runs of schedules
// count as made until that time.
type clock struct {
	server int64     // what it said last, Unix ms; 0: nothing yet
	at     time.Time // when
	looked time.Time // when schedules were looked for that are made too far ahead; zero: look
	news   bool      // a look became due since suspect was last asked
}

// note notes what a server's clock says, 0 for nothing, and reports whether a look became due since suspect was last asked. A
// look that failed is due with the next pass, and no news.
func (c *clock) note(server int64, now time.Time) bool {
	if server == 0 {
		return false
	}
	if c.server == 0 || server < c.server+now.Sub(c.at).Milliseconds()-backBy.Milliseconds() {
		c.looked, c.news = time.Time{}, true
	}
	c.server, c.at = server, now
	return c.news
}

// suspect reports whether to look: at first, when the clock was set back, and each hour.
func (c *clock) suspect(server int64, now time.Time) bool {
	c.note(server, now)
	c.news = false
	return c.server != 0 && (c.looked.IsZero() || now.Sub(c.looked) >= lookEvery)
}

// takeBack looks for schedules that are made too far ahead, and makes their next runs. False: it could not.
func (g *Generator) takeBack(ctx context.Context, server int) bool {
	for after := tocsin.JobID(0); ; {
		bounded, cancel := context.WithTimeout(ctx, dueWithin)
		found, err := g.maker.Ahead(bounded, server, after)
		cancel()
		if err != nil {
			g.limit.Of(g.cfg.Logger, "ahead "+g.servers[server]).Warn("it can't be known whether schedules are made too far ahead", "error", err, "server", g.servers[server])
			return false
		}
		if len(found) == 0 {
			return true
		}
		for _, d := range found {
			g.takeBackOne(ctx, d.ID)
			after = d.ID
		}
	}
}

// takeBackOne makes the next runs of one schedule. If it fails, the next look finds it again.
func (g *Generator) takeBackOne(ctx context.Context, id tocsin.JobID) {
	ctx, cancel := context.WithTimeout(ctx, makeWithin)
	defer cancel()
	made, err := g.makeOne(ctx, id)
	switch {
	case err != nil:
		g.failures.Inc()
		g.limit.Of(g.cfg.Logger, "make").Error("runs of a schedule can't be made", "error", err, "schedule_id", id.String())
	case !made.Back.IsZero():
		g.runs.Add(float64(made.Runs))
		g.limit.Of(g.cfg.Logger, "back").Warn("the server's clock was ahead: the runs of a schedule are made from now on again", "schedule", made.Name, "made_until", made.Back)
	}
}
