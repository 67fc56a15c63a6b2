package operator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

const (
	factWithin = 4 * time.Second // one answer of servers or etcd
	othersLate = time.Second     // for servers that do not hold the task, after its own has answered
	mostPages  = 8               // status pages of nodes that stand in
)

// inquiry reads what is known of one task.
type inquiry struct {
	View
	db     *store.Store
	server int
	number uint64 // of the task's biz type
	facts  facts
}

// Why reads what is known of a task, also from the status pages at ask, and explains it. A task of a biz type that sees does not
// allow is as one that is not there; sees nil allows all.
func (v View) Why(ctx context.Context, id tocsin.JobID, ask []string, sees func(string) bool) (Answer, error) {
	q, err := v.inquire(id)
	if err != nil {
		return Answer{}, err
	}
	defer q.db.Close()
	var both sync.WaitGroup
	both.Go(func() { q.policies(ctx) })
	both.Go(func() { q.row(ctx) })
	both.Wait()
	q.nameType()
	if q.facts.Task != nil && sees != nil && !sees(q.facts.Task.BizType) {
		q.facts.Task = nil
	}
	if task := q.facts.Task; task == nil && q.facts.Unread == nil || task != nil && task.Status.Final() {
		return explain(q.facts), nil
	}
	q.turn(ctx)
	pages := q.group(ctx)
	q.pages(ctx, pages, ask)
	return explain(q.facts), nil
}

func (v View) inquire(id tocsin.JobID) (*inquiry, error) {
	layout := v.Tables.Layout
	if id.Table() >= layout.Total() {
		return nil, client.Refuse(tocsin.ErrNotFound, "no task %s: it names table %d, and the layout of the config, %s, has none of that number", id, id.Table(), layout)
	}
	db, err := store.Open(v.Tables)
	if err != nil {
		return nil, err
	}
	q := &inquiry{View: v, db: db, server: db.ServerOf(id.Table())}
	q.facts = facts{
		JobID: id, Now: time.Now(), Grace: v.Grace,
		Server: taskServer{Name: db.Servers()[q.server], Table: layout.Table(id.Table()), Database: layout.Database(q.database(id))},
	}
	q.facts.Group.Open = v.ByRows
	return q, nil
}

func (q *inquiry) database(id tocsin.JobID) int { return q.Tables.Layout.DatabaseOf(id.Table()) }

// policies reads the biz types.
func (q *inquiry) policies(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, factWithin)
	defer cancel()
	q.facts.Policies, q.facts.NoTypes = biztype.LoadStored(ctx, q.Tables)
}

// row reads the task's server and row. The name of its biz type is filled in by nameType.
func (q *inquiry) row(ctx context.Context) {
	f := &q.facts
	seen, err := q.survey(ctx)
	if err != nil {
		q.unread(err)
		return
	}
	f.Server.ReadOnly, f.Server.Full = seen.ReadOnly, seen.Full
	if now := q.db.Now(q.server); now > 0 {
		f.Now = time.UnixMilli(now).UTC()
	}
	if refused := seen.Unusable[q.database(f.JobID)]; refused != nil {
		q.unread(refused)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, factWithin)
	defer cancel()
	rows, err := q.db.Look(ctx, q.server, []tocsin.JobID{f.JobID})
	switch {
	case err != nil:
		q.unread(err)
	case len(rows) > 0:
		f.Task, q.number = &rows[0].Info, rows[0].Type
		q.hold(ctx)
	}
}

// hold reads whose the session is under which the task is claimed.
func (q *inquiry) hold(ctx context.Context) {
	task := q.facts.Task
	if task.Status != tocsin.Claimed || !store.IsToken(task.ClaimedBy) {
		return
	}
	sessions, read, _ := q.db.Sessions(ctx, q.server, []int{q.database(task.JobID)})
	if len(read) == 0 {
		return
	}
	q.facts.Holder = &holder{}
	for _, one := range sessions {
		if strings.HasPrefix(task.ClaimedBy, one.ID) {
			q.facts.Holder.Node = one.Node
		}
	}
}

// unread notes why the row can't be read.
func (q *inquiry) unread(err error) {
	f := &q.facts
	f.Unread, f.Server.Hangs = err, mysql.ClassOf(err) == mysql.Canceled
	if refused := (*store.Unusable)(nil); errors.As(err, &refused) {
		f.Server.Refused, f.Server.Older = refused, refused.Older
	}
}

// nameType fills in the name of the task's biz type.
func (q *inquiry) nameType() {
	if q.facts.Task == nil {
		return
	}
	policies := make([]biztype.Policy, len(q.facts.Policies))
	for i, p := range q.facts.Policies {
		policies[i] = p.Policy
	}
	q.facts.Task.BizType = biztype.NameOf(policies, q.number)
}

// survey looks at the task's server, and at the others too: their marks tell whether a database is an older copy.
func (q *inquiry) survey(ctx context.Context) (own store.Survey, err error) {
	ctx, cancel := context.WithTimeout(ctx, factWithin)
	defer cancel()
	others, enough := context.WithCancel(ctx)
	defer enough()
	var looks sync.WaitGroup
	for server := range q.db.Servers() {
		if server != q.server {
			looks.Go(func() { _, _ = q.db.Survey(others, server) })
		}
	}
	if own, err = q.db.Survey(ctx, q.server); err == nil {
		time.AfterFunc(othersLate, enough)
	} else {
		enough()
	}
	looks.Wait()
	if err == nil && len(q.db.Servers()) > 1 {
		return q.db.Survey(ctx, q.server)
	}
	return own, err
}

// turn reads which tasks of the same biz_id go before the task, as far as its policy makes it wait for them.
func (q *inquiry) turn(ctx context.Context) {
	task := q.facts.Task
	if task == nil || task.Status != tocsin.Pending || task.ActionTime.After(q.facts.Now) {
		return
	}
	p := q.facts.policy()
	if p == nil || p.PerKey == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, factWithin)
	defer cancel()
	key := store.Key{Table: task.JobID.Table(), BizID: task.BizID}
	turns, err := q.db.Turns(ctx, store.TurnQuery{Server: q.server, Type: q.number, Keys: []store.Key{key}, PerKey: p.PerKey, Until: q.facts.Now.UnixMilli()})
	turn := turns[key]
	if err = cmp.Or(err, turn.Err); err != nil {
		q.facts.NoTurn = err
		return
	}
	for _, e := range turn.Next {
		turn.Claimed = append(turn.Claimed, e.JobID)
	}
	if len(turn.Claimed) == p.PerKey && !slices.Contains(turn.Claimed, task.JobID) {
		q.facts.First = turn.Claimed
	}
}

// group reads who owns the task's table, and returns the nodes that may have the task. If the row could not be read, these
// are the table's owners in all groups.
func (q *inquiry) group(ctx context.Context) []assign.NodeState {
	f := &q.facts
	if p := f.policy(); p != nil {
		f.Group.Name = p.WithDefaults().Group
	}
	if f.Task != nil && f.Group.Name == "" {
		return nil // no policy names its type
	}
	groups, owners := q.asRegistered(ctx)
	if f.Task == nil {
		return ownersOf(groups, owners, f.JobID.Table())
	}
	for _, g := range groups {
		if g.Group == f.Group.Name {
			f.Group.Nodes = g.Nodes
		}
	}
	if of := owners[f.Group.Name]; of != nil {
		f.Group.Owner = of[f.JobID.Table()]
	}
	if f.Group.Owner == "" && !f.Group.Open {
		f.Group.Last = q.last(ctx)
	}
	return q.holders()
}

// asRegistered reads the nodes, and the owners of the tables by group, from etcd or the session tables.
func (q *inquiry) asRegistered(ctx context.Context) (groups []Group, owners map[string][]string) {
	ctx, cancel := context.WithTimeout(ctx, factWithin)
	defer cancel()
	if q.ByRows { // each node writes into every database: the task's server knows all that may have it
		groups, owners, read, err := q.present(ctx, q.facts.Group.Name)
		q.facts.NoEtcd, q.facts.Group.Known = err, read[q.server]
		return groups, owners
	}
	groups, err := q.Nodes(ctx, q.facts.Group.Name)
	if err == nil {
		owners, err = q.Owners(ctx)
	}
	q.facts.NoEtcd, q.facts.Group.Known = err, err == nil
	return groups, owners
}

// last returns the node that took the task's table last, by its owner row; "" if it can't be read. It has time of its own: an
// etcd that does not answer has used up that of asRegistered.
func (q *inquiry) last(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, factWithin)
	defer cancel()
	last, _ := q.db.Owners(ctx, q.server, q.facts.Group.Name)
	return last[q.facts.JobID.Table()]
}

// ownersOf returns the nodes that own a table in any group.
func ownersOf(groups []Group, owners map[string][]string, table int) (nodes []assign.NodeState) {
	for _, g := range groups {
		for _, n := range g.Nodes {
			if of := owners[g.Group]; of != nil && of[table] == n.ID {
				nodes = append(nodes, n)
			}
		}
	}
	return nodes
}

// holders returns the nodes of the group that may have the task: the owner of its table, the node that claimed it, and the
// nodes that can deliver it if the owner can't.
func (q *inquiry) holders() (nodes []assign.NodeState) {
	g, task := q.facts.Group, q.facts.Task
	lacks := slices.ContainsFunc(g.Nodes, func(n assign.NodeState) bool { return n.ID == g.Owner && n.Info.Lacks[task.BizType] != "" })
	p := q.facts.policy()
	pulled := p != nil && p.Pull != nil // workers may ask any
	for _, n := range g.Nodes {
		switch {
		case n.ID == g.Owner:
			nodes = slices.Insert(nodes, 0, n) // first, so that the cut to mostPages keeps the owner
		case n.ID == task.ClaimedBy, q.facts.Holder != nil && n.ID == q.facts.Holder.Node, pulled, lacks && slices.Contains(n.Info.Types, task.BizType):
			nodes = append(nodes, n)
		}
	}
	return nodes[:min(len(nodes), mostPages)]
}

// pages asks the status pages of nodes, and those at further addresses, all at once.
func (q *inquiry) pages(ctx context.Context, nodes []assign.NodeState, ask []string) {
	var pages []statusPage
	for _, n := range nodes {
		pages = append(pages, pageOf(n))
	}
	guess := q.guess()
	if guess != "" && !slices.Contains(ask, guess) {
		ask = append(slices.Clone(ask), guess)
	} else {
		guess = ""
	}
	for _, address := range ask {
		pages = append(pages, statusPage{Address: address})
	}
	q.ask(ctx, pages, "/status?job_id="+q.facts.JobID.String())
	q.facts.Pages = slices.DeleteFunc(pages, func(p statusPage) bool { return guess != "" && p.Address == guess && p.Err != nil })
}

// guess returns an address where the node may answer that took the task's table last, if etcd, which knows the address, does
// not answer: that of the config, on this host or the node's. It is "" if nothing has to be guessed.
func (q *inquiry) guess() string {
	g := q.facts.Group
	if q.facts.NoEtcd == nil || g.Open || g.Last == "" {
		return ""
	}
	return pageOf(assign.NodeState{ID: g.Last, Info: assign.NodeInfo{Listen: q.Listen}}).Address
}
