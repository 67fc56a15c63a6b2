package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// fault is one way to break the place.
type fault struct {
	name       string
	begin, end func(ctx context.Context, p *place) error
	waits      func(typ string, table int) bool // a task that then waits
}

func anyTask(string, int) bool { return true }

// ofType is true for the tasks of a biz type.
func ofType(name string) func(string, int) bool {
	return func(typ string, _ int) bool { return typ == name }
}

// second is true for the tasks of the second server; in its second database alone, third is.
func second(_ string, table int) bool { return table >= 8 }

func third(_ string, table int) bool { return table >= 8 && table < 12 }

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

// rights gives or takes a right on the databases of the second server.
func rights(statement string) func(context.Context, *place) error {
	var all []string
	for _, n := range []int{2, 3} {
		all = append(all, strings.ReplaceAll(statement, "DB", fmt.Sprintf("%s_%d", cluster, n)))
	}
	return sql(all...)
}

func ofEtcd(p *place) int   { return p.etcd.Pid() }
func ofServer(p *place) int { return p.servers[1].Pid() }

var faults = []fault{
	{"a receiver answers 500", receiver(1), receiver(0), ofType("order.close")},
	{"a receiver hangs", receiver(2), receiver(0), ofType("order.close")},
	{"one of two nodes is killed", killed(1), started(1), anyTask},
	{"both nodes are killed", killed(0, 1), started(0, 1), anyTask},
	{"etcd is frozen", frozen(true, ofEtcd), frozen(false, ofEtcd), anyTask},
	{"etcd is frozen, and a node is restarted", func(ctx context.Context, p *place) error {
		return errors.Join(frozen(true, ofEtcd)(ctx, p), killed(1)(ctx, p), started(1)(ctx, p))
	}, frozen(false, ofEtcd), anyTask},
	{"one of two servers is killed", func(_ context.Context, p *place) error { return errors.Join(p.servers[1].Kill(), p.servers[1].Stop()) },
		func(ctx context.Context, p *place) error { return p.startServer(ctx, 1, p.servers[1].Port()) }, second},
	{"one of two servers is frozen", frozen(true, ofServer), frozen(false, ofServer), second},
	{"one of two servers is read-only", sql("SET GLOBAL read_only = 1"), sql("SET GLOBAL read_only = 0"), second},
	{"a database's layout row names another cluster", sql("UPDATE faults_2.layout SET cluster_id = 'other'"), sql("UPDATE faults_2.layout SET cluster_id = 'faults'"), third},
	{"the nodes' user lacks UPDATE on one server", rights("REVOKE UPDATE ON DB.* FROM tocsin@'%'"), rights("GRANT UPDATE ON DB.* TO tocsin@'%'"), second},
	{"no node has a biz type's secret", func(ctx context.Context, p *place) error {
		return p.apply(ctx, p.policy("sms.secret", 3, "TOCSIN_NO_SUCH_SECRET"))
	},
		func(context.Context, *place) error { return nil }, ofType("sms.secret")},
}
