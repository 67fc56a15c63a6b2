package chaos

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// noon is when the forged task was added; it is due a second later.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// at is a time so many milliseconds after noon.
func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

// forged is the evidence of one task that was added, delivered and done.
func forged() (*evidence, *entry) {
	v := newEvidence(Options{}.withDefaults())
	e := &entry{BizID: 5, JobID: 7, Type: plain.Name(), op: op{Kind: opAdd, Due: at(1000), asked: asked{at(0), at(10), acknowledged}}}
	v.entries[5] = e
	v.rows[5] = []row{{JobID: 7, BizID: 5, Status: tocsin.Done, Action: at(1020), Due: at(1000)}}
	v.deliver(begun("n1-1", 1001, 0))
	return v, e
}

// begun is a delivery that ended well 10 ms later.
func begun(node string, ms, attempts int) delivery {
	return delivery{record: record{Begin: true, JobID: 7, Node: node, At: at(ms), Attempts: attempts}, End: at(ms + 10), OK: true}
}

// called is such a delivery of a callback.
func called(ms int) delivery {
	d := begun("n1-1", ms, 0)
	d.Callback = true
	return d
}

// sent is such a delivery of a message.
func sent(ms int) delivery {
	d := called(ms)
	d.Offset = "12"
	return d
}

// with changes the one row.
func (e *evidence) with(change func(*row)) { change(&e.rows[5][0]) }

func (e *evidence) deliver(d ...delivery) { e.deliveries[7] = d }

func during1s(f Fault) incident {
	return incident{Step: Step{Fault: f}, from: at(1000), to: at(2000)}
}

// forgery is a change of the forged evidence, and the promise that it breaks; "":
// none.
type forgery struct {
	forge  func(*evidence, *entry)
	broken string
}

var forgeries = map[string]forgery{
	"all is well": {func(*evidence, *entry) {}, ""},
	"an acknowledged task has no row": {func(v *evidence, _ *entry) {
		delete(v.rows, 5)
		delete(v.deliveries, 7)
	}, promiseStored},
	"a refused task has a row":     {func(_ *evidence, e *entry) { e.Word = refusedWord }, "a refused add is not stored"},
	"a rolled back task has a row": {func(_ *evidence, e *entry) { e.Word = rolledBack }, "a refused add is not stored"},
	"an unknown one may have a row": {func(_ *evidence, e *entry) {
		e.Word = unknownWord
	}, ""},
	"the row has another id":  {func(_ *evidence, e *entry) { e.JobID = 8 }, "an add is stored once, under the id it was given"},
	"a task is still pending": {func(v *evidence, _ *entry) { v.with(func(r *row) { r.Status = tocsin.Pending }) }, promiseEnds},
	"a task is still claimed": {func(v *evidence, _ *entry) { v.with(func(r *row) { r.Status = tocsin.Claimed }) }, promiseEnds},
	"done without a delivery": {func(v *evidence, _ *entry) { v.deliver() }, promiseDelivered},
	"done after a failed delivery alone": {func(v *evidence, _ *entry) {
		d := begun("n1-1", 1001, 0)
		d.OK = false
		v.deliver(d)
	}, promiseDelivered},
	"done by a delivery of another version": {func(v *evidence, e *entry) {
		e.Change = rescheduledTo(1000)
		v.with(func(r *row) { r.Version = 1 })
	}, promiseDelivered},
	"cancelled by nobody":    {func(v *evidence, _ *entry) { v.with(func(r *row) { r.Status = tocsin.Cancelled }) }, "nobody cancels but the user"},
	"dead after one attempt": {func(v *evidence, _ *entry) { v.with(func(r *row) { r.Status = tocsin.Dead; r.Attempts = 1 }) }, "a task is buried after its last attempt or fifth crash only"},
	"dead after five crashes": {func(v *evidence, _ *entry) {
		v.with(func(r *row) { r.Status = tocsin.Dead; r.Crashes = 5 })
	}, ""},
	"an attempt that nothing explains": {func(v *evidence, _ *entry) { v.with(func(r *row) { r.Attempts = 1 }) }, "an attempt is counted for each failure, and for no crash"},
	"an attempt at a callback that its receiver never took": {func(v *evidence, e *entry) {
		e.Type = hook.Name()
		v.with(func(r *row) { r.Attempts, r.LastError = 1, "delivery timed out after 3s" })
	}, ""},
	"an attempt at a callback whose answer came too late": {func(v *evidence, e *entry) {
		e.Type = hook.Name()
		v.with(func(r *row) { r.Attempts, r.LastError = 1, "callback: no answer in time" })
	}, ""},
	"two attempts at a callback whose answers came too late": {func(v *evidence, e *entry) {
		e.Type = hook.Name()
		v.deliver(begun("n1-1", 1001, 0), begun("n1-1", 5001, 1), begun("n1-1", 9001, 2))
		v.with(func(r *row) { r.Attempts, r.LastError = 2, "callback: no answer in time" })
	}, ""},
	"two attempts at a callback that its receiver never took": {func(v *evidence, e *entry) {
		e.Type = hook.Name()
		v.with(func(r *row) { r.Attempts, r.LastError = 2, "delivery timed out after 3s" })
	}, "an attempt is counted for each failure, and for no crash"},
	"an attempt of a frozen node": {func(v *evidence, _ *entry) {
		v.with(func(r *row) { r.Attempts = 1 })
		v.incidents = []incident{during1s(FreezeNode)}
	}, ""},
	"a failure that was not counted": {func(_ *evidence, e *entry) { e.Fail = 1 }, "an attempt is counted for each failure, and for no crash"},
	"early":                          {func(v *evidence, _ *entry) { v.deliver(begun("n1-1", 999, 0)) }, "never early"},
	"early for what it was rescheduled to": {func(v *evidence, e *entry) {
		e.Change = rescheduledTo(5000)
		d := begun("n1-1", 4999, 0)
		d.Version = 1
		v.deliver(d)
		v.with(func(r *row) { r.Version = 1 })
	}, "never early"},
	"done though its cancel succeeded": {func(_ *evidence, e *entry) { e.Change = cancelledAt(500) }, "a cancelled task stays cancelled"},
	"rescheduled and not": {func(_ *evidence, e *entry) {
		e.Change = rescheduledTo(1000)
	}, "a rescheduled task has a new version"},
	"delivered long after its cancel": {func(v *evidence, e *entry) {
		e.Change = cancelledAt(500)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
		v.deliver(begun("n1-1", 4000, 0))
	}, "a cancelled task is not delivered"},
	"a callback that was seen a while after its cancel": {func(v *evidence, e *entry) {
		e.Change = cancelledAt(500)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
		v.deliver(called(4000))
	}, ""},
	"a callback that was seen long after its cancel": {func(v *evidence, e *entry) {
		e.Change = cancelledAt(500)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
		v.deliver(called(5600))
	}, "a cancelled task is not delivered"},
	"delivered soon after its cancel": {func(v *evidence, e *entry) {
		e.Change = cancelledAt(995)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
	}, ""},
	"strict, and delivered soon after its cancel": {func(v *evidence, e *entry) {
		e.Type, e.Change = strict.Name(), cancelledAt(995)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
	}, "a cancelled task is not delivered"},
	"delivered twice for no reason": {func(v *evidence, _ *entry) {
		v.deliver(begun("n1-1", 1001, 0), begun("n2-1", 1500, 0))
	}, "a second delivery has a cause"},
	"delivered twice since its node was killed": {func(v *evidence, _ *entry) {
		v.deliver(begun("n1-1", 1001, 0), begun("n2-1", 1500, 0))
		v.incidents = []incident{during1s(KillNode)}
	}, ""},
	"strict, and swept while its owner had it": {func(v *evidence, e *entry) {
		e.Type = strict.Name()
		v.deliver(begun("n1-1", 1001, 0), begun("sweeper-1", 1500, 0))
		v.incidents = []incident{during1s(LowSweep)}
	}, "a strict task is delivered by nobody else while its claim lasts"},
	"strict, and its claim ran out while its server was away, beside a sweep": {func(v *evidence, e *entry) {
		e.Type = strict.Name()
		v.deliver(begun("n1-1", 1001, 0), begun("n1-1", 1500, 0))
		v.with(func(r *row) { r.Crashes = 1 })
		v.incidents = []incident{during1s(LowSweep), during1s(KillServer)}
	}, ""},
	"a final state that changed": {func(v *evidence, _ *entry) {
		v.finals[7] = row{JobID: 7, Status: tocsin.Done, Action: at(1019)}
	}, promiseOneEnd},
	"dead, then completed late": {func(v *evidence, _ *entry) {
		v.finals[7] = row{JobID: 7, Status: tocsin.Dead, Action: at(1019)}
	}, ""},
	"written to while it was wrong": {func(v *evidence, _ *entry) {
		v.intrusions = []incident{{from: at(1000), to: at(3000)}}
		v.incidents = []incident{during1s(WrongCluster), during1s(KillNode)}
	}, "a wrong database takes no write"},
	"written to while it was wrong, by a node that was frozen": {func(v *evidence, _ *entry) {
		v.intrusions = []incident{{from: at(1500), to: at(3000)}}
		v.incidents = []incident{during1s(NoLayout), during1s(FreezeNode)}
	}, ""},
	"a message that came twice since the broker was killed": {func(v *evidence, e *entry) {
		v.opts.Broker, e.Type = "kafka", hook.Name()
		v.deliver(sent(1001), sent(1500))
		v.incidents = []incident{during1s(KillBroker)}
	}, ""},
	"a message that came twice after the broker was back for long": {func(v *evidence, e *entry) {
		v.opts.Broker, e.Type = "kafka", hook.Name()
		v.deliver(sent(7001), sent(7500))
		v.incidents = []incident{during1s(KillBroker)}
	}, "a second delivery has a cause"},
	"delivered twice, though not by the broker that was killed": {func(v *evidence, _ *entry) {
		v.opts.Broker = "kafka"
		v.deliver(begun("n1-1", 1001, 0), begun("n1-1", 1500, 0))
		v.incidents = []incident{during1s(KillBroker)}
	}, "a second delivery has a cause"},
	"a message with a version that its task never had": {func(v *evidence, e *entry) {
		v.opts.Broker, e.Type = "kafka", hook.Name()
		d := sent(1001)
		d.Version = 1
		v.deliver(sent(1001), d)
	}, "each delivery carries the id and a version of its task"},
	"an attempt that a broker cost which did not answer": {func(v *evidence, e *entry) {
		v.opts.Broker, e.Type = "kafka", hook.Name()
		v.deliver(sent(1001))
		v.with(func(r *row) { r.Attempts, r.LastError = 1, "delivery timed out after 3s" })
	}, promiseAttempts},
	"cancelled, and sent by a broker that was frozen meanwhile": {func(v *evidence, e *entry) {
		v.opts.Broker, e.Type, e.Change = "nats", hook.Name(), cancelledAt(1100)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
		v.deliver(sent(8000))
		v.incidents = []incident{{Step: Step{Fault: FreezeBroker}, from: at(1000), to: at(7900)}}
	}, ""},
	"cancelled, and sent before a broker was killed": {func(v *evidence, e *entry) {
		v.opts.Broker, e.Type, e.Change = "rabbitmq", hook.Name(), cancelledAt(1100)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
		v.deliver(sent(15_000))
		v.incidents = []incident{{Step: Step{Fault: KillBroker}, from: at(1400), to: at(14_900)}}
	}, ""},
	"cancelled long before a broker was killed": {func(v *evidence, e *entry) {
		v.opts.Broker, e.Type, e.Change = "rabbitmq", hook.Name(), cancelledAt(1100)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
		v.deliver(sent(15_000))
		v.incidents = []incident{{Step: Step{Fault: KillBroker}, from: at(5000), to: at(14_900)}}
	}, "a cancelled task is not delivered"},
	"cancelled, and sent long after the broker was back": {func(v *evidence, e *entry) {
		v.opts.Broker, e.Type, e.Change = "rabbitmq", hook.Name(), cancelledAt(1100)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
		v.deliver(sent(20_100))
		v.incidents = []incident{{Step: Step{Fault: KillBroker}, from: at(1400), to: at(14_900)}}
	}, "a cancelled task is not delivered"},
	"a delivery of nothing": {func(v *evidence, _ *entry) { v.deliveries[9] = v.deliveries[7] }, "what is delivered was stored"},
	"two rows of one task":  {func(v *evidence, _ *entry) { v.rows[5] = append(v.rows[5], row{JobID: 8, BizID: 5}) }, "one row a task"},
}

// TestChecker: each broken promise is found, and what is allowed is not called one.
func TestChecker(t *testing.T) {
	t.Parallel()
	for name, c := range forgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, e := forged()
			c.forge(v, e)
			v.check().breaks(t, c.broken)
		})
	}
}

// breaks fails the test unless these promises are broken, and no others; "": none.
func (r *Report) breaks(t *testing.T, promises ...string) {
	t.Helper()
	found, want := map[string]bool{}, map[string]bool{}
	for _, b := range r.Breaches {
		found[b.Promise] = true
	}
	for _, promise := range promises {
		want[promise] = true
	}
	delete(want, "")
	if !maps.Equal(found, want) {
		t.Errorf("found %q, want %q\n%s", slices.Sorted(maps.Keys(found)), promises, r)
	}
}

func cancelledAt(ms int) *op {
	return &op{Kind: opCancel, asked: asked{at(ms - 5), at(ms), acknowledged}, Answer: tocsin.Change{Changed: 1}}
}

func rescheduledTo(ms int) *op {
	return &op{Kind: opReschedule, Due: at(ms), asked: asked{Word: acknowledged}, Answer: tocsin.Change{Changed: 1}}
}

func TestCausesNearestFirst(t *testing.T) {
	t.Parallel()
	twice := second{first: begun("n1-1", 1001, 0), again: begun("n2-1", 1500, 0)}
	swept := second{first: begun("n1-1", 1001, 0), again: begun("sweeper-1", 1500, 0)}
	died := second{first: begun("sweeper-1", 1001, 0), again: begun("n2-1", 1500, 0)}
	held := second{first: twice.first, again: twice.again, ranOut: true}
	on := func(f Fault, node, server int) incident {
		i := during1s(f)
		i.Node, i.Server = node, server
		return i
	}
	wrong := func(f Fault, database int) incident {
		i := on(f, 0, 0)
		i.Database = database
		return i
	}
	for name, c := range map[string]struct {
		second second
		faults []incident
		want   string
	}{
		"nothing":                                           {twice, nil, causeNone},
		"the first node was killed":                         {twice, []incident{on(KillServer, 0, 0), on(KillNode, 0, 0)}, string(KillNode)},
		"another node was killed":                           {twice, []incident{on(KillNode, 2, 0)}, causeHandOver},
		"the task's server was killed":                      {twice, []incident{on(KillServer, 0, 0)}, string(KillServer)},
		"another server was killed":                         {twice, []incident{on(KillServer, 0, 1)}, causeNone},
		"the task's server was frozen":                      {twice, []incident{on(FreezeServer, 0, 0)}, string(FreezeServer)},
		"the task's database was wrong":                     {twice, []incident{wrong(WrongCluster, 0), wrong(NoLayout, 1)}, string(WrongCluster)},
		"another database was wrong":                        {twice, []incident{wrong(NoLayout, 2)}, causeNone},
		"etcd was away":                                     {twice, []incident{on(StopEtcd, 0, 0)}, string(StopEtcd)},
		"a greedy sweeper":                                  {swept, []incident{on(LowSweep, 0, 0)}, string(LowSweep)},
		"a greedy sweeper that was not it":                  {twice, []incident{on(LowSweep, 0, 0)}, causeNone},
		"a greedy sweeper was killed with the task in hand": {held, []incident{on(LowSweep, 0, 0)}, string(LowSweep)},
		"a claim that ran out for no reason":                {held, nil, causeNone},
		"a sweeper":                                         {swept, nil, causeSweep},
		"a sweeper that was killed":                         {died, []incident{{Step: Step{Fault: KillSweep}, from: at(1200), to: at(1200)}}, string(KillSweep)},
		"a sweeper killed earlier":                          {died, []incident{{Step: Step{Fault: KillSweep}, from: at(900), to: at(900)}}, causeSweep},
		"a fault that was long over": {twice, []incident{
			{Step: Step{Fault: KillNode}, from: noon.Add(-time.Hour), to: noon.Add(-time.Hour)},
		}, causeNone},
	} {
		if got := causeOf(c.second, place{}, c.faults, 10*time.Second); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestLatenessQuantiles(t *testing.T) {
	t.Parallel()
	l := Lateness{1, 2, 3, 4}
	if l.Quantile(0.5) != 2 || l.Quantile(0.99) != 4 || l.Quantile(1) != 4 || (Lateness{}).Quantile(0.5) != 0 {
		t.Errorf("p50 %d, p99 %d, max %d", l.Quantile(0.5), l.Quantile(0.99), l.Quantile(1))
	}
}
