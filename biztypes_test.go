package tocsin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// The names of biz types are read from the server that answers first, not from the first of the config.
func TestAnUnknownBizTypeWaitsForNoServerThatHangs(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn, Databases: []int{0}}, {Name: "db2", DSN: devtest.DSN(t), Databases: []int{1}}}
	c := open(t, cfg)
	_, release := p.HoldAt("/* tocsin biz types */")
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.Add(ctx, tocsin.Define[string]("no.such").New(1, "x", tocsin.In(day))); !errors.Is(err, tocsin.ErrUnknownBizType) {
		t.Errorf("got %v", err)
	}
}
