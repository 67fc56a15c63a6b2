package client

import (
	"errors"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// How packages of this module call what packages tocsin and node do not export. These set the functions when they are initialised, so
// whoever holds a tocsin.Client or a node.Config may call them.
var (
	// MoverOf returns what moves rows of outboxes for a *tocsin.Client.
	MoverOf func(of any) *Client

	// Specs returns the servers of a tocsin.Config with every default filled in, for packages that open connections of their own.
	Specs func(config any) []mysql.Spec

	// Step makes a *node.Config that of a Sweeper for tests: it delivers these tasks alone, by job_id, and those of all groups.
	Step func(config any, only map[uint64]bool)

	// Batch returns how many tasks the handler of a biz type in a *node.Handlers takes at once; 0: one, or there is no handler.
	Batch func(handlers any, bizType string) int

	// WhenOf returns what a tocsin.When means.
	WhenOf func(when any) When

	// RefOf returns what a tocsin.Ref of BizType.Of or BizType.OfKey means; "": it is one of ByID.
	RefOf func(ref any) (bizType string, bizID uint64, key string)
)

// CompletedInTx is the claimed_by of a task that tocsin.CompleteTx has completed. It shows a node that its own handler completed
// the task, and not another delivery.
const CompletedInTx = "CompleteTx"

// OpenServers makes a pool of its own, with this many connections, for each server of a tocsin.Config. The caller closes them.
func OpenServers(config any, conns int) ([]*mysql.Server, error) {
	var servers []*mysql.Server
	for _, spec := range Specs(config) {
		spec.MaxConns, spec.Share = conns, ""
		s, err := mysql.Open(spec)
		if err != nil {
			return nil, errors.Join(err, CloseServers(servers))
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// CloseServers closes the pools of OpenServers.
func CloseServers(servers []*mysql.Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.DB.Close())
	}
	return errors.Join(errs...)
}
