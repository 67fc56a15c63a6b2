package model

// Guard names a rule of who may look at a row and start it. Guards stand beside the write table: most deliveries are
// started by an owner that has claimed nothing.
type Guard uint8

// The guards.
const (
	LoadDue       Guard = iota // a loaded row whose time has not come waits
	SweepGrace                 // a sweeper looks at what is overdue by the grace time alone
	SweepGraceYet              // what a sweeper loads is still overdue by it: it may have been retried since it was peeked
	ClaimFirst                 // who is not sure to be alone claims what is overdue
	ClaimStrict                // strict biz types are always claimed
	StartFresh                 // a row loaded a while ago is loaded again before it starts
	StartInClaim               // a claimed row starts only while the claim leaves the time-out
	StartLeased                // an owner starts nothing unclaimed without its lease, or of a table it gives up
	ClaimFenced                // claim mode claims only in tables that nobody took since
	AskAgain                   // a claim that got no answer is read back, not forgotten
	HandOver                   // a table is released when all its deliveries are settled or claimed
	Prompt                     // a claimed row that can't start is given back while its claim lasts
	BuryFirst                  // recover buries before it gives back, in one transaction
	NewVersion                 // a reschedule makes a new version, so that the delivery under way settles nothing
	LaterAgain                 // a redrive with the same key sets an action_time later than any before
	guards
)

var guardNames = [guards]string{
	"load waits for what is not due",
	"sweepers look at what is overdue by the grace time",
	"what sweepers load is still overdue by the grace time",
	"overdue rows are claimed before they start",
	"strict rows are claimed before they start",
	"a row loaded long ago does not start",
	"a row claimed long ago does not start",
	"nothing starts unclaimed without the lease",
	"claim mode claims behind the fence",
	"a claim that got no answer is read back",
	"a table is released when its deliveries are settled or claimed",
	"claimed rows that do not start are given back in time",
	"recover buries before it gives back",
	"a reschedule makes a new version",
	"a redrive with the same key sets a later action_time",
}

// rules are the write table and the guards, as designed or weakened.
type rules struct {
	where [writes][]condition
	off   [guards]bool
}

// designed are the rules as they should be.
func designed() *rules {
	r := &rules{}
	for w := range table {
		r.where[w] = table[w].where
	}
	return r
}

// allow reports whether a write applies to the row.
func (rs *rules) allow(w Write, r *row, p *params) bool {
	if r.status == purged {
		return false
	}
	for i := range rs.where[w] {
		if !rs.where[w][i].holds(r, p) {
			return false
		}
	}
	return true
}

// weakening is one way to make the rules weaker.
type weakening struct {
	name string
	make func(*rules)
}

// weakenings lists every way: each condition dropped, or weakened in each way it knows, and each guard switched off.
func weakenings() []weakening {
	var all []weakening
	for w := range writes {
		for i, c := range table[w].where {
			all = append(all, weakening{w.String() + ": drop " + c.name, func(rs *rules) { rs.replace(w, i, nil) }})
			for _, weaker := range c.weaker {
				all = append(all, weakening{w.String() + ": " + c.name + " weakened to " + weaker.name, func(rs *rules) { rs.replace(w, i, &weaker) }})
			}
		}
	}
	for g := range guards {
		all = append(all, weakening{"guard off: " + guardNames[g], func(rs *rules) { rs.off[g] = true }})
	}
	return all
}

// replace puts another condition in the place of one, or none.
func (rs *rules) replace(w Write, i int, by *condition) {
	where := append([]condition(nil), rs.where[w]...)
	if by == nil {
		by = &condition{name: "nothing", holds: func(*row, *params) bool { return true }}
	}
	where[i] = *by
	rs.where[w] = where
}
