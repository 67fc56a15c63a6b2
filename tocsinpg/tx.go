package tocsinpg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tocsinhq/tocsin"
)

// In adds, cancels and reschedules tasks in a transaction of pgx, through the outbox of the client's Config.Outbox, which
// must have PostgreSQL set. All of it happens exactly if the transaction commits.
func In(client *tocsin.Client, tx pgx.Tx) tocsin.OutboxTx {
	return client.OutboxTx(func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}
