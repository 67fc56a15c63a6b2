package client

import (
	"context"
	"database/sql"
)

// Tx runs statements in a transaction of the caller's: a *sql.Tx, or what wraps one, as *sqlx.Tx and the transactions of most
// mappers do. A pool, which would commit each statement by itself, is refused.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// NoContext refuses a nil context: the pool of connections would panic and leave its
// lock taken.
func NoContext(ctx context.Context) error {
	if ctx == nil {
		return Refuse(ErrInvalid, "the context is nil: pass context.Background() if there is no other")
	}
	return nil
}

// NoTx refuses a nil context, a nil transaction, and what is none: pools and connections begin transactions.
func NoTx(ctx context.Context, tx Tx) error {
	if tx == nil || tx == Tx((*sql.Tx)(nil)) {
		return Refuse(ErrInvalid, "the transaction is nil: begin one, or use the call without Tx")
	}
	if _, begins := tx.(interface {
		BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	}); begins {
		return Refuse(ErrInvalid, "a %T is no transaction: begin one with its BeginTx, or use the call without Tx", tx)
	}
	return NoContext(ctx)
}

// Execute runs a statement and gives the rows it affected.
func Execute(ctx context.Context, in Tx, query string, args ...any) (int64, error) {
	res, err := in.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// QueryRow asks for one row; the function that it returns scans it. Its error is sql.ErrNoRows if there is none.
func QueryRow(ctx context.Context, in Tx, query string, args ...any) (scan func(dest ...any) error) {
	rows, err := in.QueryContext(ctx, query, args...)
	return func(dest ...any) error {
		if err != nil {
			return err
		}
		defer rows.Close()
		if !rows.Next() {
			if err := rows.Err(); err != nil {
				return err
			}
			return sql.ErrNoRows
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		return rows.Close()
	}
}
