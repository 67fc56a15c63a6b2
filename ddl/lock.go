package ddl

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// lockStep is how many seconds a statement waits for the lock: less than the time-out of reading its answer.
const lockStep = 5

// lock lets one Apply at a time migrate a cluster's databases on a server, so that two of them don't wait for each other's
// ALTERs; each change is safe without it. The lock needs no privilege, and ends with its connection, so also when the
// process is killed.
func (s *site) lock(ctx context.Context, wait time.Duration) (unlock func(), err error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Name, err)
	}
	unlock = func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }
	for begin := time.Now(); ; {
		taken, err := s.tryLock(ctx, conn, min(wait, lockStep*time.Second))
		if taken {
			return unlock, nil
		}
		if err == nil && time.Since(begin) >= wait {
			err = s.holder(ctx)
		}
		if err != nil {
			unlock()
			return nil, err
		}
	}
}

func (s *site) tryLock(ctx context.Context, conn *sql.Conn, wait time.Duration) (bool, error) {
	var taken sql.NullInt64
	if err := conn.QueryRowContext(ctx, takeMigration, s.lockName(), wait.Seconds()).Scan(&taken); err != nil {
		return false, fmt.Errorf("server %s: wait for another `tocsin ddl apply`: %w", s.Name, err)
	}
	return taken.Int64 == 1, nil
}

// holder returns the error of an Apply that could not take the lock.
func (s *site) holder(ctx context.Context) error {
	var id sql.NullInt64
	if err := s.DB.QueryRowContext(ctx, holderOfMigration, s.lockName()).Scan(&id); err != nil && mysql.ClassOf(err) != mysql.Canceled {
		return fmt.Errorf("server %s: another `tocsin ddl apply` migrates it: %w", s.Name, err)
	}
	return fmt.Errorf("server %s: another `tocsin ddl apply` migrates it, over connection %d: wait for its end, then run this again", s.Name, id.Int64)
}

// lockName is at most 64 characters, as MySQL wants it: a prefix has 32 at most.
func (s *site) lockName() string { return "tocsin-ddl-" + s.layout.Database(0) }
