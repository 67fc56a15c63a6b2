package tocsinotel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// adderEnv makes this program the one that adds a task: it holds the config of the cluster.
const adderEnv = "TOCSINOTEL_TEST_ADDER"

// TestMain is the tests, or the process that adds for one of them.
func TestMain(m *testing.M) {
	cluster := os.Getenv(adderEnv)
	if cluster == "" {
		goleak.VerifyTestMain(tocsintest.Main(m))
		return
	}
	if err := addElsewhere(context.Background(), cluster); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// addElsewhere adds two tasks under a span of the program's own, and prints all spans as JSON.
func addElsewhere(ctx context.Context, cluster string) error {
	var cfg tocsin.Config
	if err := json.Unmarshal([]byte(cluster), &cfg); err != nil {
		return err
	}
	r := newRecorder("shop")
	telemetry, err := tocsinotel.New(r.config())
	if err != nil {
		return err
	}
	cfg.Use = append(cfg.Use, telemetry.Add)
	client, err := tocsin.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, span := r.provider.Tracer("shop").Start(ctx, "POST /orders")
	_, err = client.Add(ctx, orderClose.New(7, order{7}, tocsin.In(0)))
	if err == nil {
		_, err = client.Add(ctx, couponRemind.New(8, "SPRING", tocsin.In(300*time.Millisecond)))
	}
	span.End()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r.spans())
}
