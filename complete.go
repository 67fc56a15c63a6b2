package tocsin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

var tableForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}_[0-9]{1,4}\.task_[0-9]{4}$`)

// CompleteTx writes a task's success in the handler's own transaction, so that
// what the handler did and the task's end commit together: once. It is given
// the Info that the handler got. Roll back on any error; ErrConflict says that
// the task was meanwhile cancelled, rescheduled or completed by another
// delivery, ErrOtherServer that the transaction's server does not hold it, as no
// PostgreSQL server does. The handler returns nil after the commit; whatever it
// returns, the task stays done.
func CompleteTx(ctx context.Context, tx Tx, info Info) error {
	if err := noTx(ctx, tx); err != nil {
		return err
	}
	if !tableForm.MatchString(info.Table) {
		return refuse(ErrInvalid, "complete task %s: its table is not known, %q", info.JobID, info.Table)
	}
	n, err := execute(ctx, tx, info.render(completeSQL))
	switch {
	case err != nil:
		return completeErr(info, err)
	case n > 0:
		return nil
	}
	return conflict(ctx, tx, info)
}

// conflict names the reason why nothing was completed.
func conflict(ctx context.Context, tx Tx, info Info) error {
	var status uint8
	var version uint32
	var product string
	err := queryRow(ctx, tx, productSQL)(&product)
	if strings.HasPrefix(product, "PostgreSQL") {
		return refuse(ErrOtherServer, "complete task %s: its table %s is not on this transaction's server, which is PostgreSQL", info.JobID, info.Table)
	}
	if err == nil {
		err = queryRow(ctx, tx, info.render(completedSQL))(&status, &version)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return refuse(ErrConflict, "complete task %s: it is not in %s any more", info.JobID, info.Table)
	case err != nil:
		return completeErr(info, err)
	case version != info.Version:
		return refuse(ErrConflict, "complete task %s: it was rescheduled meanwhile (version %d, not %d)", info.JobID, version, info.Version)
	}
	return refuse(ErrConflict, "complete task %s: it is %s already", info.JobID, Status(status))
}

// render fills in the task. Its numbers are literals: parameters would cost another round trip.
func (i Info) render(statement string) string {
	return strings.NewReplacer("{task}", i.Table, "{job_id}", i.JobID.String(), "{version}", strconv.FormatUint(uint64(i.Version), 10)).Replace(statement)
}

func completeErr(info Info, err error) error {
	switch mysql.ClassOf(err) {
	case mysql.Missing, mysql.Denied:
		return refuse(ErrOtherServer, "complete task %s: its table %s is not on this transaction's server (%s)", info.JobID, info.Table, err)
	}
	return fmt.Errorf("complete task %s in %s: %w", info.JobID, info.Table, err)
}
