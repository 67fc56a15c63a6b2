package tocsin

import (
	"context"
	"database/sql"
)

// noContext refuses a nil context: the pool of connections would panic and leave its
// lock taken.
func noContext(ctx context.Context) error {
	if ctx == nil {
		return refuse(ErrInvalid, "the context is nil: pass context.Background() if there is no other")
	}
	return nil
}

// noTx refuses a nil context and a nil transaction.
func noTx(ctx context.Context, tx *sql.Tx) error {
	if tx == nil {
		return refuse(ErrInvalid, "the transaction is nil: begin one, or use the call without Tx")
	}
	return noContext(ctx)
}
