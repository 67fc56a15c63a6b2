package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

// The leases of the forged task.
var firstLease, nextLease = store.NewLease(at(1000).UnixMilli()), store.NewLease(at(11_050).UnixMilli())

// leased is the evidence of one task that a worker took at 1000 and completed at 1020.
func leased() (*evidence, *entry) {
	v, e := forged()
	e.Type = pulled.Name()
	v.deliver(handedTo("w1-1", firstLease, 1001, 0))
	v.notes(takes(1000, firstLease, 0), ends(1020, tocsin.Done, 0))
	v.asked = []request{polled("w1-1", 0, 500, 1001), itSettles(firstLease, endComplete, isDone)}
	return v, e
}

// lost is the evidence of one whose lease ran out at 6000, and which another worker took at 11,050 and completed.
func lost() (*evidence, *entry) {
	v, e := leased()
	v.deliver(handedTo("w1-1", firstLease, 1001, 0), handedTo("w2-1", nextLease, 11_051, 1))
	v.notes(takes(1000, firstLease, 0), gives(11_010, 1), takes(11_050, nextLease, 1), ends(11_100, tocsin.Done, 1))
	v.asked = []request{polled("w1-1", 0, 500, 1001), polled("w2-1", 1, 8000, 11_051), itSettles(nextLease, endComplete, isDone)}
	v.with(func(r *row) { r.Attempts = 1 })
	return v, e
}

// neverCame is the same, but the first answer broke.
func neverCame() (*evidence, *entry) {
	v, e := lost()
	v.deliver(handedTo("w2-1", nextLease, 11_051, 1))
	v.asked[0].Err = "unexpected EOF"
	return v, e
}

func (e *evidence) notes(all ...leaseNote) {
	e.leases = map[tocsin.JobID][]leaseNote{7: all}
}

func handedTo(worker, lease string, ms, attempts int) delivery {
	d := begun(worker, ms, attempts)
	d.Lease = lease
	return d
}

func takes(ms int, lease string, attempts int) leaseNote {
	return leaseNote{at(ms), tocsin.Pending, row{JobID: 7, Status: tocsin.Claimed, Action: at(ms + 5000), Attempts: attempts, ClaimedBy: lease}}
}

func ends(ms int, status tocsin.Status, attempts int) leaseNote {
	return leaseNote{at(ms), tocsin.Claimed, row{JobID: 7, Status: status, Action: at(ms), Attempts: attempts}}
}

// gives is a lease that ran out.
func gives(ms, attempts int) leaseNote {
	n := ends(ms, tocsin.Pending, attempts)
	n.LastError = "the lease ran out: its worker has neither settled nor extended it"
	return n
}

// polled is a request that asked a node for tasks and got one.
func polled(worker string, node, sent, back int) request {
	return request{Worker: worker, Path: "reserve", Node: node, Asks: true, Sent: at(sent), Back: at(back), Tasks: 1}
}

// itSettles is a request that ended a lease, and what it was told.
func itSettles(lease, do, result string) request {
	text := "7.0." + strings.TrimPrefix(lease, "lease:")
	return request{Worker: "w1-1", Sent: at(1015), Back: at(1020), Ends: []ending{{Lease: text, Do: do}}, Results: []became{{Lease: text, Result: result}}}
}

// on is a fault from one time to another, of the first node, worker and server.
func on(f Fault, from, to int) incident {
	return incident{Step: Step{Fault: f}, from: at(from), to: at(to)}
}

// leaseForgeries are changes of forged leases, and the promises that they break.
var leaseForgeries = map[string]struct {
	of     func() (*evidence, *entry)
	forge  func(*evidence, *entry)
	broken string
}{
	"all is well":                       {leased, func(*evidence, *entry) {}, ""},
	"lost for no reason":                {lost, func(*evidence, *entry) {}, promiseCause},
	"lost since its worker was killed":  {lost, func(v *evidence, _ *entry) { v.incidents = []incident{on(KillWorker, 2000, 9000)} }, ""},
	"lost since its worker was frozen":  {lost, func(v *evidence, _ *entry) { v.incidents = []incident{on(FreezeWorker, 900, 9000)} }, ""},
	"its worker was killed before that": {lost, func(v *evidence, _ *entry) { v.incidents = []incident{on(KillWorker, 900, 9000)} }, promiseCause},
	"another worker was killed": {lost, func(v *evidence, _ *entry) {
		v.incidents = []incident{{Step: Step{Fault: KillWorker, Worker: 1}, from: at(2000), to: at(9000)}}
	}, promiseCause},
	"a node was killed, which it did not need": {lost, func(v *evidence, _ *entry) { v.incidents = []incident{on(KillNode, 2000, 3000)} }, promiseCause},
	"its end was not told to a node that was killed": {lost, func(v *evidence, _ *entry) {
		v.asked = append(v.asked, itSettles(firstLease, endComplete, ""))
		v.incidents = []incident{on(KillNode, 1017, 3000)}
	}, ""},
	"never came, for no reason":                   {neverCame, func(*evidence, *entry) {}, promiseCause},
	"never came, as the answer was cut":           {neverCame, func(v *evidence, _ *entry) { v.incidents = []incident{on(CutAnswers, 900, 1100)} }, ""},
	"never came, as its node was killed":          {neverCame, func(v *evidence, _ *entry) { v.incidents = []incident{on(KillNode, 900, 1100)} }, ""},
	"never came, and the answer was cut earlier":  {neverCame, func(v *evidence, _ *entry) { v.incidents = []incident{on(CutAnswers, 300, 400)} }, promiseCause},
	"never came, and the node was killed earlier": {neverCame, func(v *evidence, _ *entry) { v.incidents = []incident{on(KillNode, 300, 400)} }, promiseCause},
	"never came, as its node left":                {neverCame, func(v *evidence, _ *entry) { v.incidents = []incident{on(TermNode, 900, 1100)} }, promiseCause},
	"never came, though a worker that was killed long before had asked a node that was cut off": {neverCame, func(v *evidence, _ *entry) {
		v.asked = append(v.asked, request{Worker: "w3-1", Path: "reserve", Node: 0, Asks: true, Sent: at(-9000)})
		v.asked[0].Node, v.incidents = 1, []incident{on(CutAnswers, -8000, -7000)}
	}, promiseCause},
	"never came, and another node's answers were cut": {neverCame, func(v *evidence, _ *entry) {
		v.incidents = []incident{{Step: Step{Fault: CutAnswers, Node: 1}, from: at(900), to: at(1100)}}
	}, promiseCause},
	"put back though a worker had it": {lost, func(v *evidence, _ *entry) {
		v.notes(takes(1000, firstLease, 0), ends(1300, tocsin.Pending, 0), takes(1400, nextLease, 0), ends(1500, tocsin.Done, 0))
		v.with(func(r *row) { r.Attempts = 0 })
	}, promiseCause},
	"taken back early": {lost, func(v *evidence, _ *entry) {
		v.incidents = []incident{on(KillWorker, 2000, 9000)}
		v.leases[7][1].At = at(10_990)
	}, promiseLease},
	"given to somebody else while it lasted": {leased, func(v *evidence, _ *entry) {
		v.notes(takes(1000, firstLease, 0), takes(1010, nextLease, 0), ends(1020, tocsin.Done, 0))
	}, promiseLease},
	"claimed without a lease": {leased, func(v *evidence, _ *entry) {
		v.notes(takes(1000, "n1-1", 0), ends(1020, tocsin.Done, 0))
		v.deliver(handedTo("w1-1", "n1-1", 1001, 0))
	}, promiseLease},
	"a worker has what was not leased": {leased, func(v *evidence, _ *entry) {
		v.deliver(handedTo("w1-1", firstLease, 1001, 0), handedTo("w2-1", nextLease, 1002, 0))
	}, promiseLeased},
	"leased before its time": {leased, func(v *evidence, _ *entry) {
		v.leases[7][0].At = at(990)
	}, promiseEarly},
	"first handed over late": {leased, handedLate(1000), promiseHanded},
	"first handed over late since a server died": {leased, func(v *evidence, e *entry) {
		handedLate(1000)(v, e)
		v.incidents = []incident{on(KillServer, 1500, 4000)}
	}, ""},
	"first handed over late, long after a fault": {leased, func(v *evidence, e *entry) {
		handedLate(20_000)(v, e)
		v.incidents = []incident{on(KillServer, 1500, 4000)}
	}, promiseHanded},
	"first handed over late, as no worker waited": {leased, func(v *evidence, e *entry) {
		handedLate(1000)(v, e)
		v.asked[0].Sent = at(7500)
	}, ""},
	"first handed over late, as its node had workers a moment before": {leased, func(v *evidence, e *entry) {
		handedLate(9000)(v, e)
		v.asked = append(v.asked, polled("w2-1", 1, -500, 500))
	}, ""},
	"first handed over late, though its node had no workers for long": {leased, func(v *evidence, e *entry) {
		handedLate(9600)(v, e)
		v.asked = append(v.asked, polled("w2-1", 1, -500, 500))
	}, promiseHanded},
	"first handed over late, though each node has a worker that waits": {leased, func(v *evidence, e *entry) {
		handedLate(9000)(v, e)
		v.asked = append(v.asked, polled("w2-1", 1, -500, 500), polled("w3-1", 1, 600, 20_000))
	}, promiseHanded},
	"first handed over late, as the only worker that waits is frozen": {leased, func(v *evidence, e *entry) {
		handedLate(1000)(v, e)
		v.incidents = []incident{on(FreezeWorker, 2000, 8000)}
	}, ""},
	"first handed over late, as the only worker that waits is dead": {leased, func(v *evidence, e *entry) {
		handedLate(1000)(v, e)
		v.asked[0].Sent = at(7500)
		v.asked = append(v.asked, request{Worker: "w3-1", Path: "reserve", Asks: true, Sent: at(-2000)})
	}, ""},
	"handed over late after its lease ran out": {lost, func(v *evidence, _ *entry) {
		v.incidents = []incident{on(KillWorker, 2000, 9000)}
		v.leases[7][2].At, v.asked[1].Back = at(12_010), at(12_020)
		v.asked = append(v.asked, polled("w3-1", 0, 2000, 20_000))
	}, promiseHanded},
	"dead, though no worker said so": {leased, func(v *evidence, e *entry) {
		v.with(func(r *row) { r.Status, r.Attempts = tocsin.Dead, pullAttempts })
		v.notes(takes(1000, firstLease, pullAttempts-1), ends(11_010, tocsin.Dead, pullAttempts))
		v.asked = v.asked[:1]
	}, promiseBuried},
	"dead, as a worker said": {leased, func(v *evidence, e *entry) {
		e.Do = doBury
		v.with(func(r *row) { r.Status, r.Attempts = tocsin.Dead, 1 })
		v.notes(takes(1000, firstLease, 0), ends(1020, tocsin.Dead, 1))
		v.asked[1] = itSettles(firstLease, endBury, isDone)
	}, ""},
	"an attempt that no worker reported": {leased, func(v *evidence, _ *entry) {
		v.notes(takes(1000, firstLease, 0), ends(1010, tocsin.Pending, 1), takes(1015, nextLease, 1), ends(1020, tocsin.Done, 1))
	}, promiseAttempts},
	"not done, though a worker was told so": {leased, func(v *evidence, e *entry) {
		e.Change = cancelledAt(1010)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
		v.notes(takes(1000, firstLease, 0), ends(1010, tocsin.Cancelled, 0))
	}, promiseSuccess},
	"done, and then not": {leased, func(v *evidence, _ *entry) {
		again := ends(1030, tocsin.Dead, 0)
		again.Was = tocsin.Done
		v.leases[7] = append(v.leases[7], again)
	}, promiseSuccess},
	"handed over after its cancel": {leased, func(v *evidence, e *entry) {
		e.Change = cancelledAt(995)
		v.with(func(r *row) { r.Status = tocsin.Cancelled })
		v.notes(takes(1000, firstLease, 0), ends(1020, tocsin.Cancelled, 0))
		v.asked = v.asked[:1]
	}, promiseNotBegun},
}

// handedLate has the forged task handed over 6.1 s and more after it was due.
func handedLate(more int) func(*evidence, *entry) {
	return func(v *evidence, _ *entry) {
		ms := 1000 + 6100 + more
		v.deliver(handedTo("w1-1", firstLease, ms, 0))
		v.notes(takes(ms, firstLease, 0), ends(ms+20, tocsin.Done, 0))
		v.asked[0].Back = at(ms + 1)
	}
}

func TestLeaseChecker(t *testing.T) {
	t.Parallel()
	for name, c := range leaseForgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, e := c.of()
			c.forge(v, e)
			v.check().breaks(t, c.broken)
		})
	}
}

// TestRequestsOfAKilledWorker: of a request that never came back, what was noted before it was sent is known.
func TestRequestsOfAKilledWorker(t *testing.T) {
	t.Parallel()
	j, err := openJournal(filepath.Join(t.TempDir(), "w1-1"+requestsSuffix), "w1-1")
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{role: role{Name: "w1-1"}, requests: j}
	back := request{ID: "0-0", Path: "reserve", Asks: true, Sent: at(0)}
	w.note(back)
	back.Back, back.Tasks = at(10), 3
	w.note(back)
	w.note(request{ID: "0-1", Path: "settle", Sent: at(20), Ends: []ending{{Lease: "7.0.x", Do: endComplete}}})
	j.append([]byte(`{"ID":"0-2`))
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	all, err := readRequests(filepath.Dir(j.file.Name()))
	if err != nil || len(all) != 2 || all[0].Tasks != 3 || all[0].broke() || !all[1].broke() || len(all[1].left()) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if !all[1].during(at(5000), at(5001)) || all[1].during(at(7100), at(7101)) || all[0].during(at(11), at(12)) {
		t.Error("when requests were under way")
	}
}

// TestWorkersUnderFaults: workers ask three nodes of the real program for tasks, and each fault happens once.
func TestWorkersUnderFaults(t *testing.T) {
	s := begin(t, Options{Servers: 1, Workers: 4, Program: build(t), Layout: small.Layout})
	steps := []Step{
		{Fault: KillWorker}, {Fault: FreezeWorker, Worker: 1, Length: 11 * time.Second}, {Fault: CutAnswers, Length: time.Second}, {Fault: KillNode, Node: 1, Length: time.Second},
		{Fault: MoveWorkers, Length: 2 * time.Second}, {Fault: TermNode, Node: 2, Length: time.Second}, {Fault: FreezeNode, Length: 4 * time.Second},
	}
	s.playUnder(Load{Rate: 50, Types: []string{"pull"}, Fails: true, Changes: 0.05, Work: 100}, time.Second, time.Second, steps...)
	report := s.verdict()
	if done := report.Counts[lineLeases]["completed"]; done < 500 || len(report.Counts[lineRanOut]) == 0 {
		t.Errorf("%d tasks completed; leases that ran out: %s", done, report.Counts[lineRanOut])
	}
	logs, _ := filepath.Glob(filepath.Join(s.opts.Dir, "w*.log"))
	for _, path := range logs {
		if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
			t.Errorf("%s: %s %v", path, text, err)
		}
	}
	if !slices.ContainsFunc(s.log.asked, func(r request) bool { return r.Path == "extend" }) {
		t.Error("no lease was extended")
	}
}
