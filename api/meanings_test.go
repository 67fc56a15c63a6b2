package api_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// patience bounds each wait for something that must happen.
const patience = time.Minute

// stage is a cluster with a node, an API and an outbox, on which tasks are changed before, during and after their deliveries.
type stage struct {
	t      *testing.T
	served *served
	people *operator.Operator
	shop   string // outbox

	mu      sync.Mutex
	last    uint64                   // biz_id
	waiting map[uint64]chan delivery // by biz_id: what becomes of a task whose handler waits
}

// delivery is one that waits for its test.
type delivery struct {
	ctx    context.Context
	info   tocsin.Info
	answer chan error // what the handler returns, unless its context ends
}

var stageTypes = map[bool]tocsin.BizType[string]{false: closing, true: tocsin.Define[string]("order.pay")}

// newStage starts a cluster whose rows are started by their owners, or by those that claim them.
func newStage(t *testing.T, ownership string) *stage {
	t.Helper()
	dsn, prefix := devtest.DSN(t), devtest.Prefix(t)
	s := &stage{t: t, shop: prefix + "_" + ownership + "_shop.tocsin_outbox", waiting: map[uint64]chan delivery{}}
	cfg := tocsin.Config{
		Layout: tocsin.Layout{Databases: 2, Tables: 2, Prefix: prefix}, Cluster: prefix,
		Servers: []tocsin.Server{{Name: "db1", DSN: dsn}}, Outbox: tocsin.Outbox{Table: s.shop},
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.Exec("CREATE DATABASE " + prefix + "_" + ownership + "_shop")
	_, noOutbox := ddl.ApplyOutbox(t.Context(), ddl.Outbox{DSN: dsn, Table: s.shop})
	_, noTables := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: prefix, Ownership: ownership})
	var policies []biztype.Policy
	for strict, biz := range stageTypes {
		policies = append(policies, biztype.Policy{
			Name: biz.Name(), Number: uint64(len(policies) + 1), Group: "shop", Strict: strict, Concurrency: 500, History: true,
			Timeout: biztype.Duration(2 * patience), Ladder: []biztype.Duration{biztype.Duration(time.Hour)},
		})
	}
	_, noTypes := biztype.Apply(t.Context(), cfg, policies)
	client, closed := tocsin.Open(t.Context(), cfg)
	if err := errors.Join(err, noOutbox, noTables, noTypes, closed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if s.people, err = operator.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.people.Close() })
	s.served = over(t, &tocsintest.Cluster{Config: cfg, Client: client, DB: db}, nil)
	s.run(node.Config{
		Tables: cfg, Ownership: ownership, Group: "shop", Name: "stage", Outboxes: []outbox.Config{{DSN: dsn, Table: s.shop}},
		Etcd: node.EtcdConfig{Endpoints: []string{devtest.Etcd(t)}},
	})
	return s
}

func (s *stage) run(cfg node.Config) {
	s.t.Helper()
	if cfg.Ownership == node.ByRows {
		cfg.Etcd = node.EtcdConfig{}
	}
	var h node.Handlers
	for _, biz := range stageTypes {
		node.Handle(&h, biz, s.handle)
	}
	n, err := node.New(cfg, &h)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

// handle does as the payload says: "done", "dead", or it waits for the test. A second version of a task succeeds.
func (s *stage) handle(ctx context.Context, task *tocsin.Task[string]) error {
	switch {
	case task.Version > 0 || task.Payload == "done":
		return nil
	case task.Payload == "dead":
		return tocsin.Bury(errors.New("no stock"))
	}
	s.mu.Lock()
	waiting := s.waiting[task.BizID]
	s.mu.Unlock()
	d := delivery{ctx, task.Info, make(chan error, 1)}
	waiting <- d
	select {
	case err := <-d.answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fail ends one play.
func (s *stage) fail(format string, args ...any) {
	s.t.Errorf(format, args...)
	runtime.Goexit()
}

// await waits for a moment.
func (s *stage) await(what string, ok func() bool) {
	for began := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			s.fail("%s: waited in vain for %s", s.shop, what)
		}
	}
}

func (s *stage) get(id tocsin.JobID) tocsin.Info {
	info, err := s.served.Client.Get(context.Background(), id)
	if err != nil {
		s.fail("%v", err)
	}
	return info
}

// inTx makes a change in a transaction of its own.
func (s *stage) inTx(do func(tx *sql.Tx) (string, error)) string {
	tx, err := s.served.DB.Begin()
	if err != nil {
		s.fail("%v", err)
	}
	said, err := do(tx)
	if err != nil {
		_ = tx.Rollback()
		return answered(err)
	}
	if err := tx.Commit(); err != nil {
		s.fail("%v", err)
	}
	return said
}

// answered names an error.
func answered(err error) string {
	for name, is := range map[string]error{
		"`ErrInDelivery`": tocsin.ErrInDelivery, "`ErrConflict`": tocsin.ErrConflict, "`ErrStatus`": operator.ErrStatus,
	} {
		if errors.Is(err, is) {
			return name
		}
	}
	return "ERROR " + err.Error()
}

func changed(c tocsin.Change, err error) string {
	switch {
	case err != nil:
		return answered(err)
	case c.Relayed:
		return "`Relayed`"
	case c.Final > 0:
		return fmt.Sprintf("`Final %d`", c.Final)
	case c.InDelivery > 0:
		return fmt.Sprintf("`Changed %d, InDelivery %d`", c.Changed, c.InDelivery)
	}
	return fmt.Sprintf("`Changed %d`", c.Changed)
}

func rewritten(_ tocsin.Info, err error) string {
	if err != nil {
		return answered(err)
	}
	return "`nil`"
}

// post sends a request to the API.
func (s *stage) post(id tocsin.JobID, verb, body string) string {
	got := s.served.do(post("/tasks/"+id.String()+":"+verb, body).by("operate"))
	said := fmt.Sprint(got.status, " ", got.Code)
	var task struct {
		InDelivery bool `json:"in_delivery"`
	}
	if json.Unmarshal([]byte(got.text), &task) == nil && task.InDelivery {
		said += "in_delivery: true"
	}
	return "`" + strings.TrimSpace(said) + "`"
}

// exec changes a task as docs/sql.md does.
func (s *stage) exec(info tocsin.Info, set string) string {
	database, _, _ := strings.Cut(info.Table, ".")
	res, err := s.served.DB.Exec("UPDATE "+info.Table+" FORCE INDEX (PRIMARY) SET "+set+", gmt_modified = UTC_TIMESTAMP(3) WHERE job_id = ? AND status <= "+
		"IF((SELECT JSON_CONTAINS(policy, 'true', '$.strict') FROM "+database+".biz_type AS b WHERE b.number = biz_type), 0, 1)", uint64(info.JobID))
	if err != nil {
		s.fail("%v", err)
	}
	n, _ := res.RowsAffected()
	return fmt.Sprintf("`%d rows`", n)
}

// deed is one way to change a task.
type deed struct {
	name, way string
	do        func(s *stage, ref tocsin.Ref, info tocsin.Info) string
	after     error // what the handler returns then, if it goes on
	relayed   bool
}

const tomorrow = 24 * time.Hour

var deeds = []deed{
	{name: "Cancel", way: "Go", do: func(s *stage, ref tocsin.Ref, _ tocsin.Info) string {
		return changed(s.served.Client.Cancel(context.Background(), ref))
	}},
	{name: "Cancel", way: "SQL", do: func(s *stage, _ tocsin.Ref, info tocsin.Info) string {
		return s.exec(info, "status = 3, action_time = UTC_TIMESTAMP(3), dedup_key = NULL")
	}},
	{name: "Cancel", way: "API", do: func(s *stage, _ tocsin.Ref, info tocsin.Info) string { return s.post(info.JobID, "cancel", "") }},
	{name: "Cancel", way: "outbox", relayed: true, after: errors.New("no answer"), do: func(s *stage, ref tocsin.Ref, _ tocsin.Info) string {
		return s.inTx(func(tx *sql.Tx) (string, error) {
			c, err := s.served.Client.CancelTx(context.Background(), tx, ref)
			return changed(c, err), err
		})
	}},
	{name: "Reschedule", way: "Go", do: func(s *stage, ref tocsin.Ref, _ tocsin.Info) string {
		return changed(s.served.Client.Reschedule(context.Background(), ref, tocsin.In(2*tomorrow)))
	}},
	{name: "Reschedule", way: "SQL", do: func(s *stage, _ tocsin.Ref, info tocsin.Info) string {
		return s.exec(info, "status = 0, action_time = UTC_TIMESTAMP(3) + INTERVAL 2 DAY, due_time = action_time, attempts = 0, version = version + 1, claimed_by = ''")
	}},
	{name: "Reschedule", way: "API", do: func(s *stage, _ tocsin.Ref, info tocsin.Info) string {
		return s.post(info.JobID, "reschedule", `{"delay_ms": 172800000}`)
	}},
	{name: "Reschedule", way: "outbox", relayed: true, after: errors.New("no answer"), do: func(s *stage, ref tocsin.Ref, _ tocsin.Info) string {
		return s.inTx(func(tx *sql.Tx) (string, error) {
			c, err := s.served.Client.RescheduleTx(context.Background(), tx, ref, tocsin.In(2*tomorrow))
			return changed(c, err), err
		})
	}},
	{name: "Complete", way: "Go", after: tocsin.Bury(errors.New("too late")), do: func(s *stage, _ tocsin.Ref, info tocsin.Info) string {
		return s.inTx(func(tx *sql.Tx) (string, error) { return "`nil`", tocsin.CompleteTx(context.Background(), tx, info) })
	}},
	{name: "Bury", way: "Go", do: func(s *stage, _ tocsin.Ref, info tocsin.Info) string {
		return rewritten(s.people.Bury(context.Background(), info.JobID, "void"))
	}},
	{name: "Bury", way: "API", do: func(s *stage, _ tocsin.Ref, info tocsin.Info) string { return s.post(info.JobID, "bury", "") }},
	{name: "Redrive", way: "Go", do: func(s *stage, _ tocsin.Ref, info tocsin.Info) string {
		return rewritten(s.people.Redrive(context.Background(), info.JobID))
	}},
	{name: "Redrive", way: "API", do: func(s *stage, _ tocsin.Ref, info tocsin.Info) string { return s.post(info.JobID, "redrive", "") }},
}

// The moments of a task at which it is changed.
const (
	before = "before"
	during = "during"
	done   = "done"
	dead   = "dead"
)

// play changes one task at a moment, and says what the call answered and what became of the task.
func (s *stage) play(d deed, moment string, strict bool) string {
	began := make(chan delivery, 1)
	s.mu.Lock()
	s.last++
	bizID := s.last
	s.waiting[bizID] = began
	s.mu.Unlock()
	biz, when := stageTypes[strict], tocsin.In(0)
	if moment == before {
		when = tocsin.In(tomorrow)
	}
	added, err := s.served.Client.Add(context.Background(), biz.New(bizID, moment, when))
	if err != nil {
		s.fail("%v", err)
	}
	var live delivery
	info := s.get(added.JobID)
	switch moment {
	case during:
		select {
		case live = <-began:
			info = live.info
		case <-time.After(patience):
			s.fail("%s: task %s is not delivered: %+v", s.shop, added.JobID, s.get(added.JobID))
		}
	case done, dead:
		s.await("the end of the task", func() bool { info = s.get(added.JobID); return info.Status.Final() })
	}
	said := d.do(s, biz.Of(bizID), info)
	wanted := func() bool {
		now := s.get(info.JobID)
		return now.Status != tocsin.Cancelled && now.Version == info.Version
	}
	if d.relayed && moment != during {
		s.awaitRelay(bizID)
	}
	if moment == during {
		if d.relayed && !strict {
			s.await("the relay", func() bool { return !wanted() })
		}
		return said + s.end(live, d.after, wanted())
	}
	s.await("an end", func() bool { return s.rests(info.JobID) })
	return said + s.became(info, s.get(info.JobID))
}

// awaitRelay waits until the rows of a biz_id have left the outbox.
func (s *stage) awaitRelay(bizID uint64) {
	s.await("the relay", func() bool {
		var n int
		err := s.served.DB.QueryRow("SELECT COUNT(*) FROM "+s.shop+" WHERE biz_id = ?", bizID).Scan(&n)
		return err == nil && n == 0
	})
}

// end waits for the end of a delivery: its context ends if the task is not wanted any more; else its handler returns.
func (s *stage) end(live delivery, after error, wanted bool) (text string) {
	if wanted {
		live.answer <- after
	} else {
		select {
		case <-live.ctx.Done():
			text = fmt.Sprintf("; the context ends: %s", causeOf(live.ctx))
		case <-time.After(patience):
			s.fail("%s: the context of task %s does not end", s.shop, live.info.JobID)
		}
	}
	s.awaitRelay(live.info.BizID)
	var runs []operator.Run
	s.await("the run", func() bool {
		var err error
		if runs, err = s.people.Runs(context.Background(), operator.RunsQuery{JobID: live.info.JobID, Limit: 10}); err != nil {
			s.fail("%v", err)
		}
		return len(runs) > 0 && s.rests(live.info.JobID)
	})
	return s.became(live.info, s.get(live.info.JobID)) + "; run " + runs[len(runs)-1].Outcome + text
}

func causeOf(ctx context.Context) string {
	switch cause := context.Cause(ctx); cause {
	case tocsin.ErrCancelled:
		return "`ErrCancelled`"
	case tocsin.ErrRescheduled:
		return "`ErrRescheduled`"
	default:
		return cause.Error()
	}
}

// rests reports whether nothing happens to the task today.
func (s *stage) rests(id tocsin.JobID) bool {
	info := s.get(id)
	return info.Status.Final() || info.Status == tocsin.Pending && time.Until(info.ActionTime) > time.Minute
}

// became says what is new about a task.
func (s *stage) became(before, now tocsin.Info) string {
	text := now.Status.String()
	switch {
	case now.Status == tocsin.Pending && time.Until(now.ActionTime) > 3*tomorrow/2:
		text = "pending, the new time"
	case now.Status == before.Status && now.Version == before.Version:
		text = "stays " + text
	}
	if now.Version > before.Version {
		text += ", version + 1"
	}
	return ": " + text
}

// cell is one situation of the table.
type cell struct {
	deed   int
	moment string
	strict bool
}

// TestWhatChangesMeanAtEachMoment changes tasks before, during and after their deliveries, in each way, with owners and without,
// and compares the table of docs/go.md with what it saw. No cell differs by the ownership, nor, unless a delivery is under way, by
// whether the biz type is strict.
func TestWhatChangesMeanAtEachMoment(t *testing.T) {
	t.Parallel()
	seen := map[string]map[cell]string{"etcd": {}, node.ByRows: {}}
	var mu sync.Mutex
	var plays sync.WaitGroup
	for ownership := range seen {
		s := newStage(t, ownership)
		for i, d := range deeds {
			for _, moment := range []string{before, during, done, dead} {
				for _, strict := range []bool{false, true} {
					plays.Go(func() {
						text := s.play(d, moment, strict)
						mu.Lock()
						defer mu.Unlock()
						seen[ownership][cell{i, moment, strict}] = text
					})
				}
			}
		}
	}
	plays.Wait()
	if t.Failed() {
		return
	}
	table := tableOf(t, seen["etcd"], seen[node.ByRows])
	page, err := os.ReadFile("../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/go.md lacks the table as it was seen:\n%s", table)
	}
}

// tableOf writes the table, and reports cells that differ where they must not.
func tableOf(t *testing.T, owned, claimed map[cell]string) string {
	t.Helper()
	table := "| call | by | before its delivery | during it, not strict | during it, strict | once it is done | once it is dead |\n|---|---|---|---|---|---|---|\n"
	for i, d := range deeds {
		table += fmt.Sprintf("| %s | %s |", d.name, d.way)
		for _, moment := range []string{before, during, done, dead} {
			loose, strict := cell{i, moment, false}, cell{i, moment, true}
			for _, c := range []cell{loose, strict} {
				if owned[c] != claimed[c] {
					t.Errorf("%s by %s, %s, strict %t: with etcd %q, without %q", d.name, d.way, moment, c.strict, owned[c], claimed[c])
				}
			}
			table += " " + owned[loose] + " |"
			if moment == during {
				table += " " + owned[strict] + " |"
			} else if owned[loose] != owned[strict] {
				t.Errorf("%s by %s, %s: not strict %q, strict %q", d.name, d.way, moment, owned[loose], owned[strict])
			}
		}
		table += "\n"
	}
	return table
}
