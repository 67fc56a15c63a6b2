// Package seam is how packages of this module call what packages tocsin and node do not export. These set the functions when
// they are initialised, so whoever holds a tocsin.Client or a node.Config may call them.
package seam

import (
	"context"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/outboxrow"
)

// CompletedInTx is the claimed_by of a task that tocsin.CompleteTx has completed. It shows a node that its own handler completed
// the task, and not another delivery.
const CompletedInTx = "CompleteTx"

// Mover moves rows of outboxes to the tables of their tasks.
type Mover interface {
	// Move moves rows of an outbox, which all belong to one database. Each is stored in one transaction with a row of the
	// ledger, under the outbox's identity and the row's key; what stands in the ledger is not stored again. Adds are stored
	// together, as far as they can be. Of one biz_id the rows must be adds alone, or one other row.
	Move(ctx context.Context, identity string, rows []outboxrow.Row) []outboxrow.Result

	// Upkeep keeps the ledger of one outbox small, in one database: rows whose outbox row is gone are noted, and forgotten
	// ten minutes later. present returns which rows the outbox still has.
	Upkeep(ctx context.Context, identity string, database int, present func(context.Context, []outboxrow.Key) (map[outboxrow.Key]bool, error)) error

	// NoteSettled notes in one database that an outbox had no row with an id below this one, neither committed nor of an
	// open transaction, and so never will unless it gives ids again: then 0 is noted.
	// A note of an id takes the place of a 0 only anew: by a turn that began without a note, and once. A 0 that was noted since
	// says that the id is no longer true.
	NoteSettled(ctx context.Context, identity string, database int, id uint64, anew bool) error

	// SettledBelow returns the lowest id that NoteSettled has noted in any database; 0 if one has no note. All must answer:
	// one that was away may have an old note.
	SettledBelow(ctx context.Context, identity string) (below uint64, err error)
}

// MoverOf returns the Mover of a *tocsin.Client.
var MoverOf func(client any) Mover

// Specs returns the servers of a tocsin.Config with every default filled in, for packages that open connections of their own.
var Specs func(config any) []mysql.Spec

// Step makes a *node.Config that of a Sweeper for tests: it delivers these tasks alone, by job_id, and those of all groups.
var Step func(config any, only map[uint64]bool)

// Batch returns how many tasks the handler of a biz type in a *node.Handlers takes at once; 0: one, or there is no handler.
var Batch func(handlers any, bizType string) int

// RefOf returns what a tocsin.Ref of BizType.Of or BizType.OfKey means; "": it is one of ByID.
var RefOf func(ref any) (bizType string, bizID uint64, key string)
