package tocsin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestAServerThatTakesNoWritesStoresNothingAndIsNoDoubt(t *testing.T) {
	t.Parallel()
	m := secondServer(t)
	cfg := cluster(t, tocsin.Server{Name: "db1", DSN: m.DSN()})
	admin := session(t, m.DSN(), "")
	exec(t, admin, "CREATE USER shop@'%' IDENTIFIED BY 'hush'")
	exec(t, admin, "GRANT SELECT, INSERT, UPDATE ON *.* TO shop@'%'")
	cfg.Servers[0].DSN = strings.Replace(m.DSN(), "root@", "shop:hush@", 1)
	c := open(t, cfg)
	id := add(t, c, remind.New(11, "x", tocsin.In(day))).JobID
	exec(t, admin, "SET GLOBAL read_only = 1")
	for name, call := range map[string]func() error{
		"Add":     func() error { _, err := c.Add(t.Context(), remind.New(11, "y", tocsin.In(0))); return err },
		"Add far": func() error { _, err := c.Add(t.Context(), remind.New(11, "y", tocsin.In(day))); return err },
		"AddMany": func() error {
			_, err := c.AddMany(t.Context(), []tocsin.NewTask{remind.New(11, "y", tocsin.In(0))})
			return err
		},
		"Cancel": func() error { _, err := c.Cancel(t.Context(), tocsin.ByID(id)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := call(); !errors.Is(err, tocsin.ErrUnreachable) || errors.Is(err, tocsin.ErrUnknownOutcome) {
				t.Errorf("got %v", err)
			}
			if list := must[[]tocsin.Info](t)(c.List(t.Context(), 11)); len(list) != 1 || list[0].Status != tocsin.Pending {
				t.Errorf("stored: %+v", list)
			}
		})
	}
}
