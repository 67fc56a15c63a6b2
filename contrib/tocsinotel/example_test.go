package tocsinotel_test

import (
	"context"
	"log"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel/nodeotel"
	"github.com/tocsinhq/tocsin/node"
)

// A service that adds tasks and handles them traces both, with the providers of the package otel.
func Example() {
	ctx := context.Background()
	telemetry, err := tocsinotel.New(tocsinotel.Config{})
	if err != nil {
		log.Fatal(err)
	}
	cluster := tocsin.Config{Use: []func(tocsin.AddFunc) tocsin.AddFunc{telemetry.Add}} // and the servers
	client, err := tocsin.Open(ctx, cluster)
	if err != nil {
		log.Fatal(err)
	}
	remind := tocsin.Define[string]("coupon.remind")
	if _, err := client.Add(ctx, remind.New(7, "SPRING", tocsin.In(time.Hour))); err != nil { // ctx may have a span, which becomes the parent
		log.Fatal(err)
	}

	var handlers node.Handlers
	node.Handle(&handlers, remind, func(context.Context, *tocsin.Task[string]) error { return nil })
	cfg := node.Config{Tables: cluster, Etcd: node.EtcdConfig{Endpoints: []string{"127.0.0.1:2379"}}, Group: "coupons"}
	nodeotel.Instrument(telemetry, &cfg, &handlers)
	n, err := node.New(cfg, &handlers)
	if err != nil {
		log.Fatal(err)
	}
	if err := n.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A program that handles tasks without a node, say after tocsin.Client.Get, continues the trace of the add.
func ExampleContext() {
	task := tocsin.Info{Headers: `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`}
	ctx := tocsinotel.Context(context.Background(), task.Headers)
	showTrace(ctx)
	// Output: 4bf92f3577b34da6a3ce929d0e0e4736
}
