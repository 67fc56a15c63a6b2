// Package operator implements what people do with a running cluster and what they ask about it. The command tocsin and the HTTP API
// use it, and other programs may too.
//
//	Operator --> every server at once --> 64 tables together --> a page of each: find, count, redrive and bury tasks, pause biz types
//
//	etcd, or the session tables ---+
//	owner rows, policies -------+--> View --> nodes, tables, why a task waits (Answer), what is not healthy (Check)
//	status pages of nodes ------+--> Watch --> what the nodes deliver now (Activity) --+
//	a walk over all tables ------------------> what is overdue (upkeep.Backlog) -------+--> Sampler --> what is wrong (Overview)
//
// It is the authority for what such an operation means over all tables, and for what is said of a cluster and of a task. An Operator
// needs only MySQL, and the rights of the role biz (see ddl.Grants). For tasks of one biz_id, package tocsin's Client is quicker.
//
// On failure: a call returns what it could do beside an error, which names the servers, databases and tables that could
// not be asked. Nothing is half done: each batch is one statement or transaction.
package operator

import (
	"cmp"
	"context"
	"errors"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Operator has pools of the cluster's servers. Make one with Open. Its methods are safe for concurrent use.
type Operator struct {
	cfg    tocsin.Config
	tables *store.Store
}

// Open connects to all servers at once. One that answers is enough; it refuses a cluster that is not the config's.
func Open(ctx context.Context, cfg tocsin.Config) (*Operator, error) {
	tables, err := store.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Operator{cfg, tables}, nil
}

// Close closes the pools. Calls under way fail.
func (o *Operator) Close() error { return o.tables.Close() }

// Layout says how many databases and tables there are.
func (o *Operator) Layout() tocsin.Layout { return o.tables.Layout() }

// Pause makes the tasks of a biz type wait; with false they are delivered again. Nodes and sweepers follow within two
// seconds. The result says what was written: a biz type that was in this state already is unchanged.
func (o *Operator) Pause(ctx context.Context, bizType string, paused bool) (biztype.Result, error) {
	return biztype.SetPaused(ctx, o.cfg, bizType, paused)
}

// BizTypes returns the stored policies, with the defaults filled in.
func (o *Operator) BizTypes(ctx context.Context) ([]biztype.Policy, error) {
	return Policies(ctx, o.cfg)
}

// policies reads the stored policies. Those that can't be decoded are left out, and named by unread.
func (o *Operator) policies(ctx context.Context) (policies []biztype.Policy, unread, err error) {
	policies, unread = biztype.Load(ctx, o.cfg)
	if policies == nil {
		return nil, nil, unread
	}
	return policies, unread, nil
}

// types is policies, with the number of one biz type. For "" these are the numbers that sees allows, or nil, which means all, if
// sees is nil. A biz type that sees does not allow counts as unknown.
func (o *Operator) types(ctx context.Context, name string, sees func(string) bool) ([]biztype.Policy, []uint64, error) {
	policies, unread, err := o.policies(ctx)
	if err != nil || name == "" && sees == nil {
		return policies, nil, err
	}
	only := []uint64{}
	for _, p := range policies {
		if (name == "" || p.Name == name) && (sees == nil || sees(p.Name)) {
			only = append(only, p.Number)
		}
	}
	if name != "" && len(only) == 0 {
		return nil, nil, cmp.Or(unread, client.Refuse(tocsin.ErrUnknownBizType, "unknown biz type %q: `tocsin biz list` names those that are applied", name))
	}
	return policies, only, nil
}

// ErrStatus says that a task is not in the status that the operation is for; it was not changed.
var ErrStatus = errors.New("the task's status does not allow it")

// Partial is the error beside an incomplete result. Its text has what went wrong on each server.
type Partial = store.Partial
