package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// fault is one way to break the place.
type fault struct {
	name       string
	begin, end func(ctx context.Context, p *place) error
	waits      func(typ string, table int) bool // a task that then waits, for `tocsin task why`; nil: asks is asked
	asks       []string                         // the command that says what is wrong
	says       string                           // a regular expression, found in the line of its answer that does
}

func anyTask(string, int) bool { return true }

// ofType is true for the tasks of a biz type.
func ofType(name string) func(string, int) bool {
	return func(typ string, _ int) bool { return typ == name }
}

// ofSecond is true for the tasks of the second server, ofLast for those of its second database, the last of all.
func ofSecond(_ string, table int) bool { return table/4%2 == 1 }

func ofLast(_ string, table int) bool { return table >= 12 }

// receiver has the callbacks of order.close end in some way.
func receiver(way int32) func(context.Context, *place) error {
	return func(_ context.Context, p *place) error { p.fails.Store(way); return nil }
}

// sql runs statements as root of the second server.
func sql(statements ...string) func(context.Context, *place) error {
	return func(ctx context.Context, p *place) error { return p.exec(ctx, 1, statements...) }
}

// frozen freezes a process, or lets it go on.
func frozen(is bool, pid func(*place) int) func(context.Context, *place) error {
	return func(_ context.Context, p *place) error { return freeze(pid(p), is) }
}

func killed(which ...int) func(context.Context, *place) error {
	return func(_ context.Context, p *place) (err error) {
		for _, i := range which {
			err = errors.Join(err, p.killNode(i))
		}
		return err
	}
}

func started(which ...int) func(context.Context, *place) error {
	return func(_ context.Context, p *place) (err error) {
		for _, i := range which {
			err = errors.Join(err, p.startNode(i))
		}
		return err
	}
}

func ofEtcd(p *place) int   { return p.site.Etcd.Pid() }
func ofServer(p *place) int { return p.site.Servers[1].Pid() }

// schedule makes one that fails each second, until it is paused.
func schedule(ctx context.Context, p *place) error {
	file := filepath.Join(p.dir, "schedules.yaml")
	text := "schedules: [{name: reports, biz_type: report.run, cron: '@every 1s', pause_after: 3}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	out, err := p.command(ctx, "schedule", "apply", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// backlog adds tasks that have been due for 20 minutes, more than their slots deliver in a quarter of an hour.
func backlog(ctx context.Context, p *place) error {
	biz, tasks := tocsin.Define[string]("bulk.send"), make([]tocsin.NewTask, 50_000)
	for i := range tasks {
		tasks[i] = biz.New(uint64(i+1), "", tocsin.At(time.Now().Add(-20*time.Minute)))
	}
	_, err := p.client.AddMany(ctx, tasks)
	return err
}

// fullDisk fills the disk of the second server's binary log, or makes room again, which the server sees within a minute.
func fullDisk(is bool) func(context.Context, *place) error {
	return func(ctx context.Context, p *place) error {
		if is {
			return p.disk.Fill()
		}
		return errors.Join(p.disk.Free(), loop.Wait(ctx, time.Minute))
	}
}

func nothing(context.Context, *place) error { return nil }

var doctor, top = []string{"doctor"}, []string{"top", "--once"}

var faults = []fault{
	{name: "a receiver answers 500", begin: receiver(1), end: receiver(0), waits: ofType("order.close")},
	{name: "a receiver hangs", begin: receiver(2), end: receiver(0), waits: ofType("order.close")},
	{name: "a receiver rejects the secret", begin: receiver(3), end: receiver(0), waits: ofType("order.close")},
	{name: "one of two nodes is killed", begin: killed(1), end: started(1), asks: []string{"cluster", "nodes", "--ask", "PAGES"}, says: "refused"},
	{name: "all nodes are killed", begin: killed(0, 1, 2), end: started(0, 1, 2), waits: anyTask},
	{name: "the last node of a group is killed", begin: killed(2), end: started(2), waits: ofType("mail.send")},
	{name: "etcd is frozen", begin: frozen(true, ofEtcd), end: frozen(false, ofEtcd), asks: doctor, says: "^fail +etcd"},
	{name: "etcd is frozen, and a node is restarted", begin: func(ctx context.Context, p *place) error {
		return errors.Join(frozen(true, ofEtcd)(ctx, p), killed(1)(ctx, p), started(1)(ctx, p))
	}, end: frozen(false, ofEtcd), waits: anyTask},
	{name: "one of two servers is killed", begin: func(_ context.Context, p *place) error { return p.site.Servers[1].Kill() },
		end: func(ctx context.Context, p *place) error { return p.site.Servers[1].Restart(ctx) }, waits: ofSecond},
	{name: "one of two servers is frozen", begin: frozen(true, ofServer), end: frozen(false, ofServer), asks: top, says: "db-2"},
	{name: "one of two servers is read-only", begin: sql("SET GLOBAL read_only = 1"), end: sql("SET GLOBAL read_only = 0"), asks: doctor, says: "^fail.*read.only"},
	{name: "a database's layout row names another cluster", begin: sql("UPDATE toc_3.layout SET cluster_id = 'other'"),
		end: sql("UPDATE toc_3.layout SET cluster_id = 'faults'"), waits: ofLast},
	{name: "the nodes' user lacks UPDATE on one server", begin: sql("REVOKE UPDATE ON toc_1.* FROM tocsin@'%'", "REVOKE UPDATE ON toc_3.* FROM tocsin@'%'"),
		end: sql("GRANT UPDATE ON toc_1.* TO tocsin@'%'", "GRANT UPDATE ON toc_3.* TO tocsin@'%'"), asks: doctor, says: "^fail.*UPDATE"},
	{name: "no node has a biz type's secret", begin: func(ctx context.Context, p *place) error {
		return p.apply(ctx, p.policy("sms.secret", 3, "TOCSIN_NO_SUCH_SECRET"))
	}, end: nothing, waits: ofType("sms.secret")},
	{name: "a schedule fails until it is paused", begin: schedule, end: nothing, asks: []string{"schedule", "show", "reports"}, says: "paused"},
	{name: "the disk of one of two servers is full", begin: fullDisk(true), end: fullDisk(false), asks: doctor, says: "^fail.*db-2.*commit"},
	{name: "50,000 tasks are overdue", begin: backlog, end: nothing, asks: top, says: "bulk.send"},
}
