package chaos

import (
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/schedule"
)

// under gives the forged schedule another policy.
func under(o schedule.Overlap, forge func(*forgedTimes)) func(*forgedTimes) {
	return func(f *forgedTimes) { f.t.overlap = o; forge(f) }
}

// lasts has the delivery of a run take so long.
func (f *forgedTimes) lasts(run *firing, ms int) {
	d := &f.deliveries[run.JobID][0]
	d.End = d.At.Add(time.Duration(ms) * time.Millisecond)
	if len(run.ends) > 0 {
		run.ends[0].at = d.End.Add(time.Millisecond)
	}
}

// again has another node claim and deliver a run.
func (f *forgedTimes) again(run *firing, late int) {
	f.deliver(run, late).Node = "n2-1"
	run.claims[len(run.claims)-1].by = "n2-1-xyz"
}

// begins has the delivery of a run begin, and the run end, at another time.
func (f *forgedTimes) begins(run *firing, ms int) {
	d := &f.deliveries[run.JobID][0]
	d.At, d.End = at(ms), at(ms+10)
	run.ends[0].at = at(ms + 11)
	run.claims[0].at = at(ms - 1)
}

// skip notes that a run was skipped at its time.
func (f *forgedTimes) skip(run *firing) {
	f.cancel(f.undone(run), int(run.Due.Sub(noon).Milliseconds())+2, "skipped: run of 2026 is open")
}

// replace notes that a run whose delivery goes on was replaced by another one.
func (f *forgedTimes) replace(run *firing, ms, by int) {
	run.ends = nil
	f.cancel(run, ms, replacedReason+at(by).UTC().Format(time.RFC3339Nano))
}

// inDelivery cancels a run by hand while its delivery goes on for a second.
func inDelivery(f *forgedTimes) {
	run := f.of(1, 1000)
	f.lasts(run, 1500)
	run.ends = nil
	f.cancel(run, 1500, "")
	f.byUser(run, 1500, acknowledged)
}

// late adds a run by hand, made when the schedule is inactive, that begins so much later.
func late(ms int) func(*forgedTimes) {
	return func(f *forgedTimes) { f.begins(f.manual(13000), 13000+ms) }
}

// manual is a run by hand that was done at once.
func (f *forgedTimes) manual(ms int) *firing {
	run := f.make(ofHand, 0, ms)
	run.Due = at(ms)
	f.done(run)
	f.t.changes = append(f.t.changes, &timerOp{Kind: runTimer, asked: asked{at(ms - 1), at(ms + 1), acknowledged}, Job: run.JobID})
	return run
}

// byHandAt adds a run by hand with that gmt_create, which a trigger saw at 9501. It ends before the run for 9500 begins.
func byHandAt(created int) func(*forgedTimes) {
	return func(f *forgedTimes) {
		run := f.manual(9501)
		run.Due, run.Created = at(created), at(created)
		f.begins(run, 9502)
		f.begins(f.of(2, 9500), 9520)
	}
}

var (
	slowFirst = func(f *forgedTimes) { f.lasts(f.of(1, 1000), 1500) }
	allowing  = schedule.OverlapAllow
	skipping  = schedule.OverlapSkip
	queueing  = schedule.OverlapQueue
	replacing = schedule.OverlapReplace
)

// turnForgeries are about runs beside earlier ones.
var turnForgeries = map[string]timeForgery{
	"one at a time, skipping": breaks(under(skipping, func(*forgedTimes) {})),
	"one at a time, queueing": breaks(under(queueing, func(*forgedTimes) {})),
	"one by hand whose statement took past a fire time begins first":    breaks(under(queueing, byHandAt(9499))),
	"one by hand of that moment begins before the run of the fire time": breaks(under(queueing, byHandAt(9500)), promiseTurn),
	"one at a time, replacing": breaks(under(replacing, func(*forgedTimes) {})),
	"beside an open one":       breaks(slowFirst),
	"beside one, skipping":     breaks(under(skipping, slowFirst), promiseTurn, promiseAlone),
	"made again by an edit, though a later one was skipped before": breaks(under(queueing, func(f *forgedTimes) {
		f.t.changes[2].Sent = at(5000) // the server was away
		f.cancel(f.undone(f.of(2, 5500)), 8600, "")
		f.deliver(f.make(3, 5500, 8605), 3200)
		f.ends(f.of(3, 5500), 8720, tocsin.Done, "")
		f.cancel(f.undone(f.of(2, 9500)), 8600, "")
		f.done(f.make(3, 9500, 8605))
		f.cancel(f.undone(f.of(2, 7500)), 8550, "skipped: run of "+at(5500).Format(time.RFC3339Nano)+" waits already")
	}), promiseTurn, promiseSkipped), // of the forged runs that it begins beside; none is lost at the change
	"beside one, queueing":      breaks(under(queueing, slowFirst), promiseTurn, promiseAlone),
	"beside one, not replacing": breaks(under(replacing, slowFirst), promiseTurn),
	"beside one that is retried": breaks(under(skipping, func(f *forgedTimes) {
		run := f.of(1, 1000)
		f.deliveries[run.JobID][0].OK = false
		f.deliver(run, 1490).Attempts = 1
		run.ends[0].at = at(2502)
	}), promiseTurn),
	"a run by hand beside an open one": breaks(under(skipping, func(f *forgedTimes) { f.lasts(f.of(2, 7500), 1000) }), promiseTurn, promiseAlone),
	"beside an open one by hand":       breaks(under(skipping, func(f *forgedTimes) { f.lasts(f.of(ofHand, 0), 2000) }), promiseTurn, promiseAlone),
	"beside one by hand that was made just before": breaks(under(skipping, func(f *forgedTimes) {
		f.begins(f.manual(6600), 7520)
	})),
	"beside one that is missed by then, and cancelled by a change": breaks(under(skipping, func(f *forgedTimes) {
		f.t.StartWithin = 400 * time.Millisecond
		f.cancel(f.undone(f.of(1, 1000)), 3500, "")
	})),
	"beside one that waits, so that it is not missed yet, and cancelled by a change": breaks(under(skipping, func(f *forgedTimes) {
		f.t.StartWithin = 400 * time.Millisecond
		run := f.undone(f.of(1, 1000))
		f.note(notePutOff, at(1001), nil, row{JobID: run.JobID, Action: at(1800)})
		f.cancel(run, 3500, "")
	}), promiseTurn),
	"beside one that waits, and is cancelled by a change": breaks(under(skipping, func(f *forgedTimes) {
		f.t.StartWithin = time.Minute
		f.cancel(f.undone(f.of(1, 1000)), 3500, "")
	}), promiseTurn),
	"beside one that was cancelled in its delivery": breaks(under(skipping, inDelivery)),
	"the same, of a strict type": breaks(under(skipping, func(f *forgedTimes) {
		f.t.Type = strictRun.Name()
		inDelivery(f)
	}), promiseAlone),
	"the same, as a node was frozen": breaks(under(skipping, func(f *forgedTimes) {
		f.t.Type = strictRun.Name()
		inDelivery(f)
		f.incidents = []incident{{Step: Step{Fault: FreezeNode}, from: at(1200), to: at(1900)}}
	})),
	"beside one that was delivered again": breaks(under(skipping, func(f *forgedTimes) {
		run := f.of(1, 1000)
		f.lasts(run, 1500)
		f.again(run, 500)
		run.ends[0].at = at(1512)
		f.incidents = []incident{{Step: Step{Fault: KillNode}, from: at(1400), to: at(1450)}}
	})),
	"beside a second delivery, of a strict type, as the node of the first one was frozen": breaks(under(skipping, func(f *forgedTimes) {
		f.t.Type = strictRun.Name()
		run := f.of(1, 1000)
		f.again(run, 900)
		f.deliveries[run.JobID][1].End = at(2500)
		run.ends[0].at = at(1950)
		f.deliveries[f.of(1, 2000).JobID][0].Node, f.of(1, 2000).claims[0].by = "n3-1", "n3-1-xyz"
		f.incidents = []incident{{Step: Step{Fault: FreezeNode, Node: 0}, from: at(1100), to: at(1940)}}
	})),
	"beside one that ended with its node": breaks(under(skipping, func(f *forgedTimes) {
		run := f.of(1, 1000)
		f.again(run, 500)
		f.deliveries[run.JobID][0].End, f.deliveries[run.JobID][0].OK = time.Time{}, false
		run.ends[0].at = at(1512)
		f.incidents = []incident{{Step: Step{Fault: KillNode}, from: at(1400), to: at(1450)}}
	})),

	"skipped beside an open one":             breaks(under(skipping, func(f *forgedTimes) { slowFirst(f); f.skip(f.of(1, 2000)) })),
	"skipped beside one that has just ended": breaks(under(skipping, func(f *forgedTimes) { f.lasts(f.of(1, 1000), 960); f.skip(f.of(1, 2000)) })),
	"skipped beside one that ended before":   breaks(under(skipping, func(f *forgedTimes) { f.lasts(f.of(1, 1000), 490); f.skip(f.of(1, 2000)) }), promiseSkipped),
	"skipped beside none":                    breaks(under(skipping, func(f *forgedTimes) { f.skip(f.of(1, 2000)) }), promiseSkipped),
	"skipped beside a later one":             breaks(under(skipping, func(f *forgedTimes) { f.lasts(f.of(1, 3000), 500); f.skip(f.of(1, 2000)) }), promiseSkipped),
	"skipped, of a schedule that allows":     breaks(under(allowing, func(f *forgedTimes) { slowFirst(f); f.skip(f.of(1, 2000)) }), promiseSkipped),
	"skipped from a queue, beside one":       breaks(under(queueing, func(f *forgedTimes) { slowFirst(f); f.skip(f.of(1, 2000)) }), promiseSkipped),
	"skipped, and begun long after that":     breaks(under(skipping, func(f *forgedTimes) { slowFirst(f); f.skip(f.of(1, 2000)); f.deliver(f.of(1, 2000), 6100) }), promiseDead),
	"skipped from a queue, beside two": breaks(under(queueing, func(f *forgedTimes) {
		f.lasts(f.of(1, 1000), 2490)
		f.begins(f.of(1, 2000), 3501)
		f.skip(f.of(1, 3000))
	})),
	"a run by hand that is skipped": breaks(under(skipping, func(f *forgedTimes) { f.lasts(f.of(2, 7500), 1000); f.skip(f.of(ofHand, 0)) }), promiseSkipped),

	"replaced":                            breaks(under(replacing, func(f *forgedTimes) { slowFirst(f); f.replace(f.of(1, 1000), 2000, 2000) })),
	"replaced by an earlier one":          breaks(under(replacing, func(f *forgedTimes) { f.replace(f.undone(f.of(1, 2000)), 2001, 1000) }), promiseReplaced),
	"replaced by itself":                  breaks(under(replacing, func(f *forgedTimes) { f.replace(f.undone(f.of(1, 2000)), 2001, 2000) }), promiseReplaced),
	"replaced by one that is not due":     breaks(under(replacing, func(f *forgedTimes) { slowFirst(f); f.replace(f.of(1, 1000), 1900, 2000) }), promiseReplaced),
	"replaced by one that does not exist": breaks(under(replacing, func(f *forgedTimes) { slowFirst(f); f.replace(f.of(1, 1000), 2000, 1500) }), promiseReplaced),
	"replaced by one that is not begun": breaks(under(replacing, func(f *forgedTimes) {
		f.replace(f.undone(f.of(1, 3000)), 4001, 4000)
		delete(f.deliveries, f.of(1, 4000).JobID)
	}), promiseReplaced, promiseDelivered),
	"replaced, of a schedule that skips":   breaks(under(skipping, func(f *forgedTimes) { f.replace(f.of(1, 1000), 2000, 2000) }), promiseReplaced),
	"replaced, and begun long after that":  breaks(under(replacing, func(f *forgedTimes) { f.replace(f.undone(f.of(1, 1000)), 2000, 2000); f.deliver(f.of(1, 1000), 7100) }), promiseDead),
	"replaced, and the latest one as well": breaks(under(replacing, func(f *forgedTimes) { f.replace(f.undone(f.of(3, 11500)), 11501, 13500) }), promiseReplaced),
	"beside one that is replaced too late": breaks(under(replacing, func(f *forgedTimes) { f.lasts(f.of(1, 1000), 1500); f.replace(f.of(1, 1000), 2100, 2000) }), promiseTurn),
	"replaced in its claim, of strict type": breaks(under(replacing, func(f *forgedTimes) {
		f.t.Type = strictRun.Name()
		f.begins(f.of(1, 1000), 2010)
		f.of(1, 1000).claims[0].at = at(1990)
		f.replace(f.of(1, 1000), 2000, 2000)
	})),
	"claimed after it was replaced": breaks(under(replacing, func(f *forgedTimes) {
		f.begins(f.of(1, 1000), 2010)
		f.of(1, 1000).claims[0].at = at(2001)
		f.replace(f.of(1, 1000), 2000, 2000)
	}), promiseDead),
	"replaced, and begun long after its claim": breaks(under(replacing, func(f *forgedTimes) {
		f.begins(f.of(1, 1000), 6100)
		f.of(1, 1000).claims[0].at = at(1002)
		f.replace(f.of(1, 1000), 2000, 2000)
	}), promiseDead, promiseClaim),
	"begun without a claim":                           breaks(under(queueing, func(f *forgedTimes) { f.of(1, 2000).claims = nil }), promiseClaim),
	"begun without a claim, where each run may begin": breaks(func(f *forgedTimes) { f.of(1, 2000).claims = nil }),
	"begun long after its claim, by a node that was frozen": breaks(under(queueing, func(f *forgedTimes) {
		f.begins(f.of(1, 4000), 9400)
		f.of(1, 4000).claims[0].at = at(4001)
		f.incidents = []incident{{Step: Step{Fault: FreezeNode}, from: at(4002), to: at(9399)}}
	}), promiseTurn),
	"replaced, and begun by another node than the one that claimed it": breaks(under(replacing, func(f *forgedTimes) {
		f.begins(f.of(1, 1000), 2010)
		f.of(1, 1000).claims[0] = claim{"n2-1-xyz", at(1990)}
		f.replace(f.of(1, 1000), 2000, 2000)
	}), promiseDead, promiseClaim),

	"begun 19 s after the earlier ones ended": breaks(under(queueing, late(19_000))),
	"begun 21 s after the earlier ones ended": breaks(under(queueing, late(21_000)), promiseWaits),
	"the same, of a schedule that allows":     breaks(under(allowing, late(21_000))),
	"the same, as etcd was stopped": breaks(under(queueing, func(f *forgedTimes) {
		late(21_000)(f)
		f.incidents = []incident{{Step: Step{Fault: StopEtcd}, from: at(20_000), to: at(21_000)}}
	})),
	"begun long after its time, and just after an earlier one": breaks(under(queueing, func(f *forgedTimes) {
		f.begins(f.manual(12900), 39_000)
		late(27_000)(f)
		f.incidents = []incident{{Step: Step{Fault: FreezeNode}, from: at(12_000), to: at(38_900)}}
	})),
}

// backfills notes a backfill of the two fire times between 5 and 8 s, and its runs.
func (f *forgedTimes) backfills() (by *timerOp) {
	by = &timerOp{Kind: backfillTimer, Want: timing{beat{Every: 2 * time.Second}, 2, true}, asked: asked{at(8100), at(8110), acknowledged}, From: at(5000), To: at(8000), Runs: 2}
	f.t.changes = append(f.t.changes, by)
	f.backfill(5500, 8105)
	f.backfill(7500, 8105)
	return by
}

// backfill makes a run for a fire time, which is done.
func (f *forgedTimes) backfill(fire, made int) *firing {
	run := f.make(ofBackfill, fire, made)
	f.done(run)
	f.begins(run, made+2)
	return run
}

// deletes notes that the schedule was deleted at 14 s.
func (f *forgedTimes) deletes() {
	f.change(deleteTimer, 14_000, timing{beat{Every: 2 * time.Second}, 3, false}, 3500).Revision = 0
	f.revision(5).State = stateDeleted
}

// handForgeries are about what people do: backfills and deletes.
var handForgeries = map[string]timeForgery{
	"backfilled again by a later request, and begun before the rest of the first one": breaks(under(queueing, func(f *forgedTimes) {
		f.backfills()
		f.of(ofBackfill, 5500).gone = at(8200)
		f.begins(f.of(ofBackfill, 7500), 8300)
		again := *f.t.changes[5]
		again.Sent, again.Back = at(8240), at(8250)
		f.t.changes = append(f.t.changes, &again)
		f.backfill(5500, 8245)
	})),
	"a later backfill of an earlier time begins behind the first one": breaks(under(queueing, func(f *forgedTimes) {
		f.backfills()
		f.begins(f.of(ofBackfill, 7500), 8300)
		early := *f.t.changes[5]
		early.Sent, early.Back, early.From, early.To, early.Runs = at(8240), at(8250), at(3000), at(4000), 1
		f.t.changes = append(f.t.changes, &early)
		f.begins(f.backfill(3500, 8245), 8400)
	})),
	"a later one of a backfill begins before an earlier one": breaks(under(queueing, func(f *forgedTimes) {
		f.backfills()
		f.begins(f.of(ofBackfill, 5500), 8300)
	}), promiseTurn),
	"a backfill": breaks(func(f *forgedTimes) { f.backfills() }),
	"a backfill of times before the activation": breaks(func(f *forgedTimes) {
		by := f.backfills()
		by.From, by.Runs = at(1000), 4
		f.backfill(1500, 8105)
		f.backfill(3500, 8105)
	}),
	"a backfill without a run":         breaks(func(f *forgedTimes) { f.backfills(); f.forget(f.of(ofBackfill, 7500)) }, promiseBackfill),
	"a backfill that tells of one run": breaks(func(f *forgedTimes) { f.backfills().Runs = 1 }, promiseBackfill),
	"a backfill that nobody asked for": breaks(func(f *forgedTimes) { f.backfills(); f.t.changes = f.t.changes[:5] }, promiseHand),
	"a backfill whose answer was lost": breaks(func(f *forgedTimes) { f.backfills().Word = unknownWord }),
	"a backfill for no fire time":      breaks(func(f *forgedTimes) { f.backfills(); f.backfill(6000, 8105) }, promiseHand),
	"a backfill beyond its span":       breaks(func(f *forgedTimes) { f.backfills(); f.backfill(9500, 8105) }, promiseHand, "never early"),
	"backfilled twice":                 breaks(func(f *forgedTimes) { f.backfills(); f.backfill(5500, 8106) }, promiseOneTask),
	"backfilled without its fire time": breaks(func(f *forgedTimes) { f.backfills(); f.deliveries[f.of(ofBackfill, 5500).JobID][0].Fire = time.Time{} }, promiseTold),
	"a backfill that a change cancels": breaks(func(f *forgedTimes) { f.backfills(); f.cancel(f.undone(f.of(ofBackfill, 5500)), 8600, "") }, promiseUser),
	"backfilled again after a delete":  breaks(func(f *forgedTimes) { f.backfills(); f.of(ofBackfill, 5500).gone = at(8103); f.backfill(5500, 8106) }, promiseOneTask),
	"backfilled again, as somebody asks": breaks(func(f *forgedTimes) {
		f.backfills()
		for _, fire := range []int{5500, 7500} {
			f.of(ofBackfill, fire).gone = at(8130)
		}
		again := *f.t.changes[5]
		again.Sent, again.Back = at(8140), at(8150)
		f.t.changes = append(f.t.changes, &again)
		f.backfill(5500, 8145)
		f.backfill(7500, 8145)
	}),
	"backfilled again while the first is there": breaks(func(f *forgedTimes) {
		f.backfills()
		again := *f.t.changes[5]
		again.Sent, again.Back = at(8140), at(8150)
		f.t.changes = append(f.t.changes, &again)
	}),
	"a backfill that finds only what was deleted": breaks(func(f *forgedTimes) {
		by := f.backfills()
		f.of(ofBackfill, 5500).gone = at(8110)
		again := *by
		again.Sent, again.Back = at(8140), at(8150)
		f.t.changes = append(f.t.changes, &again)
	}, promiseBackfill),

	"deleted": breaks(func(f *forgedTimes) { f.deletes() }),
	"a delete that is lost": breaks(func(f *forgedTimes) {
		f.deletes()
		f.revisions[forgedSchedule] = f.revisions[forgedSchedule][:4]
	}, promiseChange),
	"deleted by nobody":                breaks(func(f *forgedTimes) { f.deletes(); f.t.changes = f.t.changes[:5] }, promiseAsked),
	"deleted, and the answer was lost": breaks(func(f *forgedTimes) { f.deletes(); f.t.changes[5].Word = unknownWord }),
	"a run by hand that a delete ends": breaks(func(f *forgedTimes) {
		f.deletes()
		f.cancel(f.undone(f.manual(13_900)), 14_000, "the schedule was deleted")
	}),
	"loaded before a delete":            breaks(func(f *forgedTimes) { f.deletes(); f.begins(f.manual(13_900), 14_500) }),
	"begun long after a delete":         breaks(func(f *forgedTimes) { f.deletes(); f.begins(f.manual(13_900), 17_100) }, promiseDead),
	"a strict run begun after a delete": breaks(func(f *forgedTimes) { f.t.Type = strictRun.Name(); f.deletes(); f.begins(f.manual(13_900), 15_100) }, promiseDead),
	"cancelled at a delete, and begun long after": breaks(func(f *forgedTimes) {
		f.deletes()
		run := f.manual(13_900)
		f.cancel(f.undone(run), 14_000, "the schedule was deleted")
		f.deliver(run, 3200)
	}, promiseDead),
	"made after a delete": breaks(func(f *forgedTimes) { f.deletes(); f.done(f.make(5, 15_500, 14_500)).Mark = 3 }, promiseIdle),
	"retried long after its revision died": breaks(func(f *forgedTimes) {
		run := f.of(1, 2000)
		f.deliveries[run.JobID][0].OK = false
		f.deliver(run, 4600).Attempts = 1
		run.ends[0].at = at(6612)
	}, promiseDead),
}

// paused forges a schedule of each second from nothing, with a letter for each run that ended: D is done, F failed. It is paused
// then, if it is, deactivated at 12 s, and paused after three failed runs.
func paused(ms int, runs string, more ...func(*forgedTimes)) func(*forgedTimes) {
	return func(f *forgedTimes) {
		f.t.changes, f.t.pauseAfter = nil, 3
		f.revisions, f.runs = map[tocsin.JobID][]revised{}, map[tocsin.JobID]*firing{}
		clear(f.deliveries)
		each := beat{Every: time.Second}
		f.change(createTimer, 0, timing{each, 1, true}, 0)
		for i, how := range runs {
			run := f.make(1, 1000*(i+1), 5)
			f.done(run)
			if how == 'F' {
				f.fails(run)
			}
		}
		if ms > 0 {
			f.cancel(f.make(1, 1000*(len(runs)+1), 5), ms-2, "the schedule was paused")
			f.change(editTimer, ms, timing{each, 1, false}, 0)
			f.revision(2).State, f.t.changes = statePaused, f.t.changes[:1]
		}
		f.change(deactivateTimer, 12_000, timing{each, 1, false}, 0)
		for _, forge := range more {
			forge(f)
		}
	}
}

// fails has a run end as dead.
func (f *forgedTimes) fails(run *firing) {
	f.deliveries[run.JobID][0].OK = false
	run.ends[0].Status, run.ends[0].Attempts = tocsin.Dead, attempts
	for i := 1; i < attempts; i++ {
		d := f.deliver(run, 1+i)
		d.OK, d.Attempts = false, i
	}
}

// pauseForgeries are about schedules that are paused after failed runs.
var pauseForgeries = map[string]timeForgery{
	"paused after three":          breaks(paused(3030, "FFF")),
	"paused after three in a row": breaks(paused(6030, "FFDFFF")),
	"paused after three, by a node that was frozen after it had cancelled the others": breaks(paused(10_030, "FFF", func(f *forgedTimes) {
		f.of(1, 4000).ends[0].at = at(3028)
		f.incidents = []incident{{Step: Step{Fault: FreezeNode}, from: at(3029), to: at(10_028)}}
	})),
	"paused after two":                 breaks(paused(2030, "FF"), promisePause),
	"paused after three, not in a row": breaks(paused(4030, "FFDF"), promisePause),
	"paused after seven":               breaks(paused(7030, "FFFFFFF"), promisePause),
	"not paused after three":           breaks(paused(0, "FFFDDDDDDDD"), promisePause),
	"never three in a row":             breaks(paused(0, "FFDFFDFFDFF")),
	"paused after two, as a node was killed": breaks(paused(2030, "FF", func(f *forgedTimes) {
		f.incidents = []incident{{Step: Step{Fault: KillNode}, from: at(1500), to: at(1600)}}
	})),
	"paused after two, long after a node was killed": breaks(paused(11_030, "DDDDDDDDDFF", func(f *forgedTimes) {
		f.incidents = []incident{{Step: Step{Fault: KillNode}, from: at(-10_000), to: at(-9_000)}}
	}), promisePause),
	"paused after two and one by hand":   breaks(paused(2030, "FF", func(f *forgedTimes) { f.fails(f.manual(1500)) }), promisePause),
	"paused, and nothing is to pause it": breaks(paused(3030, "FFF", func(f *forgedTimes) { f.t.pauseAfter = 0 }), promiseAsked, promiseUser),
	"paused with another payload":        breaks(paused(3030, "FFF", func(f *forgedTimes) { f.revision(2).Payload = "{}" }), promiseAsked, promiseUser),
	"begun long after the pause":         breaks(paused(3030, "FFF", func(f *forgedTimes) { f.done(f.make(1, 5000, 5)) }), promiseDead),
	"loaded before the pause":            breaks(paused(3030, "FFF", func(f *forgedTimes) { f.deliveries[f.of(1, 2000).JobID][0].At = at(4500) })),
	"failed, and begun long after the pause": breaks(paused(3030, "FFF", func(f *forgedTimes) {
		f.done(f.make(1, 5000, 5))
		f.fails(f.of(1, 5000))
	}), promiseDead),
	"edited while it was paused": breaks(paused(3030, "FFF", func(f *forgedTimes) {
		f.t.changes, f.revisions[forgedSchedule] = f.t.changes[:1], f.revisions[forgedSchedule][:2]
		f.change(editTimer, 5000, timing{beat{Every: time.Second}, 2, true}, 0)
		f.revision(3).State = statePaused
	})),
	"paused by an edit": breaks(paused(0, "DDDDDDDDDDD", func(f *forgedTimes) {
		f.t.changes[1].Kind, f.t.changes[1].Want = editTimer, timing{beat{Every: time.Second}, 2, true}
		f.revision(2).State, f.revision(2).Payload = statePaused, `{"mark":2}`
	}), promiseAsked),
}
