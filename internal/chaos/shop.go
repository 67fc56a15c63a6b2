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
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/tocsinpg"
)

// shop is a business server: a database with orders and an outbox, on MySQL, MariaDB or PostgreSQL. Services and relays
// reach it without a proxy.
type shop struct {
	number   int
	mysql    *database             // nil: it is PostgreSQL
	postgres *devserver.PostgreSQL // nil: it is not
	db       *sql.DB               // of the service
	client   *tocsin.Client        // of the service
	identity string                // of the outbox, as the ledger has it
}

// restartWithin bounds the start of a business server that was killed.
const restartWithin = time.Minute

// shopConns are the connections of the service to one business server.
const shopConns = 24

// startShop starts a business server and makes its tables. The last of several is PostgreSQL.
func (s *Site) startShop(ctx context.Context, number int) (*shop, error) {
	b := &shop{number: number}
	if err := s.launchShop(ctx, b); err != nil {
		return b, err
	}
	if err := b.open(); err != nil {
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

func (s *Site) launchShop(ctx context.Context, b *shop) (err error) {
	if n := s.opts.Shops; n > 1 && b.number == n-1 {
		b.postgres, err = devserver.StartPostgreSQL(ctx)
		return err
	}
	b.mysql, err = startDatabase(ctx, s.opts.Servers+b.number, s.opts.Dir, "shop", devserver.Product(s.opts.Product), nil)
	return err
}

func (b *shop) open() (err error) {
	if b.postgres != nil {
		b.db, err = sql.Open("pgx", b.postgres.URL("postgres"))
		return err
	}
	if err := b.mysql.exec(context.Background(), makeShopSQL); err != nil {
		return err
	}
	b.db, err = openQuiet(b.dsn() + "shop_0?interpolateParams=true")
	return err
}

func (b *shop) dsn() string { return fmt.Sprintf("tocsin@tcp(%s)/", upstream(b.mysql.port)) }

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
			return fmt.Errorf("business server %d: %w", i, err)
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

// restart kills the business server and brings it back after a while.
func (b *shop) restart(ctx context.Context, down time.Duration) error {
	if b.postgres == nil {
		return b.mysql.restart(ctx, down)
	}
	b.postgres.Kill()
	_ = wait.For(ctx, down) // it comes back also when the run is cut short
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restartWithin)
	defer cancel()
	return b.postgres.Restart(ctx)
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
			return 0, fmt.Errorf("count the rows in the outbox of business server %d: %w", b.number, err)
		}
		n += some
	}
	return n, nil
}

// stored are the operations that the business server has, those of committed transactions.
func (b *shop) stored(ctx context.Context) (map[opKey]bool, error) {
	found, err := b.db.QueryContext(ctx, readOrdersSQL)
	if err != nil {
		return nil, fmt.Errorf("read the orders of business server %d: %w", b.number, err)
	}
	defer func() { _ = found.Close() }()
	all := map[opKey]bool{}
	for found.Next() {
		var k opKey
		if err := found.Scan(&k.bizID, &k.seq); err != nil {
			return nil, fmt.Errorf("read an order of business server %d: %w", b.number, err)
		}
		all[k] = true
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("read the orders of business server %d: %w", b.number, err)
	}
	return all, nil
}

// opKey is an operation on an order.
type opKey struct {
	bizID uint64
	seq   int
}

// outboxKey is a row of an outbox.
type outboxKey struct {
	shop int
	id   uint64
}

// move is a row of the ledger: what a relay has moved.
type move struct {
	job tocsin.JobID // that an add has made
	at  time.Time    // by the server of the tasks
}

// moves adds what stands in the ledgers of all databases to what was read before.
func (s *Site) moves(ctx context.Context, all map[outboxKey]move) error {
	byIdentity := map[string]int{}
	for _, b := range s.shops {
		byIdentity[b.identity] = b.number
	}
	for db := range s.opts.Layout.Databases {
		query := strings.ReplaceAll(ledgerSQL, "{database}", s.opts.Layout.Database(db))
		if err := s.databases[db%len(s.databases)].eachMove(ctx, query, func(identity string, id uint64, m move) {
			if shop, known := byIdentity[identity]; known {
				all[outboxKey{shop, id}] = m
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

func (d *database) eachMove(ctx context.Context, query string, do func(identity string, id uint64, m move)) error {
	found, err := d.direct.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("read the ledger of server db%d: %w", d.number, err)
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		var identity string
		var id uint64
		var m move
		if err := found.Scan(&identity, &id, &m.job, &m.at); err != nil {
			return fmt.Errorf("read the ledger of server db%d: %w", d.number, err)
		}
		do(identity, id, m)
	}
	if err := found.Err(); err != nil {
		return fmt.Errorf("read the ledger of server db%d: %w", d.number, err)
	}
	return nil
}
