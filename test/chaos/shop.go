package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of services that use database/sql

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/outbox"
)

// shop is a business server: a database with orders and an outbox, on MySQL, MariaDB or PostgreSQL. Services and relays
// reach it without a proxy.
type shop struct {
	machine                        // either of these two
	mysql    *database             // nil: it is PostgreSQL
	postgres *devserver.PostgreSQL // nil: it is not
	db       *sql.DB               // of the service
	client   *tocsin.Client        // of the service
	identity string                // of the outbox, as the ledger has it
	number   int
}

// String names the business server in errors.
func (b *shop) String() string { return fmt.Sprintf("business server %d", b.number) }

// shopConns are the connections of the service to one business server.
const shopConns = 24

// startShop starts a business server and makes its tables. The last of several is PostgreSQL.
func (s *Site) startShop(ctx context.Context, number int) (b *shop, err error) {
	b = &shop{number: number}
	if n := s.opts.Shops; n > 1 && number == n-1 {
		if b.postgres, err = devserver.StartPostgreSQL(ctx); err != nil {
			return b, err
		}
		b.machine = b.postgres
		b.db, err = sql.Open("pgx", b.postgres.URL("postgres"))
	} else {
		if b.mysql, err = startDatabase(ctx, s.opts.Servers+number, s.opts.Dir, "shop", devserver.Product(s.opts.Product), nil); err != nil {
			return b, err
		}
		b.machine = b.mysql
		if err = b.mysql.exec(ctx, makeShopSQL); err == nil {
			b.db, err = openQuiet(b.dsn() + "shop_0?interpolateParams=true")
		}
	}
	if err != nil {
		return b, err
	}
	b.db.SetMaxOpenConns(shopConns)
	b.db.SetMaxIdleConns(shopConns)
	if err := b.apply(ctx); err != nil {
		return b, err
	}
	from, err := outbox.Open(b.config())
	if err != nil {
		return b, err
	}
	defer func() { _ = from.Close() }()
	session, err := from.Session(ctx)
	if err != nil {
		return b, err
	}
	defer session.Close()
	b.identity = session.Identity
	return b, nil
}

func (b *shop) dsn() string { return fmt.Sprintf("tocsin@tcp(%s)/", b.mysql.server.Endpoint()) }

// config is the outbox as relays reach it.
func (b *shop) config() outbox.Config {
	name := fmt.Sprintf("shop%d", b.number)
	if b.postgres != nil {
		return outbox.Config{Name: name, DSN: b.postgres.URL("postgres"), Table: "public.tocsin_outbox", Driver: tocsinpg.Driver{}}
	}
	return outbox.Config{Name: name, DSN: b.dsn(), Table: "shop_0.tocsin_outbox"}
}

// apply makes the outbox, and the table of the orders.
func (b *shop) apply(ctx context.Context) error {
	var err error
	if cfg := b.config(); b.postgres != nil {
		_, err = tocsinpg.ApplyOutbox(ctx, cfg)
	} else {
		_, err = ddl.ApplyOutbox(ctx, ddl.Outbox{DSN: cfg.DSN, Table: cfg.Table})
	}
	if err != nil {
		return err
	}
	_, err = b.db.ExecContext(ctx, makeOrdersSQL)
	return err
}

// startShops starts the business servers of the options.
func (s *Site) startShops(ctx context.Context) error {
	for i := range s.opts.Shops {
		b, err := s.startShop(ctx, i)
		s.shops = append(s.shops, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b, err)
		}
	}
	return nil
}

// openShops opens the services' clients, once the tables of the tasks are there.
func (s *Site) openShops(ctx context.Context) (err error) {
	for _, b := range s.shops {
		cfg := s.tables(s.harness)
		cfg.Outbox = tocsin.Outbox{Table: "tocsin_outbox", PostgreSQL: b.postgres != nil}
		if b.client, err = tocsin.Open(ctx, cfg); err != nil {
			return err
		}
	}
	return nil
}

// outboxes are those of all business servers.
func (s *Site) outboxes() (all []outbox.Config) {
	for _, b := range s.shops {
		all = append(all, b.config())
	}
	return all
}

// stop ends the business server for good.
func (b *shop) stop() error {
	var errs []error
	if b.client != nil {
		_ = b.client.Close() // as below
	}
	if b.db != nil {
		_ = b.db.Close() // connections that died with the server can't say goodbye
	}
	if b.mysql != nil {
		errs = append(errs, b.mysql.stop())
	}
	if b.postgres != nil {
		errs = append(errs, b.postgres.Stop())
	}
	return errors.Join(errs...)
}

// left counts the rows in all outboxes.
func (s *Site) left(ctx context.Context) (n int, err error) {
	for _, b := range s.shops {
		var some int
		if err := b.db.QueryRowContext(ctx, countOutboxSQL).Scan(&some); err != nil {
			return 0, fmt.Errorf("count the rows in the outbox of %s: %w", b, err)
		}
		n += some
	}
	return n, nil
}

// opKey is an operation on an order, as the business server has it.
type opKey struct {
	BizID uint64 `db:"biz_id"`
	Seq   int
}

// outboxKey is a row of an outbox.
type outboxKey struct {
	shop int
	id   uint64
}

// move is a row of the ledger: what a relay has moved.
type move struct {
	Job    tocsin.JobID `db:"job_id"`     // that an add has made
	At     time.Time    `db:"gmt_create"` // by the server of the tasks
	Outbox string       // identity
	ID     uint64       // of the row
}

// readShops reads what the business servers have, and what was moved from their outboxes.
func (s *Site) readShops(ctx context.Context) (err error) {
	for _, b := range s.shops {
		stored, err := readAll[opKey](ctx, b.db, b.String(), readOrdersSQL)
		if err != nil {
			return err
		}
		for _, k := range stored {
			s.log.stored[k] = true
		}
	}
	if s.log.left, err = s.left(ctx); err != nil {
		return err
	}
	return s.readMoves(ctx)
}

// readMoves adds what stands in the ledgers of all databases to what was read before.
func (s *Site) readMoves(ctx context.Context) error {
	if len(s.shops) == 0 {
		return nil
	}
	byIdentity := map[string]int{}
	for _, b := range s.shops {
		byIdentity[b.identity] = b.number
	}
	for db := range s.opts.Layout.Databases {
		d := s.databases[db%len(s.databases)]
		moves, err := readAll[move](ctx, d.direct, d.String(), strings.ReplaceAll(ledgerSQL, "{database}", s.opts.Layout.Database(db)))
		if err != nil {
			return err
		}
		for _, m := range moves {
			if shop, known := byIdentity[m.Outbox]; known {
				s.log.moves[outboxKey{shop, m.ID}] = m
			}
		}
	}
	return nil
}
