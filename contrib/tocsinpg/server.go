package tocsinpg

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tocsinhq/tocsin/outbox"
)

// server is an outbox in PostgreSQL. It keeps no connections but those of its sessions: operators need few.
type server struct {
	settings *pgx.ConnConfig
	table    string // "public.tocsin_outbox"
}

// Close does nothing: each session is closed by itself.
func (s *server) Close() error { return nil }

// String names the outbox in errors.
func (s *server) String() string { return "outbox " + s.table + " on " + whereIs(s.settings) }

func (s *server) quoted() string { return outbox.QuotedPostgreSQL(s.table) }

// Session connects and reads the outbox's identity. The caller closes the session.
func (s *server) Session(ctx context.Context) (*outbox.Session, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	identity, err := c.IdentityNow(ctx)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.lock, c.own = lockOf(identity), lockOf(identity+" "+s.table)
	return &outbox.Session{Identity: identity, Conn: c}, nil
}

func (s *server) connect(ctx context.Context) (*conn, error) {
	raw, err := connect(ctx, s.settings)
	if err != nil {
		return nil, s.wrap("connect to", err)
	}
	return &conn{server: s, conn: raw}, nil
}

// List returns rows with ids above after, at most limit: all, or those that were set aside.
func (s *server) List(ctx context.Context, after uint64, limit int, stuck bool) ([]outbox.Row, error) {
	if after >= math.MaxInt64 {
		return nil, nil
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	condition := ""
	if stuck {
		condition = stuckSQL
	}
	return c.read(ctx, condition, []outbox.Range{{First: after + 1, Last: math.MaxInt64}}, limit, nil)
}

// Retry lets relays move rows that were set aside: those with the ids, or all. It returns their number.
func (s *server) Retry(ctx context.Context, ids []uint64, all bool) (int, error) {
	return s.change(ctx, "retry rows of", retrySQL, ids, all)
}

// Drop deletes rows that were set aside: those with the ids, or all. It returns their number.
func (s *server) Drop(ctx context.Context, ids []uint64, all bool) (int, error) {
	return s.change(ctx, "drop rows of", dropSQL, ids, all)
}

func (s *server) change(ctx context.Context, tried, statement string, ids []uint64, all bool) (int, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	done, err := c.exec(ctx, tried, statement, all, numbers(ids))
	return int(done.RowsAffected()), err
}

// wrap says what was tried.
func (s *server) wrap(tried string, err error) error {
	if err == nil {
		return nil
	}
	if code(err) == noTable {
		return fmt.Errorf("%s %s: %w: run `tocsin outbox apply`", tried, s, err)
	}
	return fmt.Errorf("%s %s: %w", tried, s, err)
}

// render fills in the table's name, and a further condition.
func (s *server) render(statement, condition string) string {
	return strings.NewReplacer("{outbox}", s.quoted(), "{stuck}", condition).Replace(statement)
}

// numbers are ids as PostgreSQL has them. Those that it can't have are left out.
func numbers(ids []uint64) []int64 {
	all := make([]int64, 0, len(ids))
	for _, id := range ids {
		if id <= math.MaxInt64 {
			all = append(all, int64(id))
		}
	}
	return all
}
