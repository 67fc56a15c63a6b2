package chaos

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/schedule"
)

// forgedTimes is the evidence of one schedule: made at 0 to fire each second, edited at 3.5 s to fire each two seconds, its
// payload edited at 8.6 s, deactivated at 12 s; one run by hand. All went well.
type forgedTimes struct {
	*evidence
	t *timer
}

// elsewhere is the zone of the harness's clock, which is not that of the servers.
var elsewhere = time.FixedZone("elsewhere", 3600)

// forgedSchedule is the id of that schedule; those of its runs follow.
const forgedSchedule = 1000

func forgeTimes() *forgedTimes {
	t := &timer{Name: "forged", ID: forgedSchedule, Type: keptRun.Name(), Zone: "Asia/Kathmandu", plan: plan{overlap: schedule.OverlapAllow}}
	f := &forgedTimes{newEvidence(Options{}.withDefaults()), t}
	f.timers = []*timer{t}
	f.change(createTimer, 0, timing{beat{Every: time.Second}, 1, true}, 0)
	for ms := 1000; ms <= 4000; ms += 1000 {
		f.done(f.make(1, ms, 5)) // the one at 4 s stays with its revision
	}
	f.cancel(f.make(1, 5000, 5), 3500, "")
	f.change(editTimer, 3500, timing{beat{Every: 2 * time.Second}, 2, true}, 3500)
	for ms := 5500; ms <= 9500; ms += 2000 {
		f.done(f.make(2, ms, 3505))
	}
	f.cancel(f.make(2, 11500, 3505), 8600, "")
	f.change(editTimer, 8600, timing{beat{Every: 2 * time.Second}, 3, true}, 3500)
	f.done(f.make(3, 11500, 8605))
	f.cancel(f.make(3, 13500, 8605), 12000, "")
	f.change(deactivateTimer, 12000, timing{beat{Every: 2 * time.Second}, 3, false}, 3500)
	hand := f.make(ofHand, 0, 8000)
	hand.Due = at(8000)
	f.done(hand)
	f.t.changes = append(f.t.changes, &timerOp{Kind: runTimer, asked: asked{at(7999), at(8001), acknowledged}, Job: hand.JobID})
	return f
}

// change stores a revision, and notes who asked for it.
func (f *forgedTimes) change(kind string, ms int, want timing, anchor int) *timerOp {
	n := uint32(len(f.revisions[forgedSchedule]) + 1)
	c := &timerOp{Kind: kind, Want: want, asked: asked{at(ms - 5).In(elsewhere), at(ms + 5).In(elsewhere), acknowledged}, Revision: n}
	f.t.changes = append(f.t.changes, c)
	r := revised{ID: forgedSchedule, Revision: n, State: "inactive", Cron: want.Beat.cron(), Zone: f.t.Zone, Anchor: at(anchor),
		Payload: fmt.Sprintf(`{"ms":1,"mark":%d}`, want.Mark), At: at(ms)}
	if want.Active {
		r.State = "active"
	}
	f.revisions[forgedSchedule] = append(f.revisions[forgedSchedule], r)
	return c
}

// make stores a run as the server notes it.
func (f *forgedTimes) make(revision uint32, fire, made int) *firing {
	id := tocsin.JobID(forgedSchedule + 1 + len(f.runs))
	key := binary.BigEndian.AppendUint64([]byte{0}, forgedSchedule)
	key = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(key, revision), uint64(at(fire).UnixMilli()))
	f.note(noteMade, at(made), key, row{JobID: id, BizID: 5, Due: at(fire)})
	return f.runs[id]
}

// ends notes a run's end.
func (f *forgedTimes) ends(run *firing, ms int, status tocsin.Status, why string) {
	f.note(noteEnd, at(ms), nil, row{JobID: run.JobID, BizID: 5, Status: status, Action: at(ms), Due: run.Due, LastError: why})
}

func (f *forgedTimes) cancel(run *firing, ms int, why string) { f.ends(run, ms, tocsin.Cancelled, why) }

// done notes a run that was delivered and done in time.
func (f *forgedTimes) done(run *firing) *delivery {
	f.ends(run, int(run.Due.Sub(noon).Milliseconds())+12, tocsin.Done, "")
	return f.deliver(run, 1)
}

// deliver notes a delivery that began so late and ended well 10 ms later.
func (f *forgedTimes) deliver(run *firing, late int) *delivery {
	begin := run.Due.Add(time.Duration(late) * time.Millisecond)
	d := delivery{record: record{Begin: true, JobID: run.JobID, Node: "n1-1", At: begin}, End: begin.Add(10 * time.Millisecond), OK: true}
	d.Schedule, d.Fire, d.Mark = "forged", run.Fire, int(run.Revision)
	f.deliveries[run.JobID] = append(f.deliveries[run.JobID], d)
	f.claim(run, begin.Add(-time.Millisecond))
	return &f.deliveries[run.JobID][len(f.deliveries[run.JobID])-1]
}

// claim notes that a run was claimed for its delivery.
func (f *forgedTimes) claim(run *firing, t time.Time) {
	f.note(noteClaimed, t, nil, row{JobID: run.JobID, BizID: 5, Status: tocsin.Claimed, Due: run.Due, LastError: "n1-1-xyz"})
}

// of is the run of a revision at a time.
func (f *forgedTimes) of(revision uint32, fire int) *firing {
	for _, r := range f.runs {
		if r.Revision == revision && (revision == ofHand || r.Fire.Equal(at(fire))) {
			return r
		}
	}
	panic("no such run")
}

// forget takes a run away, as if it had never been made.
func (f *forgedTimes) forget(run *firing) {
	delete(f.runs, run.JobID)
	delete(f.deliveries, run.JobID)
}

// undone takes back that a run was delivered and ended.
func (f *forgedTimes) undone(run *firing) *firing {
	run.ends, run.claims = nil, nil
	delete(f.deliveries, run.JobID)
	return run
}

// revision is one that the server noted.
func (f *forgedTimes) revision(n int) *revised { return &f.revisions[forgedSchedule][n-1] }

// byUser notes that somebody cancelled a run alone.
func (f *forgedTimes) byUser(run *firing, ms int, w word) {
	f.t.changes = append(f.t.changes, &timerOp{Kind: cancelRun, asked: asked{at(ms - 5), at(ms + 5), w}, Job: run.JobID, Changed: w == acknowledged})
}

// timeForgery is a change of the forged evidence, and the promises that it breaks.
type timeForgery struct {
	forge  func(*forgedTimes)
	broken []string
}

// breaks is a forgery that breaks promises.
func breaks(forge func(*forgedTimes), broken ...string) timeForgery {
	return timeForgery{forge, broken}
}

// later puts off all runs and their deliveries.
func (f *forgedTimes) later(offset time.Duration) {
	for _, r := range f.runs {
		r.Due = r.Due.Add(offset)
		for i := range f.deliveries[r.JobID] {
			f.deliveries[r.JobID][i].At = f.deliveries[r.JobID][i].At.Add(offset)
		}
	}
}

var timeForgeries = map[string]timeForgery{
	"as it should be": breaks(func(*forgedTimes) {}),

	"no task for a fire time":           breaks(func(f *forgedTimes) { f.forget(f.of(1, 2000)) }, promiseFire),
	"none for the first after a change": breaks(func(f *forgedTimes) { f.forget(f.of(2, 5500)) }, promiseFire),
	"two tasks for a fire time":         breaks(func(f *forgedTimes) { f.done(f.make(1, 2000, 6)) }, promiseOneTask),
	"made again after it was done and deleted": breaks(func(f *forgedTimes) {
		f.of(1, 1000).gone = at(2200)
		f.done(f.make(1, 1000, 2300))
	}, promiseOneTask),
	"made again after it was cancelled": breaks(func(f *forgedTimes) {
		run := f.undone(f.of(1, 3000))
		f.byUser(run, 1500, acknowledged)
		f.cancel(run, 1500, "")
		f.done(f.make(1, 3000, 1600))
	}, promiseOneTask),
	"done and deleted":          breaks(func(f *forgedTimes) { f.of(1, 1000).gone = at(2200) }),
	"deleted while it was open": breaks(func(f *forgedTimes) { f.undone(f.of(1, 1000)).gone = at(2200) }, promisePurge),

	"at a time that is no fire time":   breaks(func(f *forgedTimes) { f.done(f.make(1, 2500, 5)) }, promiseNoFire),
	"at a time of the former revision": breaks(func(f *forgedTimes) { f.done(f.make(2, 6000, 3505)) }, promiseNoFire),
	"for a time before its revision":   breaks(func(f *forgedTimes) { f.done(f.make(3, 7500, 8605)) }, promiseNoFire, promiseOneRun),
	"for the moment of the activation": breaks(func(f *forgedTimes) { f.done(f.make(1, 0, 5)) }, promiseNoFire),
	"of a schedule that is not active": breaks(func(f *forgedTimes) { f.done(f.make(4, 13500, 12005)).Mark = 3 }, promiseIdle),
	"of a schedule that nobody made":   breaks(func(f *forgedTimes) { f.make(1, 2000, 6).Schedule = 999 }, promiseHand),

	"lost at a change":        breaks(func(f *forgedTimes) { f.cancel(f.undone(f.of(2, 9500)), 8600, "") }, promiseCut),
	"never made, at a change": breaks(func(f *forgedTimes) { f.forget(f.of(2, 9500)) }, promiseCut),
	"lost by a judge who knows of the change": breaks(func(f *forgedTimes) {
		f.cancel(f.undone(f.of(2, 9500)), 9510, "cancelled: of revision 2 of its schedule, which has revision 3")
	}, promiseCut),
	"begun by the earlier revision at a change, and its retry cancelled": breaks(func(f *forgedTimes) {
		run := f.of(2, 9500)
		run.ends = nil
		f.cancel(run, 9800, "cancelled: of revision 2 of its schedule, which has revision 3")
	}),
	"twice at a change": breaks(func(f *forgedTimes) { f.done(f.make(3, 9500, 8605)) }, promiseCut, promiseOneRun),
	"of the later revision at a change": breaks(func(f *forgedTimes) {
		f.cancel(f.undone(f.of(2, 9500)), 8600, "")
		f.done(f.make(3, 9500, 8605))
	}),
	"of the later revision, cancelled by somebody": breaks(func(f *forgedTimes) {
		f.cancel(f.undone(f.of(2, 9500)), 9000, "")
		f.byUser(f.of(2, 9500), 9000, acknowledged)
	}),

	"of the revision before two changes": breaks(func(f *forgedTimes) {
		f.t.changes = nil
		f.revisions, f.runs = map[tocsin.JobID][]revised{}, map[tocsin.JobID]*firing{}
		clear(f.deliveries)
		often := beat{Every: 900 * time.Millisecond}
		f.change(createTimer, 0, timing{beat{Every: 4 * time.Second}, 1, true}, 0)
		f.done(f.make(1, 4000, 5))
		f.change(editTimer, 3490, timing{often, 2, true}, 3490)
		f.cancel(f.make(2, 5290, 3495), 3600, "") // and none at 4.39 s, which is up to revision 1
		f.change(editTimer, 3600, timing{often, 3, true}, 3490)
		f.done(f.make(3, 5290, 3605))
		f.cancel(f.make(3, 6190, 3605), 6000, "")
		f.change(deactivateTimer, 6000, timing{often, 3, false}, 3490)
	}),
	"made for a revision that is dead":            breaks(func(f *forgedTimes) { f.cancel(f.make(1, 6000, 3600), 3700, "") }, promiseDead),
	"a dead revision's run that nobody cancelled": breaks(func(f *forgedTimes) { f.done(f.undone(f.of(1, 5000))) }, promiseDead),
	"a dead revision's run that is open":          breaks(func(f *forgedTimes) { f.undone(f.of(1, 5000)) }, promiseEnds),
	"loaded before its revision died":             breaks(func(f *forgedTimes) { f.deliver(f.of(1, 5000), 1000) }),
	"begun long after its revision died":          breaks(func(f *forgedTimes) { f.deliver(f.of(1, 5000), 2000) }, promiseDead),
	"the same, by a node that was frozen": breaks(func(f *forgedTimes) {
		f.deliver(f.of(1, 5000), 2000)
		f.incidents = []incident{{Step: Step{Fault: FreezeNode}, from: at(3000), to: at(7000)}}
	}),
	"a strict run that was claimed before its revision died": breaks(func(f *forgedTimes) {
		f.t.Type = strictRun.Name()
		f.begins(f.of(1, 2000), 3520)
		f.of(1, 2000).claims[0].at = at(2001)
	}),
	"a strict run that was due when its revision died, and claimed after that": breaks(func(f *forgedTimes) {
		f.t.Type = strictRun.Name()
		f.begins(f.of(1, 2000), 3520)
	}),
	"a strict run begun after its revision died": breaks(func(f *forgedTimes) {
		f.t.Type = strictRun.Name()
		f.deliver(f.of(1, 5000), 10)
	}, promiseDead),
	"claimed when its revision died":                  breaks(func(f *forgedTimes) { f.deliveries[f.of(1, 2000).JobID][0].At = at(3520) }),
	"overdue when its revision died, and begun later": breaks(func(f *forgedTimes) { f.deliveries[f.of(1, 2000).JobID][0].At = at(6600) }),
	"overdue when a slow change came to its schedule": breaks(func(f *forgedTimes) {
		f.t.changes[1].Sent = at(500)
		f.cancel(f.undone(f.of(1, 2000)), 3500, "")
	}),
	"due just before a slow change, and cancelled": breaks(func(f *forgedTimes) {
		f.t.changes[1].Sent = at(500)
		f.cancel(f.undone(f.of(1, 3000)), 3500, "")
	}, promiseCut),
	"begun long after a deactivation": breaks(func(f *forgedTimes) { f.deliver(f.of(3, 13500), 2000) }, promiseDead),

	"early":                             breaks(func(f *forgedTimes) { f.deliveries[f.of(1, 2000).JobID][0].At = at(1999) }, "never early"),
	"due later than the others":         breaks(func(f *forgedTimes) { f.of(1, 2000).Due = at(2001) }, promiseOffset),
	"all later by the jitter":           breaks(func(f *forgedTimes) { f.t.Jitter = time.Second; f.later(50 * time.Millisecond) }),
	"all later by more than the jitter": breaks(func(f *forgedTimes) { f.t.Jitter = time.Millisecond; f.later(time.Millisecond) }, promiseOffset),

	"a change that is lost": breaks(func(f *forgedTimes) {
		f.t.changes = append(f.t.changes, &timerOp{Kind: activateTimer, asked: asked{at(20000), at(20100), acknowledged}, Revision: 5})
	}, promiseChange),
	"a revision that nobody asked for":             breaks(func(f *forgedTimes) { f.t.changes = slices.Delete(f.t.changes, 3, 4) }, promiseAsked),
	"a revision of a change that was refused":      breaks(func(f *forgedTimes) { f.t.changes[3].Word = refusedWord }, promiseAsked),
	"a revision of a change whose answer was lost": breaks(func(f *forgedTimes) { f.t.changes[3].Word, f.t.changes[3].Revision = unknownWord, 0 }),
	"a change without an answer that is not stored": breaks(func(f *forgedTimes) {
		f.t.changes = append(f.t.changes, &timerOp{Kind: activateTimer, asked: asked{at(20000), at(20100), unknownWord}})
	}),
	"another expression than was asked for": breaks(func(f *forgedTimes) { f.revision(2).Cron = "@every 3s" }, promiseAsked, promiseChange, promiseAnchor),
	"another payload than was asked for":    breaks(func(f *forgedTimes) { f.revision(2).Payload = `{"mark":1}` }, promiseAsked, promiseChange),
	"a change that changes nothing names the revision in force": breaks(func(f *forgedTimes) {
		c := *f.t.changes[3]
		c.Sent, c.Back = at(12600), at(12601)
		f.t.changes = append(f.t.changes, &c)
	}),
	"an anchor that is moved by an edit of the payload": breaks(func(f *forgedTimes) { f.revision(3).Anchor, f.revision(4).Anchor = at(1500), at(1500) }, promiseAnchor),
	"an anchor before the activation":                   breaks(func(f *forgedTimes) { f.revision(1).Anchor = at(-1000) }, promiseAnchor),
	"still active at the end": breaks(func(f *forgedTimes) {
		f.t.changes = slices.Delete(f.t.changes, 3, 4)
		f.revisions[forgedSchedule] = f.revisions[forgedSchedule][:3]
		f.forget(f.of(3, 13500))
	}, promiseEnds),

	"cancelled by nobody": breaks(func(f *forgedTimes) { f.cancel(f.undone(f.of(1, 2000)), 2000, "") }, promiseUser),
	"cancelled by somebody": breaks(func(f *forgedTimes) {
		f.cancel(f.undone(f.of(1, 2000)), 1500, "")
		f.byUser(f.of(1, 2000), 1500, acknowledged)
	}),
	"cancelled, and the answer was lost": breaks(func(f *forgedTimes) {
		f.cancel(f.undone(f.of(1, 2000)), 1500, "")
		f.byUser(f.of(1, 2000), 1500, unknownWord)
	}),
	"cancelled by somebody, and done all the same": breaks(func(f *forgedTimes) { f.byUser(f.of(1, 2000), 1500, acknowledged) }, promiseCancelled),
	"cancelled by somebody, and begun long after": breaks(func(f *forgedTimes) {
		f.cancel(f.undone(f.of(2, 7500)), 3900, "")
		f.byUser(f.of(2, 7500), 3900, acknowledged)
		f.deliver(f.of(2, 7500), 1000)
	}, promiseDead),
	"missed, of a schedule that misses none": breaks(func(f *forgedTimes) { f.cancel(f.undone(f.of(1, 1000)), 3400, "missed: 2.4s late") }, promiseMissed),
	"missed in time": breaks(func(f *forgedTimes) {
		f.t.StartWithin = 2 * time.Second
		f.cancel(f.undone(f.of(1, 1000)), 2900, "missed: 1.9s late")
	}, promiseMissed),
	"missed": breaks(func(f *forgedTimes) {
		f.t.StartWithin = 2 * time.Second
		f.cancel(f.undone(f.of(1, 1000)), 3400, "missed: 2.4s late")
	}),

	"a run by hand that nobody asked for": breaks(func(f *forgedTimes) { f.t.changes = f.t.changes[:4] }, promiseHand),
	"a run by hand whose answer was lost": breaks(func(f *forgedTimes) { f.t.changes[4].Job, f.t.changes[4].Word = 0, unknownWord }),
	"a run by hand that is lost":          breaks(func(f *forgedTimes) { f.forget(f.of(ofHand, 0)) }, promiseStored),
	"a run by hand that a change cancels": breaks(func(f *forgedTimes) { f.cancel(f.undone(f.of(ofHand, 0)), 8600, "") }, promiseUser),

	"open":                       breaks(func(f *forgedTimes) { f.of(1, 2000).ends = nil }, promiseEnds),
	"done, and nobody delivered": breaks(func(f *forgedTimes) { delete(f.deliveries, f.of(1, 2000).JobID) }, promiseDelivered),
	"done twice":                 breaks(func(f *forgedTimes) { f.ends(f.of(1, 2000), 2500, tocsin.Done, "") }, promiseOneEnd),
	"cancelled, then done": breaks(func(f *forgedTimes) {
		run := f.of(1, 2000)
		run.ends = slices.Insert(run.ends, 0, end{row{JobID: run.JobID, Status: tocsin.Cancelled}, at(1500)})
	}, promiseOneEnd),
	"dead after no attempt": breaks(func(f *forgedTimes) { f.of(1, 2000).ends[0].Status = tocsin.Dead }, promiseLastTry),
	"dead, and never delivered": breaks(func(f *forgedTimes) {
		run := f.of(1, 2000)
		f.fails(run)
		delete(f.deliveries, run.JobID)
	}, promiseAttempts),
	"dead after crashes, and never delivered": breaks(func(f *forgedTimes) {
		run := f.of(1, 2000)
		run.ends[0].Status, run.ends[0].Crashes = tocsin.Dead, crashesMost
		delete(f.deliveries, run.JobID)
	}, promiseAttempts),
	"done after an attempt that nobody made": breaks(func(f *forgedTimes) { f.of(1, 2000).ends[0].Attempts = 1 }, promiseAttempts),
	"delivered twice for no reason":          breaks(func(f *forgedTimes) { f.deliver(f.of(1, 2000), 500).Node = "n2-1" }, "a second delivery has a cause"),
	"delivered twice, as a node was killed": breaks(func(f *forgedTimes) {
		f.deliver(f.of(1, 2000), 500).Node = "n2-1"
		f.incidents = []incident{{Step: Step{Fault: KillNode}, from: at(2001), to: at(3000)}}
	}),
	"delivered, and no table has it":          breaks(func(f *forgedTimes) { f.deliveries[9] = f.deliveries[f.of(1, 2000).JobID] }, "what is delivered was stored"),
	"told no schedule":                        breaks(func(f *forgedTimes) { f.deliveries[f.of(1, 2000).JobID][0].Schedule = "" }, promiseTold),
	"told another schedule":                   breaks(func(f *forgedTimes) { f.deliveries[f.of(1, 2000).JobID][0].Schedule = "other" }, promiseTold),
	"told another fire time":                  breaks(func(f *forgedTimes) { f.deliveries[f.of(1, 2000).JobID][0].Fire = at(3000) }, promiseTold),
	"with the payload of the former revision": breaks(func(f *forgedTimes) { f.deliveries[f.of(2, 7500).JobID][0].Mark = 1 }, promiseTold),
}

// TestTimerChecker: each broken promise of schedules is found, and what is allowed is not called one.
func TestTimerChecker(t *testing.T) {
	t.Parallel()
	all := maps.Clone(timeForgeries)
	for _, more := range []map[string]timeForgery{turnForgeries, handForgeries, pauseForgeries} {
		maps.Copy(all, more)
	}
	if n := len(timeForgeries) + len(turnForgeries) + len(handForgeries) + len(pauseForgeries); len(all) != n {
		t.Fatalf("%d forgeries have %d names", n, len(all))
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forgeTimes()
			c.forge(f)
			f.check().breaks(t, c.broken...)
		})
	}
}

// TestTimerFigures: what the report counts of schedules.
func TestTimerFigures(t *testing.T) {
	t.Parallel()
	f := forgeTimes()
	f.forget(f.of(2, 5500))
	r := f.check()
	got := fmt.Sprint(r.Counts[lineFires], "; ", r.Counts[lineFirst], "; ", r.Counts[lineRuns], "; ", r.Counts[lineCancelled], "; ", len(r.Times[timeCalm]))
	if want := "8 in all, 1 lost; 8 in all, 1 lost; 1 by hand, 11 made; 3 by a change; 7"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
