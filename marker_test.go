package tocsin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// Nodes hold a promoted replica that lags too far. A client that comes later names that reason, and uses the replica once an
// operator has accepted it.
func TestAReplicaThatIsHeldIsTheConfigs(t *testing.T) {
	t.Parallel()
	p := devtest.NewPair(t, true)
	cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 1, Tables: 2}, Servers: []tocsin.Server{{Name: "db1", DSN: p.DSN()}}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
		t.Fatal(err)
	}
	primary := cfg
	primary.Servers = []tocsin.Server{{Name: "db1", DSN: "root@tcp(" + p.Address(0) + ")/"}}
	applyTypes(t, primary, policies)
	c := open(t, cfg)
	add(t, c, remind.New(1, "x", tocsin.In(day)))
	p.Exec(0, "SET GLOBAL read_only = 1")
	p.Exec(1, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'held'") // it is read-only, but not for root
	p.Promote(1)
	await := func(enough func(error) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			_, err := c.Add(t.Context(), remind.New(1, "x", tocsin.In(day)))
			if enough(err) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("got %v", err)
			}
		}
	}
	await(func(err error) bool {
		return errors.Is(err, tocsin.ErrLayout) && strings.Contains(err.Error(), "is held, as it is")
	})
	p.Exec(1, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'active'")
	await(func(err error) bool { return err == nil })
}
