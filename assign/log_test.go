package assign

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// loggingTo makes a node write to the log.
func loggingTo(log *devtest.Log) func(*Config) {
	return func(c *Config) { c.Logger = log.Logger() }
}

func TestAServerWhoseTablesCanNotBeTakenIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	var log devtest.Log
	d := c.node(slow, onFour, loggingTo(&log))
	refused := 0
	d.failTake = func(revisions map[int]int64) error {
		sick := slices.DeleteFunc(sortedKeys(revisions), func(table int) bool { return table/8 < 2 })
		if len(sick) == 0 {
			return nil
		}
		refused++
		return &Refused{Tables: sick, Err: errors.New("connection refused")}
	}
	began := time.Now()
	c.start(d)
	c.await("the tables of the servers that are well, and three refusals of each of the others", func() bool {
		return len(d.held) == 16 && refused >= 6
	})
	minutes := int(time.Since(began) / time.Minute)
	if n := len(log.Lines("could not start on tables, giving them back for now")); n < 2 || n > 2*(1+minutes) {
		t.Errorf("%d lines about two servers:\n%v", n, log.Lines())
	}
	d.leave()
	moved, most := log.Lines("tables have moved"), 2+int(time.Since(began)/movesApart)
	if took, gaveUp := sumOf(moved, "took"), sumOf(moved, "gave_up"); took != 16 || gaveUp != 16 || len(moved) > most {
		t.Errorf("took %v and gave up %v tables of 16 in the lines %v", took, gaveUp, moved)
	}
}

// sumOf adds up a field.
func sumOf(lines []devtest.Line, field string) (sum float64) {
	for _, line := range lines {
		n, _ := line[field].(float64)
		sum += n
	}
	return sum
}

func TestTheEndOfClaimModeIsLogged(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"the lease is renewed late": false, "the lease is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t)
			var log devtest.Log
			w := devtest.NewRelay(t, devtest.Etcd(t))
			d := c.join(short, loggingTo(&log), func(cfg *Config) { cfg.Client = dial(t, w.Addr) })
			c.awaitCounts(map[*desk]int{d: 32})
			id := d.ID()
			w.Cut()
			if why := fmt.Sprint(log.Await(t, "the lease can't be proven: going on in claim mode")["error"]); !strings.Contains(why, "renew lease") {
				t.Errorf("the reason is %q", why)
			}
			if n := len(log.Lines("claim mode has ended: the lease is proven")); n != 0 {
				t.Errorf("its end is logged in the middle of it")
			}
			if lost {
				c.await("the lease to run out", func() bool { return c.keys() == 0 })
			}
			w.Mend(t)
			log.Await(t, "claim mode has ended: the lease is proven")
			c.await("all tables, as before", func() bool { return d.acting() == 32 && len(d.held) == 32 })
			if !d.LeaseOK() || lost && d.ID() == id || d.drops != 0 {
				t.Errorf("lease proven: %t, the same incarnation: %t, dropped %d", d.LeaseOK(), d.ID() == id, d.drops)
			}
		})
	}
}

// The nodes of a new group start together: that one of them begins the epoch and binds the cluster is worth no warning, and none
// waits for a TTL. Another group divides the tables among its own nodes. A node that comes when all have left finds their epoch.
func TestNodesOfANewGroupStartWithoutAWarning(t *testing.T) {
	t.Parallel()
	for range 4 {
		c := newCrowd(t)
		var log devtest.Log
		want := make(map[*desk]int)
		for range 8 {
			want[c.node(loggingTo(&log), slow, on(production), c.knowing)] = 4
		}
		for d := range want {
			c.start(d)
		}
		c.awaitCounts(want)
		other := c.join(on(production), func(c *Config) { c.Group = "h" })
		c.awaitCounts(map[*desk]int{other: 32})
		c.awaitCounts(want)
		for d := range want {
			d.cancel()
		}
		for d := range want {
			d.leave()
		}
		next := c.join(loggingTo(&log), slow, on(production), c.knowing)
		c.awaitCounts(map[*desk]int{next: 32})
		if epoch, _ := c.epoch(); epoch != 1 {
			t.Errorf("epoch %d", epoch)
		}
		for _, line := range log.Lines() {
			others := strings.Contains(fmt.Sprint(line["error"]), "compacted") // by another test, as they share an etcd
			if !others && (line["level"] == "warn" || line["level"] == "error") {
				t.Errorf("logged %v", line)
			}
		}
	}
}

func TestANodeThatCanNotRegisterIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	var log devtest.Log
	client := dial(t, c.etcd)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	d := c.start(c.node(short, loggingTo(&log), func(cfg *Config) { cfg.Client = client }))
	tries := map[string]bool{}
	poll(t, "five tries, each under a new id", func() bool {
		tries[d.ID()] = true
		return len(tries) > 5
	})
	if lines := log.Lines(); len(lines) != 1 || lines[0]["message"] != "could not register, trying again" {
		t.Errorf("logged %v", lines)
	}
}
