package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
)

// LatenessResult says how late deliveries began, by the clock of the database.
type LatenessResult struct {
	Rate      float64 `json:"rate"`             // asked for
	Added     int     `json:"tasks"`            // in so many seconds
	AddedRate float64 `json:"tasks_per_second"` // reached
	Seconds   float64 `json:"seconds"`          // of adding
	Delay     float64 `json:"delay_seconds"`    // least time between insert and action time
	Spread    float64 `json:"spread_seconds"`
	Delivered int     `json:"delivered"` // done, by the tables; burst and all
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	P999      float64 `json:"p999_ms"`
	Max       float64 `json:"max_ms"`
	Early     int     `json:"early"`
	BoundP50  float64 `json:"bound_p50_ms"` // of a raw read of one row by its key at the same rate: what every delivery waits for; mean of before and after
	BoundP99  float64 `json:"bound_p99_ms"`
	Ratio     float64 `json:"ratio"` // p99 over the bound's
	PerTask   PerTask `json:"per_task"`
	Resident  float64 `json:"largest_resident_mb"` // of this process
	Burst     *Burst  `json:"burst,omitempty"`

	Pulled    *Pulled       `json:"pull,omitempty"`      // null: no workers asked
	Elsewhere *Elsewhere    `json:"elsewhere,omitempty"` // null: workers asked every node
	Backlog   *BacklogTaken `json:"backlog,omitempty"`
	Run
}

// Burst is what tasks of another biz type did that were all due at one instant.
type Burst struct {
	Tasks          int     `json:"tasks"`
	TasksPerSecond float64 `json:"tasks_per_second"` // from that instant to the last delivery
	P99            float64 `json:"p99_ms"`           // of the other tasks that were due meanwhile
	Max            float64 `json:"max_ms"`
}

// Lateness measures how late nodes deliver tasks that are added all the time.
func Lateness(ctx context.Context, opts Options) (r LatenessResult, err error) {
	if opts.Rate <= 0 || opts.Duration <= 0 {
		return r, wrong("lateness: wants a rate and a duration")
	}
	s, err := openSite(ctx, opts, false)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := errors.Join(s.fillPending(ctx), s.fillBacklog(ctx)); err != nil {
		return r, err
	}
	l := &lateness{site: s}
	if err := l.measure(ctx); err != nil {
		return r, fmt.Errorf("lateness: %w", err)
	}
	settings, err := s.settings(ctx)
	return l.result(settings), err
}

// lateness is one under way.
type lateness struct {
	site          *site
	ahead         []time.Duration // by server: its clock minus this machine's
	before, after []time.Duration // of the raw reads, sorted
	usage         Usage
	added         int
	adding        time.Duration
	delivered     int
	instant       time.Time // at which the burst is due, by this machine's clock
	pulled        *Pulled
	others        map[int]bool // tables whose owner the workers don't ask
	backlog       *BacklogTaken

	mu    sync.Mutex
	seen  []arrival
	burst []time.Time
}

// arrival is one delivery.
type arrival struct {
	due   time.Time // by the database's clock, as the row has it
	late  time.Duration
	table int
}

func (l *lateness) measure(ctx context.Context) (err error) {
	if l.before, err = l.site.reads(ctx); err != nil {
		return err
	}
	if err = l.compareClocks(ctx); err != nil {
		return err
	}
	nodes, err := l.site.startNodes(ctx, l.arrive, l.arriveTogether)
	if err != nil {
		return err
	}
	if err = errors.Join(l.byNodes(ctx, nodes), nodes.stop()); err != nil {
		return err
	}
	if l.delivered, err = l.site.done(ctx); err != nil {
		return err
	}
	l.after, err = l.site.reads(ctx)
	return err
}

// byNodes has them deliver what is added, and workers take what they ask for.
func (l *lateness) byNodes(ctx context.Context, nodes *fleet) (err error) {
	if _, err := nodes.takeBacklog(ctx, 0); err != nil { // then nobody asks any more
		return err
	}
	if l.others, err = nodes.notAsked(ctx); err != nil {
		return err
	}
	nodes.ask(func(t tocsin.Info) { l.arrive(ctx, t) })
	if err := profiled(l.site.opts.Profile, func() error { return l.deliver(ctx, nodes) }); err != nil {
		return err
	}
	l.pulled = nodes.pulled()
	l.backlog, err = nodes.takeBacklog(ctx, backlogTakes)
	return err
}

// compareClocks measures the clocks of servers that were given; the private one
// has this machine's. The reading with the shortest round trip is the best.
func (l *lateness) compareClocks(ctx context.Context) error {
	const readings = 20
	l.ahead = make([]time.Duration, len(l.site.pools))
	if l.site.own != nil {
		return nil
	}
	for server := range l.ahead {
		shortest := time.Hour
		for range readings {
			o, err := l.site.store.Measure(ctx, server)
			if err != nil {
				return err
			}
			if o.RoundTrip < shortest {
				shortest, l.ahead[server] = o.RoundTrip, o.Ahead
			}
		}
	}
	return nil
}

// arrive notes a delivery of the tasks that are measured.
func (l *lateness) arrive(_ context.Context, t tocsin.Info) {
	table := t.JobID.Table()
	at := time.Now().Add(l.ahead[l.site.store.ServerOf(table)])
	l.mu.Lock()
	l.seen = append(l.seen, arrival{t.ActionTime, at.Sub(t.ActionTime), table})
	l.mu.Unlock()
}

// arriveTogether notes one of the burst.
func (l *lateness) arriveTogether(context.Context, tocsin.Info) {
	at := time.Now()
	l.mu.Lock()
	l.burst = append(l.burst, at)
	l.mu.Unlock()
}

func (l *lateness) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen) + len(l.burst)
}

// deliver adds tasks for the duration and waits until all are delivered.
func (l *lateness) deliver(ctx context.Context, nodes *fleet) error {
	var err error
	l.usage, err = l.site.measured(ctx, func() error {
		if err := l.addBurst(ctx); err != nil {
			return err
		}
		if err := l.addAll(ctx); err != nil {
			return err
		}
		return nodes.awaitAll(ctx, "deliver", l.added+l.site.opts.Burst, l.count)
	})
	return err
}

// addBurst adds the tasks that are all due at one instant, half-way between the
// first and the last of the others.
func (l *lateness) addBurst(ctx context.Context) error {
	o := l.site.opts
	l.instant = time.Now().Add(o.Delay + o.Spread/2 + o.Duration/2).Truncate(time.Millisecond)
	for from := 0; from < o.Burst; from += manyRows {
		tasks := make([]tocsin.NewTask, min(manyRows, o.Burst-from))
		for i := range tasks {
			tasks[i] = other.New(l.site.rows.nextBiz(), payload, tocsin.At(l.instant.Add(l.ahead[0])))
		}
		if _, err := l.site.client.AddMany(ctx, tasks); err != nil {
			return fmt.Errorf("add the burst: %w", err)
		}
	}
	return nil
}

const (
	adders   = 4                     // goroutines that add
	addEvery = 20 * time.Millisecond // each
)

// addAll has the adders keep up the rate for the duration.
func (l *lateness) addAll(ctx context.Context) error {
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range adders {
		g.Go(func() error { return l.keepUp(ctx, begin) })
	}
	err := g.Wait()
	l.adding = time.Since(begin)
	return err
}

// keepUp adds, at every tick, what is missing to the rate.
func (l *lateness) keepUp(ctx context.Context, begin time.Time) error {
	o := l.site.opts
	tick := time.NewTicker(addEvery)
	defer tick.Stop()
	for passed := time.Duration(0); passed < o.Duration; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		passed = min(time.Since(begin), o.Duration)
		tasks := l.missing(max(int(o.Rate*passed.Seconds()), 1))
		if len(tasks) == 0 {
			continue
		}
		if _, err := l.site.client.AddMany(ctx, tasks); err != nil {
			return fmt.Errorf("add tasks: %w", err)
		}
	}
	return nil
}

// missing makes the tasks that are missing to so many.
func (l *lateness) missing(to int) []tocsin.NewTask {
	o := l.site.opts
	l.mu.Lock()
	defer l.mu.Unlock()
	tasks := make([]tocsin.NewTask, max(to-l.added, 0))
	for i := range tasks {
		tasks[i] = plain.New(l.site.rows.nextBiz(), payload, tocsin.In(between(o.Delay, o.Delay+o.Spread)))
	}
	l.added += len(tasks)
	o.Progress("add", l.added, int(o.Rate*o.Duration.Seconds()))
	return tasks
}

func (l *lateness) result(settings map[string]string) LatenessResult {
	o := l.site.opts
	late := make([]time.Duration, len(l.seen))
	early := 0
	for i, a := range l.seen {
		if late[i] = a.late; a.late < 0 {
			early++
		}
	}
	slices.Sort(late)
	_, resident := processUsed()
	bound := func(q float64) float64 { return round((millis(l.before, q)+millis(l.after, q))/2, 3) }
	return LatenessResult{
		Rate: o.Rate, Added: l.added, AddedRate: round(float64(l.added)/l.adding.Seconds(), 1), Seconds: round(l.adding.Seconds(), 3),
		Delay: o.Delay.Seconds(), Spread: o.Spread.Seconds(), Delivered: l.delivered, Early: early,
		P50: millis(late, 0.5), P99: millis(late, 0.99), P999: millis(late, 0.999), Max: millis(late, 1),
		BoundP50: bound(0.5), BoundP99: bound(0.99), Ratio: ratio(millis(late, 0.99), bound(0.99)),
		PerTask: l.usage.perTask(l.added + o.Burst), Resident: round(resident, 1),
		Burst: l.burstResult(), Pulled: l.pulled, Elsewhere: l.elsewhere(), Backlog: l.backlog, Run: l.site.run(settings),
	}
}

// burstResult looks at the tasks that were due between the instant and the end
// of the burst; nil where there was none.
func (l *lateness) burstResult() *Burst {
	if len(l.burst) == 0 {
		return nil
	}
	end := slices.MaxFunc(l.burst, time.Time.Compare)
	var late []time.Duration
	for _, a := range l.seen {
		if at := a.due.Add(-l.ahead[0]); !at.Before(l.instant) && at.Before(end) {
			late = append(late, a.late)
		}
	}
	slices.Sort(late)
	return &Burst{
		Tasks: len(l.burst), TasksPerSecond: round(float64(len(l.burst))/end.Sub(l.instant).Seconds(), 0),
		P99: millis(late, 0.99), Max: millis(late, 1),
	}
}

// String formats the result for a terminal.
func (r LatenessResult) String() string {
	var l lines
	l.line("delivered", "%d tasks, added at %.0f a second for %.1f s", r.Delivered, r.AddedRate, r.Seconds)
	l.line("lateness", "p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, max %.2f ms; %d early", r.P50, r.P99, r.P999, r.Max, r.Early)
	l.line("raw read", "p50 %.2f ms, p99 %.2f ms: p99 is %.1f times that", r.BoundP50, r.BoundP99, r.Ratio)
	if b := r.Burst; b != nil {
		l.line("burst", "%d tasks at one instant, %.0f a second; others meanwhile p99 %.2f ms, max %.2f ms", b.Tasks, b.TasksPerSecond, b.P99, b.Max)
	}
	l.elsewhere(r.Elsewhere)
	l.backlog(r.Backlog)
	l.pulled(r.Pulled)
	l.cost("a task", r.PerTask)
	l.line("memory", "%.0f MB at most in this process", r.Resident)
	l.line("metrics", "%s", r.Metrics)
	l.run(r.Run)
	return l.String()
}
