package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/outbox"
)

// outboxTable is where tasks wait whose tables are on another server: made by `tocsin outbox apply`.
const outboxTable = "shop.tocsin_outbox"

type flags struct {
	config, dsn, listen string
	payIn               time.Duration
	demo, makeTables    bool
}

func main() {
	var f flags
	flag.StringVar(&f.config, "config", "", "Tocsin's config file (default $TOCSIN_CONFIG, then ./tocsin.yaml)")
	flag.StringVar(&f.dsn, "dsn", "root@tcp(127.0.0.1:3306)/", "the server of the shop's own database")
	flag.StringVar(&f.listen, "listen", "127.0.0.1:0", "address of the shop")
	flag.DurationVar(&f.payIn, "pay-in", 30*time.Minute, "an order that is not paid by then is closed")
	flag.BoolVar(&f.makeTables, "make-tables", false, "make the shop's tables, and end")
	flag.BoolVar(&f.demo, "demo", false, "be some customers, then end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, f); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, or until the demo is over.
func run(ctx context.Context, f flags) error {
	shop, n, err := open(ctx, f)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(shop.Tasks.Close(), shop.DB.Close()) }()
	if f.makeTables {
		return shop.MakeTables(ctx)
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: shop.Routes(), ReadHeaderTimeout: 5 * time.Second}
	shop.Log.Info("the shop is open", "url", "http://"+listener.Addr().String())

	ctx, end := context.WithCancel(ctx)
	defer end()
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return n.Run(ctx) }) // when ctx ends it takes nothing more, and ends what is in hand
	parts.Go(func() error { return ignoreClosed(server.Serve(listener)) })
	parts.Go(func() error { <-ctx.Done(); return server.Shutdown(context.WithoutCancel(ctx)) })
	if f.demo {
		parts.Go(func() error { defer end(); return Demo(ctx, "http://"+listener.Addr().String(), shop) })
	}
	return parts.Wait()
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// open makes the shop with its client, and the node that delivers its tasks.
func open(ctx context.Context, f flags) (*Shop, *node.Node, error) {
	file, err := config.Load(f.config)
	if err != nil {
		return nil, nil, err
	}
	cluster := file.Tocsin()
	cluster.Outbox = tocsin.Outbox{Table: outboxTable}
	tasks, err := tocsin.Open(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("mysql", f.dsn)
	if err != nil {
		return nil, nil, errors.Join(err, tasks.Close())
	}
	shop := &Shop{DB: db, Tasks: tasks, Provider: &Bank{}, PayIn: f.payIn, Log: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	n, err := shop.node(file, f.dsn)
	if err != nil {
		return nil, nil, errors.Join(err, tasks.Close(), db.Close())
	}
	return shop, n, nil
}

// node makes the one that runs in this process. It also relays the shop's outbox.
func (s *Shop) node(file config.File, dsn string) (*node.Node, error) {
	cfg, err := file.NodeConfig()
	if err != nil {
		return nil, err
	}
	cfg.Group, cfg.Logger = Group, s.Log // a program that serves n.Status() sets cfg.Listen to the address
	cfg.Outboxes = append(cfg.Outboxes, outbox.Config{Name: "shop", DSN: dsn, Table: outboxTable})
	return node.New(cfg, s.Handlers())
}
